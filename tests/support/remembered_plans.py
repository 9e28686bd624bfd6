"""Releases and noise planned once for all fits of the same numbers."""

from collections.abc import Iterator, Sequence
from functools import lru_cache

import pytest

from quorum_rl.judging import plan as judging_plan
from quorum_rl.pipeline import planning, private_steps, units
from quorum_rl.privacy import Event, noise_multiplier_for, plan_release

_remembering = lru_cache(maxsize=None, typed=True)(plan_release)
_calibrated = lru_cache(maxsize=None, typed=True)(noise_multiplier_for)


def _noise(*, beside: Sequence[Event] = (), **numbers: float) -> float:
    return _calibrated(beside=tuple(beside), **numbers)


@pytest.fixture(scope="module", autouse=True)
def remembered_plans() -> Iterator[None]:
    """A plan follows from its numbers alone, and to find it takes longer than a small fit.

    Fits in processes of their own plan again, as a user's do.
    """
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(planning, "plan_release", _remembering)
        for module in (judging_plan, planning, private_steps, units):
            patched.setattr(module, "noise_multiplier_for", _noise)
        yield
