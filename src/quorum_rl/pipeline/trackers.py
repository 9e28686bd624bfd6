"""Send the metrics of a run, which may be shown, to a dashboard that people have."""

import importlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from quorum_rl.errors import QuorumError, require_packages, unknown_name

if TYPE_CHECKING:  # it brings JAX, and the command line needs the names only
    from quorum_rl.pipeline.metrics import Track

TrackerName = Literal["tensorboard", "trackio", "wandb"]
PACKAGES: Final = {"tensorboard": "tensorboardX", "trackio": "trackio", "wandb": "wandb"}
PROJECT: Final = "quorum"


@contextmanager
def tracker(name: TrackerName, folder: str | Path) -> Iterator["Track"]:
    """What `fit(track=...)` takes, until the block ends; a run is called as its folder.

    TensorBoard's events go into the run's folder; the others are told the project `quorum`.

    Raises:
        QuorumError: if there is no such dashboard, or its package is not installed.
    """
    if name not in PACKAGES:
        raise unknown_name("dashboard", name, PACKAGES)
    require_packages(f"--track {name}", "track", PACKAGES[name])
    module: Any = importlib.import_module(PACKAGES[name])
    if name == "tensorboard":
        writer = module.SummaryWriter(str(Path(folder) / "tensorboard"))
        try:
            yield lambda found: _write(writer, found)
        finally:
            writer.close()
        return
    try:
        run = module.init(project=PROJECT, name=Path(folder).name)
    except Exception as error:  # such as no account, or no network
        raise QuorumError(f"{name} does not answer ({error}): leave --track out.") from error
    try:
        yield lambda found: run.log(_named(found), step=int(found["step"]))
    finally:
        run.finish()


def _named(found: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in found.items() if name != "step"}


def _write(writer: Any, found: Mapping[str, float]) -> None:
    for name, value in _named(found).items():
        writer.add_scalar(name, value, int(found["step"]))
