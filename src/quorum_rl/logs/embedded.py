"""What a file says was declared, against what its reader declares.

Files that Quorum exports carry what was declared. It came with the logs, so it outranks what a
reader remembers of them: a floor or a smoothing that is claimed only afterwards is not one by which
the experts acted (gap G11 of the privacy analysis).
"""

from dataclasses import replace
from typing import Any

from quorum_rl.errors import QuorumError
from quorum_rl.logs.demonstrations import Declared
from quorum_rl.logs.native import declared_from_json

CHECKED = ("action_count", "observation_size", "horizon", "p_min", "smoothing", "world")


def settled(given: Declared | None, metadata: bytes | None, where: str) -> Declared:
    """What holds for a file: what it says itself, completed by what its reader declares.

    `metadata` is what the file carries, None if it carries nothing. A reader can add what the file
    leaves open, and nothing else.

    Raises:
        QuorumError: naming the file, if nothing is declared or the two contradict each other.
    """
    if metadata is None:
        if given is None:
            raise QuorumError(
                f"{where} does not say what is declared: give `declared` with action_count, "
                "observation_size and horizon, and p_min if one is promised (on the command line "
                "--actions, --observations, --horizon and --p-min)."
            )
        return given
    try:
        embedded = declared_from_json(metadata)
    except QuorumError as error:
        raise QuorumError(f"{where}: {error}") from error
    if given is None:
        return embedded
    added: dict[str, Any] = {}
    for name in CHECKED:
        theirs, ours = getattr(embedded, name), getattr(given, name)
        if ours is None or ours == theirs:
            continue
        # A log that says how its experts were smoothed, and no floor, says that there is none.
        if theirs is None and not (name == "p_min" and embedded.smoothing is not None):
            added[name] = ours
            continue
        raise QuorumError(
            f"{where} was exported with {name} {theirs}, but {name} {ours} is declared: declare "
            f"what the file says, or leave it out."
        )
    if given.early_truncation_is_public:
        added["early_truncation_is_public"] = True
    return replace(embedded, **added)
