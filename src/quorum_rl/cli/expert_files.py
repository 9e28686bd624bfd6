"""Experts from where a user keeps them: one file of a population, or an ONNX file for each."""

from pathlib import Path
from typing import Literal

from quorum_rl import experts, logs, release
from quorum_rl.errors import QuorumError
from quorum_rl.files import plain_bytes

Output = Literal["probabilities", "logits"]


def experts_from(
    path: Path, demonstrations: "logs.Demonstrations", output: Output = "probabilities"
) -> "experts.LoggedExperts":
    """The experts at a path, as they acted in the demonstrations.

    A path is a file of 'quorum experts train', a folder of ONNX files, a pattern such as
    'desks/*.onnx', or a text file (.txt) with the name of one ONNX file a line. ONNX files are the
    experts whom the log calls by their names; where it names none, and for the lines of a text
    file, they are the experts 0, 1, 2, … in that order. `output` says what they answer.

    Raises:
        QuorumError: if there are none, or they are not those who acted.
    """
    declared, files = demonstrations.declared, _onnx_files(path, demonstrations.expert_names)
    found: experts.UnloggedExperts
    if files is None:
        found = experts.load_population(path)
    else:
        found = experts.OnnxExperts.from_files(
            files,
            observation_size=declared.observation_size,
            action_count=declared.action_count,
            p_min=declared.p_min or 0.0,
            action_bounds=declared.action_bounds,
            output=output,
        )
    return release.experts_who_acted(found, demonstrations)


def _onnx_files(path: Path, names: tuple[str, ...]) -> list[Path] | None:
    """One file for each expert; None if the path is that of a population."""
    if path.is_dir():
        found = list(path.glob("*.onnx"))
    elif path.suffix.lower() == ".txt":
        found = _listed(path)
    elif not path.exists() and any(sign in path.name for sign in "*?["):
        found = list(path.parent.glob(path.name))
    else:
        return None
    if not found:
        raise QuorumError(f"experts {str(path)!r}: there is no ONNX file: give one per expert.")
    return found if path.suffix.lower() == ".txt" else experts.files_named(found, names)


def _listed(path: Path) -> list[Path]:
    """The files that a list names, relative to it."""
    try:
        lines = plain_bytes(path).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise QuorumError(f"experts {str(path)!r} cannot be read: {error}.") from error
    return [path.parent / line.strip() for line in lines if line.strip()]
