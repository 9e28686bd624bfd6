"""Programs on a Ray cluster of two local nodes: what dies is run again, nothing is paid twice."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from sweeps import asked, spreading, swept, untrained

from quorum_rl.budget import read_ledger
from quorum_rl.errors import QuorumError
from quorum_rl.sweep.cluster import on_ray
from quorum_rl.sweep.programs import Found, Inputs
from quorum_rl.sweep.trials import Program

ray = pytest.importorskip("ray", reason="Ray is not installed: pip install 'quorum-rl[ray]'")
SUPPORT = Path(__file__).parents[1] / "support"
PATHS = os.pathsep.join([str(SUPPORT), *sys.path])
ENDED = 60  # seconds in which a driver without a head has given up


@pytest.fixture(scope="module", name="address")
def _address() -> Iterator[str]:
    from ray.cluster_utils import Cluster

    patch = pytest.MonkeyPatch()
    patch.setenv("PYTHONPATH", PATHS)  # for the workers
    head = {"num_cpus": 1, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    cluster.add_node(num_cpus=1)
    yield cluster.address
    cluster.shutdown()
    patch.undo()


def test_a_cluster_finds_what_one_machine_finds(address: str, tmp_path: Path) -> None:
    one = asked(together=1)
    here = swept(one, tmp_path / "here")
    there = swept(one, tmp_path / "there", spread=on_ray(address, untrained))
    assert there.trial == here.trial
    tables: list[Any] = [
        pq.read_table(tmp_path / name / "sweep.parquet") for name in ("here", "there")
    ]
    assert tables[0].equals(tables[1])


def test_a_worker_killed_in_the_middle_is_run_again_and_not_paid_again(
    address: str, tmp_path: Path
) -> None:
    died = tmp_path / "died"

    def work(inputs: Inputs, program: Program) -> Found:
        if not died.exists():
            died.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return untrained(inputs, program)

    one = asked("killed", select="public", together=1)
    made = swept(one, tmp_path / "sweep", spread=on_ray(address, work))
    assert died.exists()
    assert made.trial.choices == {"clip_norm": 2.0, "batch_size": 8}
    assert len(read_ledger(tmp_path / "sweep" / "winner" / "ledger.jsonl").charges) == 6


def test_a_dead_head_leaves_a_sweep_that_goes_on_without_it(tmp_path: Path) -> None:
    folder = tmp_path / "sweep"
    driver = subprocess.Popen(
        [sys.executable, SUPPORT / "headless_sweep.py", folder],
        env=os.environ | {"PYTHONPATH": PATHS, "RAY_gcs_rpc_server_reconnect_timeout_s": "3"},
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        assert driver.wait(ENDED) != 0
    finally:
        os.killpg(driver.pid, signal.SIGKILL)  # with the nodes that it started
    book = folder / "winner" / "ledger.jsonl"
    paid = read_ledger(book).charges
    seen: list[int] = []
    made = swept(asked("headless", select="public"), folder, spread=spreading(seen))
    assert seen == [1]
    assert read_ledger(book).charges == paid
    assert made.trial.choices == {"clip_norm": 2.0, "batch_size": 8}


def test_an_address_without_a_cluster_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(QuorumError, match=r"there is no Ray cluster at '127.0.0.1:9' .*\.$"):
        swept(asked(), tmp_path / "sweep", spread=on_ray("127.0.0.1:9", untrained))
