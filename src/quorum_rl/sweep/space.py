"""What a sweep tries: a grid, or draws from ranges, as a configuration file writes them."""

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from itertools import product
from types import NoneType
from typing import Any, Final, Literal, TypeAlias, get_args, get_origin

from quorum_rl.errors import QuorumError, unknown_name
from quorum_rl.pipeline import FitSettings

Value: TypeAlias = bool | int | float | str
Choices: TypeAlias = dict[str, Value]
"""What one trial has chosen, by name."""

Offered: TypeAlias = Sequence[Value] | Mapping[str, Value]
"""A list of values, or a range."""

MOST_TRIALS: Final = 10_000
BESIDE_SETTINGS: Final[dict[str, Any]] = {"epsilon": float, "learner": str, "reward_scale": float}
IN_A_FILE: Final[dict[str, Any]] = {"optimiser": str}  # what Python may also have as an object
RANGE: Final = {"low", "high", "scale"}


@dataclass(frozen=True)
class Search:
    """A grid (every combination of the listed values), or `trials` draws.

    A draw takes every name by itself: one of a list, each as likely as any other, or a number of a
    range `{low, high, scale}`, whose scale is "linear" or "log"; whole numbers if both ends are.

    Raises:
        QuorumError: if it names nothing, both, or what cannot be tried.
    """

    grid: Mapping[str, Sequence[Value]] = field(default_factory=dict)
    draws: Mapping[str, Offered] = field(default_factory=dict)
    trials: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        if bool(self.grid) == bool(self.draws):
            raise QuorumError(
                f"a sweep tries a grid or random draws, and has {'both' if self.grid else 'none'}: "
                "give the table [sweep.grid] or the table [sweep.random]."
            )
        for name, offered in {**self.grid, **self.draws}.items():
            _check(name, offered)
        found = math.prod(len(values) for values in self.grid.values()) if self.grid else None
        for what, count in (("the grid", found), ("--trials", self.trials)):
            if count is not None and not 1 <= count <= MOST_TRIALS:
                raise QuorumError(f"{what} has {count} trials: give from 1 to {MOST_TRIALS:,}.")

    def all(self) -> list[Choices]:
        """Every trial of a grid, in the order of the file; or the draws, the same for one seed."""
        if self.grid:
            names = [_plain(name) for name in self.grid]
            return [dict(zip(names, each, strict=True)) for each in product(*self.grid.values())]
        source = random.Random(self.seed)
        return [self.one(source) for _ in range(self.trials)]

    def one(self, source: random.Random) -> Choices:
        """One trial by chance: of a grid each as likely as any other."""
        offered = self.grid or self.draws
        return {_plain(name): _drawn(source, each) for name, each in offered.items()}


def _plain(name: str) -> str:
    return name.replace("-", "_")


def _drawn(source: random.Random, offered: Offered) -> Value:
    if not isinstance(offered, Mapping):
        return source.choice(offered)
    low, high = _ends(offered)
    whole = isinstance(low, int) and isinstance(high, int)
    if offered.get("scale", "linear") == "log":
        drawn = math.exp(source.uniform(math.log(low), math.log(high)))
        return round(drawn) if whole else drawn
    return source.randint(int(low), int(high)) if whole else source.uniform(low, high)


def _ends(offered: Mapping[str, Any]) -> tuple[float, float]:
    """Where a range begins and ends."""
    return offered["low"], offered["high"]


def _check(name: str, offered: Offered) -> None:
    """Fail for a name that a trial does not have, or values that it cannot take."""
    known = {field.name: field.type for field in fields(FitSettings)} | IN_A_FILE | BESIDE_SETTINGS
    del known["contribution"]  # which a file cannot say
    if _plain(name) not in known:
        shown = [setting.replace("_", "-") for setting in known]
        raise unknown_name("setting to sweep", name.replace("_", "-"), shown)
    if isinstance(offered, Mapping):
        _check_range(name, offered)
    tried = _ends(offered) if isinstance(offered, Mapping) else offered
    if not tried:
        raise QuorumError(f"{name} has no value to try: list some.")
    for value in tried:
        if not _fits(value, known[_plain(name)]):
            raise QuorumError(
                f"{name} would be tried as {value!r}, which it cannot be: correct it."
            )


def _check_range(name: str, offered: Mapping[str, Value]) -> None:
    scale = offered.get("scale", "linear")
    numbers = all(type(offered.get(end)) in (int, float) for end in ("low", "high"))
    if not numbers or offered.keys() - RANGE or scale not in ("linear", "log"):
        raise QuorumError(
            f"{name} = {dict(offered)} is no range: give low, high and, if you like, scale = "
            '"linear" or "log"; or a list of values.'
        )
    low, high = _ends(offered)
    if not low < high or (scale == "log" and low <= 0):
        raise QuorumError(
            f"{name} would range from {low} to {high}: let it rise, from above 0 on a log scale."
        )


def _fits(value: Value, kind: Any) -> bool:
    """Whether a field of this type can hold the value."""
    if get_origin(kind) is Literal:
        return value in get_args(kind)
    if get_args(kind):  # a number or nothing
        return any(_fits(value, each) for each in get_args(kind) if each is not NoneType)
    if kind is float:
        return type(value) in (int, float)
    return type(value) is kind


def named_settings(choices: Choices) -> dict[str, Any]:
    """The part of a trial's choices that belongs to `FitSettings`."""
    own = {field.name for field in fields(FitSettings)}
    return {name: value for name, value in choices.items() if name in own}
