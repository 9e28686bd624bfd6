"""What is declared about logs: the public facts, and how files carry them.

Files that Quorum exports carry what was declared. It came with the logs, so it outranks what a
reader remembers of them: a floor or a smoothing that is claimed only afterwards is not one by which
the experts acted (gap G11 of the privacy analysis).
"""

import json
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from quorum_rl.dictionary import (
    Bounds,
    Dictionary,
    check_text,
    dictionary_of,
    dictionary_to_json,
)
from quorum_rl.errors import QuorumError, at_least, require
from quorum_rl.json_files import bounded_int

VERSION: Final = 1
METADATA_KEY: Final = b"quorum_rl.demonstrations"
CHECKED: Final = (
    "action_count", "observation_size", "horizon", "p_min", "smoothing", "world", "dictionary",
)  # fmt: skip
TEXTS: Final = ("smoothing", "world", "machine", "experts_identity", "identity")


@dataclass(frozen=True)
class Declared:
    """The public facts of a set of demonstrations: said by its owner, never measured from it.

    `horizon` is the time limit under which the experts acted; `p_min` the floor under every
    probability of the policies that acted, None where nobody promises one; `smoothing` the rule by
    which they reached it before they acted, "none" if they acted unchanged, None where nobody
    says. An episode may be truncated before the horizon only where the owner declares that this
    followed a public rule of state, action and time (`early_truncation_is_public`); a log cut
    short by an expert or a logger would break the guarantee. `machine` is what computed the
    policies while they acted, None where that was not us: elsewhere they may round otherwise.
    `reproducible` marks logs drawn from a fixed seed: whoever knows it can draw them again.
    `minimum_experts` is how many experts there are at least, which the guarantee counts on, and
    `minimum_trajectories` how many trajectories each has at least: those who have fewer than a
    release reserves and leaves are left out of everything.
    `dictionary` names the columns of an observation and the actions, and bounds continuous ones;
    None where nobody says any of it.
    `experts_identity` is the random identity of the set of experts who acted, None if unknown.
    `identity` is random and names this log in ledgers; copies of the log keep it.

    Raises:
        QuorumError: for a count below one, a floor that `action_count` actions cannot have, or a
            parameter of the world that is no number.
    """

    action_count: int
    observation_size: int
    horizon: int
    p_min: float | None = None
    smoothing: str | None = None
    world: str | None = None
    world_params: Mapping[str, float] = field(default_factory=dict)
    early_truncation_is_public: bool = False
    machine: str | None = None
    minimum_experts: int | None = None
    minimum_trajectories: int | None = None
    experts_identity: str | None = None
    reproducible: bool = False
    dictionary: Dictionary | None = None
    identity: str = field(default_factory=partial(secrets.token_hex, 16), compare=False)

    def __post_init__(self) -> None:
        for name in ("action_count", "observation_size", "horizon"):
            require(f"the declared {name}", getattr(self, name), at_least(1))
        for name, least in (("minimum_experts", 2), ("minimum_trajectories", 1)):
            if getattr(self, name) is not None:
                require(f"the declared {name}", getattr(self, name), at_least(least))
        if self.p_min and self.continuous:
            raise QuorumError(
                f"the declared p_min is {self.p_min}, but actions are continuous, and densities "
                "have no floor: leave p_min out."
            )
        if self.p_min is not None and not 0 <= self.p_min <= 1 / self.action_count:
            raise QuorumError(
                f"the declared p_min is {self.p_min}: with {self.action_count} actions a floor "
                f"lies between 0 and {1 / self.action_count:.6g}."
            )
        for name in TEXTS:
            if getattr(self, name) is not None:
                check_text(f"the declared {name}", getattr(self, name))
        for name, number in self.world_params.items():
            if not isinstance(number, int | float | np.number):
                raise QuorumError(f"the world's parameter {name!r} is {number!r}: give a number.")
        if self.dictionary is not None:
            self.dictionary.check_sizes(self.observation_size, self.action_count)

    @property
    def continuous(self) -> bool:
        """Whether actions are numbers within bounds; else they are 0, 1, … below `action_count`."""
        return bool(self.action_bounds)

    @property
    def action_bounds(self) -> Bounds:
        """Those of continuous actions, whose numbers `action_count` counts."""
        return () if self.dictionary is None else self.dictionary.action_bounds

    def prepared(self, observations: npt.ArrayLike) -> npt.NDArray[np.float32]:
        """Observations as float32, filled and cut off as the dictionary says.

        What float32 cannot hold becomes infinite.
        """
        with np.errstate(over="ignore"):
            values = np.asarray(observations).astype(np.float32, copy=False)
        return values if self.dictionary is None else self.dictionary.prepared(values)


def declared_to_json(declared: Declared) -> bytes:
    """What was declared, as the metadata of a file."""
    params = {name: float(value) for name, value in declared.world_params.items()}
    facts = asdict(declared) | {"world_params": params}
    del facts["dictionary"]
    if declared.dictionary is not None:
        facts["dictionary"] = dictionary_to_json(declared.dictionary)
    # NumPy numbers become JSON numbers.
    return json.dumps({"version": VERSION} | facts, default=lambda number: number.item()).encode()


def declared_from_json(metadata: bytes) -> Declared:
    """What `declared_to_json` wrote.

    Raises:
        QuorumError: if it is damaged or of a version this release does not know.
    """
    try:
        facts = json.loads(metadata, parse_int=bounded_int)
        version = facts.pop("version")
        if version == VERSION:
            return Declared(**facts | {"dictionary": dictionary_of(facts.get("dictionary"))})
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        if isinstance(error, QuorumError):
            raise
        raise QuorumError("what was declared is unreadable: write the file again.") from error
    raise QuorumError(f"its format is version {version}, this Quorum reads {VERSION}: update it.")


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
        both = f"{name} {theirs}, but {name} {ours} is declared"
        if name == "dictionary":
            both = "other columns, labels, fills or ranges than are declared"
        raise QuorumError(
            f"{where} was exported with {both}: declare what the file says, or leave it out."
        )
    if given.early_truncation_is_public:
        added["early_truncation_is_public"] = True
    return replace(embedded, **added)
