"""One crowd for all fits, and a fit of it that went through."""

import pytest
from fits import Crowd, crowd, fitted, named
from remembered_plans import remembered_plans

from quorum_rl.pipeline import Fitted

__all__ = ["remembered_plans"]  # a fixture for all tests here


@pytest.fixture(scope="session", name="everyone")
def _everyone() -> Crowd:
    return crowd()


@pytest.fixture(scope="session", name="done")
def _done(everyone: Crowd, tmp_path_factory: pytest.TempPathFactory) -> Fitted:
    """An uninterrupted run, with a seed."""
    return fitted(named(everyone, "done"), tmp_path_factory.mktemp("done") / "run")
