"""As many judges whatever the key of a split is: programs for a part's size are compiled once."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt
import pytest

from quorum_rl.budget import SplitKey


@contextmanager
def steady_parts() -> Iterator[None]:
    """Those whose coins fall lowest judge: the key still decides who, but not how many."""

    def judges(self: SplitKey, names: Sequence[str]) -> npt.NDArray[np.bool_]:
        lowest = sorted(range(len(names)), key=lambda place: self._coin(names[place]))
        chosen = np.zeros(len(names), np.bool_)
        chosen[lowest[: round(self.share * len(names))]] = True
        return chosen

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SplitKey, "judges", judges)
        yield
