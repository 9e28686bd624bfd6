"""A sweep on a Ray cluster whose head dies in the middle: `python headless_sweep.py FOLDER`."""

import os
import signal
import sys
import time
from pathlib import Path

from ray.cluster_utils import Cluster
from sweeps import asked, swept, untrained

from quorum_rl.sweep.cluster import on_ray
from quorum_rl.sweep.programs import Found, Inputs
from quorum_rl.sweep.trials import Program


def main(folder: Path) -> None:
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
    )
    cluster.add_node(num_cpus=1)
    (server,) = cluster.head_node.all_processes["gcs_server"]
    number, first = server.process.pid, folder / "private" / "programs" / "00000.parquet"

    def work(inputs: Inputs, program: Program) -> Found:
        if program.number > 0:  # once the first has ended, the head dies, and this never does
            while not first.exists():
                time.sleep(0.1)
            os.kill(number, signal.SIGKILL)
            time.sleep(3600)
        return untrained(inputs, program)

    spread = on_ray(cluster.address, work)
    swept(asked("headless", select="public"), folder, spread=spread)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
