"""Continuous actions that are none, drawn at random: each way in says so in one sentence."""

import importlib
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dosing import BOUNDS, dosing
from hypothesis import HealthCheck, given, settings, strategies as st

from quorum_rl.errors import QuorumError
from quorum_rl.logs import (
    Demonstrations,
    from_step_arrays,
    open_demonstrations,
    read_minari,
    read_table,
    save_demonstrations,
    to_step_arrays,
    write_minari,
    write_table,
)

LOG = dosing()
SENTENCE = re.compile(
    r"number [01] of the action is \S+, but its bounds are .* and .*: correct the"
)
HUGE = float(np.finfo(np.float32).max)


def outside(number: int) -> st.SearchStrategy[float]:
    """What is no such number of an action, also by as little as floats have."""
    low, high = (np.float32(bound) for bound in BOUNDS[number])
    up, down = (float(np.nextafter(bound, np.float32(side * np.inf)))
                for bound, side in ((high, 1), (low, -1)))  # fmt: skip
    beyond = st.one_of(
        st.floats(up, HUGE, width=32), st.floats(-HUGE, down, width=32), st.just(up), st.just(down)
    )
    return st.one_of(st.sampled_from([np.nan, np.inf, -np.inf]), beyond)


faults = st.integers(0, 1).flatmap(
    lambda number: st.tuples(
        st.integers(0, LOG.transition_count - 1), st.just(number), outside(number)
    )
)


def with_fault(fault: tuple[int, int, float]) -> Demonstrations:
    step, number, value = fault
    actions = np.array(LOG.columns.actions)
    actions[step, number] = value
    return replace(LOG, columns=LOG.columns._replace(actions=actions))


def native(log: Demonstrations, folder: Path) -> Demonstrations:
    save_demonstrations(log, folder / "log.arrow")
    return open_demonstrations(folder / "log.arrow")


def table(ending: str) -> Callable[[Demonstrations, Path], Demonstrations]:
    def read(log: Demonstrations, folder: Path) -> Demonstrations:
        path = folder / f"log{ending}"
        write_table(log, path)
        dictionary = replace(log.declared.dictionary, columns=())  # type: ignore[type-var]
        said = replace(log.declared, dictionary=dictionary)
        return read_table(path, None if ending == ".parquet" else said)

    return read


def arrays(log: Demonstrations, folder: Path) -> Demonstrations:
    del folder
    return from_step_arrays(to_step_arrays(log), log.declared)


def minari(log: Demonstrations, folder: Path) -> Demonstrations:
    """A dataset of somebody else, whose file holds these actions; Minari keeps files open."""
    name = f"doses{len(list(folder.iterdir()))}-v0"
    write_minari(LOG, name)
    held = folder / name / "data" / "main_data.hdf5"
    with importlib.import_module("h5py").File(held, "r+") as file:
        for number, episode in enumerate(log):
            file[f"episode_{number}/actions"][...] = episode.actions
    return read_minari(name)


WAYS: dict[str, Any] = {
    "native": native, "parquet": table(".parquet"), "csv": table(".csv"), "arrays": arrays,
    "minari": minari,
}  # fmt: skip


@pytest.mark.parametrize("way", WAYS)
def test_an_action_that_is_none_is_refused_in_one_sentence(
    way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "minari":
        pytest.importorskip("minari", reason="Minari is an optional extra")
        monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))

    # Minari takes half a second to write a dataset.
    @settings(max_examples=6 if way == "minari" else 40, deadline=None, derandomize=True,
              suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
    @given(faults)
    def refused(fault: tuple[int, int, float]) -> None:
        with pytest.raises(QuorumError) as caught:
            WAYS[way](with_fault(fault), tmp_path)
        said = str(caught.value)
        assert SENTENCE.search(said), said
        assert "\n" not in said

    refused()


@pytest.mark.parametrize("number", [0, 1])
def test_actions_at_their_bounds_are_none_of_these(number: int) -> None:
    for bound in BOUNDS[number]:
        found = arrays(with_fault((3, number, bound)), Path())
        assert np.asarray(found.columns.actions)[3, number] == bound
