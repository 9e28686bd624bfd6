"""Releases planned once for all fits of the same numbers."""

from collections.abc import Iterator
from functools import lru_cache

import pytest

from quorum_rl.pipeline import planning
from quorum_rl.privacy import plan_release

_remembering = lru_cache(maxsize=None, typed=True)(plan_release)


@pytest.fixture(scope="module", autouse=True)
def remembered_plans() -> Iterator[None]:
    """A plan follows from its numbers alone, and to find it takes longer than a small fit.

    Fits in processes of their own plan again, as a user's do.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(planning, "plan_release", _remembering)
        yield
