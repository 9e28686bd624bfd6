"""Programs of a sweep on a Ray cluster: its scheduling, its retries, its object store.

The driver alone has the ledger and the folder. What workers learn from goes through the object
store once; what they find comes back through it. A program is a function of its arguments, so that
Ray may run it again wherever it likes.
"""

import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from quorum_rl.errors import QuorumError, require_packages
from quorum_rl.pipeline import Progress
from quorum_rl.sweep.programs import Found, Inputs, Spread, found_by
from quorum_rl.sweep.trials import Program

RETRIES: Final = 3  # of a program whose worker or machine died
SECONDS_BETWEEN_LOOKS: Final = 1.0
SECONDS_TO_ANSWER: Final = 10.0


def on_ray(
    address: str, work: Callable[[Inputs, Program], Found] = found_by, retries: int = RETRIES
) -> Spread:
    """Runs programs on the Ray cluster at an address ("auto" for the one of this machine).

    Each takes a GPU where the cluster has any, and a core otherwise.

    Raises:
        QuorumError: if Ray is not installed, the cluster cannot be reached, or it is lost.
    """
    require_packages("--ray", "ray", "ray")
    import ray
    import ray.exceptions

    def spread(
        inputs: Inputs, programs: Sequence[Program], progress: Progress | None
    ) -> Iterator[Found]:
        if not programs:
            return
        try:
            _check_answers(address)
            ray.init(address=address, log_to_driver=False)
        except (OSError, ValueError, RuntimeError) as error:
            raise QuorumError(
                f"there is no Ray cluster at {address!r} ({_short(error)}): start one with 'ray "
                "start --head', or leave --ray out."
            ) from error
        try:
            gpus = 1 if ray.cluster_resources().get("GPU") else 0
            task = ray.remote(work).options(max_retries=retries, num_cpus=1, num_gpus=gpus)
            shared = ray.put(inputs)
            running = [task.remote(shared, program) for program in programs]
            while running:
                ended, running = ray.wait(running, timeout=SECONDS_BETWEEN_LOOKS)
                yield from map(ray.get, ended)
                if progress is not None:
                    progress(len(programs) - len(running), len(programs))
        except ray.exceptions.RayTaskError:
            raise  # of our own, with the worker's traceback
        except ray.exceptions.RayError as error:
            raise QuorumError(
                f"the Ray cluster was lost ({_short(error)}); what had ended is kept: run the same "
                "command again, with this cluster, another, or none."
            ) from error
        finally:
            ray.shutdown()

    return spread


def _check_answers(address: str) -> None:
    """Fail at once where nobody listens: Ray itself would go on asking for minutes.

    Raises:
        OSError: if there is no connection.
    """
    host, _, port = address.rpartition(":")
    if host and port.isdigit() and "/" not in host:  # neither "auto" nor a URL
        socket.create_connection((host, int(port)), SECONDS_TO_ANSWER).close()


def _short(error: Exception) -> str:
    """The first line of what Ray says, which says more than one wants to read."""
    lines = str(error).strip().splitlines()
    return (lines[0] if lines else type(error).__name__).rstrip(".:")
