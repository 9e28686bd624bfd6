"""A log goes where it fits."""

import jax
import numpy as np
import pytest
from spread_over import log

from quorum_rl.errors import QuorumError
from quorum_rl.logs import Demonstrations, save_demonstrations
from quorum_rl.training import sources
from quorum_rl.training.data import ExpertData
from quorum_rl.training.mapped import MappedData
from quorum_rl.training.sources import device_bytes, private_source


@pytest.fixture(scope="module", name="in_a_file")
def _in_a_file(tmp_path_factory: pytest.TempPathFactory) -> Demonstrations:
    path = tmp_path_factory.mktemp("logs") / "log.arrow"
    save_demonstrations(log(), path)
    return Demonstrations.open(path)


def test_a_log_takes_as_many_bytes_as_its_arrays_have(in_a_file: Demonstrations) -> None:
    data = private_source(in_a_file)
    assert isinstance(data, ExpertData)
    held = sum(leaf.nbytes for leaf in jax.tree.leaves(data.transitions))
    assert device_bytes(in_a_file) == held


def test_a_log_too_large_for_the_device_stays_in_its_file_if_it_has_one(
    in_a_file: Demonstrations, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "memory", lambda: 4 * device_bytes(in_a_file))
    assert isinstance(private_source(in_a_file), ExpertData)
    monkeypatch.setattr(sources, "memory", lambda: 4 * device_bytes(in_a_file) - 1)
    assert isinstance(private_source(in_a_file), MappedData)
    assert isinstance(private_source(log()), ExpertData)
    nobody = in_a_file.select(np.zeros(len(in_a_file), np.bool_))
    monkeypatch.setattr(sources, "memory", lambda: -1)
    with pytest.raises(QuorumError, match="no expert"):
        private_source(nobody)


def test_there_is_memory() -> None:
    assert sources.memory() > 2**28
