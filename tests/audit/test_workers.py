"""Work in several processes: the same as in one, and off the GPU."""

import os

from quorum_rl.audit.workers import PLATFORMS, spread


def test_parts_come_back_in_their_order_whoever_did_them() -> None:
    heard: list[tuple[int, int]] = []
    for workers in (1, 2):
        assert spread(abs, [-1, 2, -3], workers, lambda *done: heard.append(done)) == [1, 2, 3]
    assert heard == 2 * [(1, 3), (2, 3), (3, 3)]


def test_other_processes_leave_a_gpu_alone_and_this_one_stays_as_it_is() -> None:
    before = os.environ.get(PLATFORMS)
    assert spread(os.getenv, [PLATFORMS] * 2, 2) == ["cpu", "cpu"]
    assert os.environ.get(PLATFORMS) == before
