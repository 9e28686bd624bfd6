"""What the numbers of an observation and the actions are called: declared by the owner, so public.

A dictionary goes from the logs to the policy and its bundle. It also says what stands for a missing
value and where a value is cut off, in the logs as in every later question to the policy.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from quorum_rl.errors import QuorumError, unknown_name
from quorum_rl.json_files import as_object, made_of

LONGEST: Final = 200  # characters of a name: one that is longer is no name
LARGEST: Final = float(np.finfo(np.float32).max)

Bounds: TypeAlias = tuple[tuple[float, float], ...]
"""The least and the most of each number of a continuous action."""


@dataclass(frozen=True)
class Column:
    """One column of an observation: a number, or an array of `shape`, which is flattened.

    `fill` stands where a value is missing; values are cut to between `low` and `high`, after that.

    Raises:
        QuorumError: for a name or unit that does not print, a range that is none, a fill outside it
            or a shape without numbers.
    """

    name: str
    unit: str | None = None
    fill: float | None = None
    low: float | None = None
    high: float | None = None
    shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_text("the name of a column", self.name)
        if self.unit is not None:
            check_text(f"the unit of column {self.name!r}", self.unit)
        for what in ("fill", "low", "high"):
            _check_number(f"the {what} of column {self.name!r}", getattr(self, what))
        if (self.low is None) != (self.high is None) or (
            self.low is not None and self.high is not None and not self.low < self.high
        ):
            raise QuorumError(
                f"the range of column {self.name!r} is {self.low} to {self.high}: give two "
                "numbers, the smaller one first."
            )
        if self.fill is not None and not self.least <= self.fill <= self.most:
            raise QuorumError(
                f"the fill of column {self.name!r} is {self.fill:g}, outside its range of "
                f"{self.low:g} to {self.high:g}: correct one of the two."
            )
        if not all(type(length) is int and length > 0 for length in self.shape):
            raise QuorumError(
                f"the shape of column {self.name!r} is {self.shape}: give lengths of at least 1."
            )

    @property
    def size(self) -> int:
        """How many numbers it is."""
        return math.prod(self.shape)

    @property
    def least(self) -> float:
        return -math.inf if self.low is None else self.low

    @property
    def most(self) -> float:
        return math.inf if self.high is None else self.high

    @property
    def said(self) -> str:
        """All of it in a line."""
        unit = "" if self.unit is None else f" ({self.unit})"
        facts = []
        if self.shape:
            facts.append("of shape " + " × ".join(map(str, self.shape)))
        if self.low is not None:
            facts.append(f"cut to {self.low:g} to {self.high:g}")
        if self.fill is not None:
            facts.append(f"{self.fill:g} where it is missing")
        return f"{self.name}{unit}" + "".join(f", {fact}" for fact in facts)


@dataclass(frozen=True)
class Dictionary:
    """The columns of an observation in their order and the labels of actions 0, 1, 2, …

    Either may be empty: then nobody has named them. With `action_bounds` actions are continuous:
    each of their numbers lies between two bounds, and the labels are the names of these numbers.

    Raises:
        QuorumError: for two of one name, or bounds that are no range.
    """

    columns: tuple[Column, ...] = ()
    action_labels: tuple[str, ...] = ()
    action_bounds: Bounds = ()

    def __post_init__(self) -> None:
        for number, (low, high) in enumerate(self.action_bounds):
            for bound in (low, high):
                _check_number(f"a bound of number {number} of an action", bound)
            if not (low < high and high - low <= LARGEST):
                raise QuorumError(
                    f"number {number} of an action is bounded by {low:g} and {high:g}: give two "
                    "numbers, the smaller one first."
                )
        for label in self.action_labels:
            check_text("the label of an action", label)
        for what, names in (("columns", self.names), ("actions", self.action_labels)):
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise QuorumError(f"two {what} are called {twice!r}: give each a name of its own.")

    def __repr__(self) -> str:
        return f"Dictionary({_some(self.names)}; actions: {_some(self.action_labels)})"

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def size(self) -> int:
        """How many numbers an observation has."""
        return sum(column.size for column in self.columns)

    def check_sizes(self, observation_size: int, action_count: int) -> None:
        """Fail unless it is of such observations and so many actions.

        Raises:
            QuorumError: naming both numbers.
        """
        if self.columns and self.size != observation_size:
            raise QuorumError(
                f"the columns {_some(self.names)} have {self.size} numbers together, but "
                f"observation_size {observation_size} was declared: correct one of the two."
            )
        if self.action_bounds and len(self.action_bounds) != action_count:
            raise QuorumError(
                f"{len(self.action_bounds)} numbers of an action have bounds, but action_count "
                f"{action_count} was declared: correct one of the two."
            )
        if self.action_labels and len(self.action_labels) != action_count:
            raise QuorumError(
                f"{len(self.action_labels)} actions have labels ({_some(self.action_labels)}), but "
                f"action_count {action_count} was declared: correct one of the two."
            )

    @cached_property
    def constants(self) -> tuple[npt.NDArray[np.float32], ...] | None:
        """What fills each number (NaN: nothing), the least and the most it may be, if any is said.

        Shapes: (size,) each.
        """
        if all(column.fill is None and column.low is None for column in self.columns):
            return None
        said = [
            (math.nan if column.fill is None else column.fill, column.least, column.most)
            for column in self.columns
        ]
        sizes = [column.size for column in self.columns]
        fill, least, most = np.repeat(np.array(said, np.float32), sizes, axis=0).T
        return fill, least, most

    def prepared(self, observations: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
        """Observations with what is missing filled in and what is out of range cut off.

        Doing it twice is doing it once. Shapes: `(…, size) -> (…, size)`.
        """
        if self.constants is None:
            return observations
        fill, least, most = self.constants
        return np.clip(np.where(np.isnan(observations), fill, observations), least, most)

    @property
    def units(self) -> tuple[tuple[float, ...], tuple[float, ...]] | None:
        """A centre and a scale of each number, from the ranges; None where there is no range.

        A number without a range stays as it is; one with a range lies between -2 and 2.
        """
        if all(column.low is None for column in self.columns):
            return None
        said = [
            (0.0, 1.0)
            if column.low is None or column.high is None
            else ((column.low + column.high) / 2, (column.high - column.low) / 4)
            for column in self.columns
            for _ in range(column.size)
        ]
        centre, scale = zip(*said, strict=True)
        return centre, scale

    @property
    def said_of_actions(self) -> tuple[str, ...]:
        """Each number of a continuous action, and between what it lies."""
        names = self.action_labels or tuple(f"number {i}" for i in range(len(self.action_bounds)))
        pairs = zip(names, self.action_bounds, strict=False)  # labels alone are of finite actions
        return tuple(f"{name}, from {low:g} to {high:g}" for name, (low, high) in pairs)

    def name_at(self, number: int) -> str | None:
        """The column that this number of an observation belongs to, if it has a name."""
        for column in self.columns:
            if number < column.size:
                return column.name
            number -= column.size
        return None

    def vectors_of(self, named: Any) -> npt.NDArray[np.float64]:
        """Observations that are given by the names of their columns: a mapping or a data frame. The
        field of a mapping within one is called as in logs, such as vitals.pulse.

        None and NaN are missing values; further names are not looked at. Shapes: a column of
        numbers may have any shape, all of them one; the result has an axis more.

        Raises:
            QuorumError: if a column is not there, or holds something else than numbers.
        """
        if not self.columns:
            raise QuorumError("the numbers of these observations have no names: give an array.")
        named = _without_nesting(named)
        present = set(map(str, names_of(named) or ()))
        parts = []
        for column in self.columns:
            if column.name not in present:
                error = unknown_name("column", column.name, present)
                raise QuorumError(f"the observations lack a column: {error}")
            parts.append(_numbers(named[column.name], column))
        shapes = {part.shape[:-1] for part in parts}
        if len(shapes) > 1:
            raise QuorumError(
                f"the columns {_some(self.names)} have different shapes: give as many values of "
                "each."
            )
        return np.concatenate(parts, axis=-1)


def _without_nesting(named: Any) -> Any:
    """A mapping whose values are none."""
    if not isinstance(named, Mapping):
        return named
    found: dict[str, Any] = {}
    for name, value in named.items():
        within = _without_nesting(value)
        fields = within if isinstance(within, Mapping) else {}
        found |= {f"{name}.{field}": one for field, one in fields.items()} or {str(name): value}
    return found


def names_of(named: Any) -> Iterable[Any] | None:
    """The names by which a mapping or a data frame is asked, None for anything else."""
    if isinstance(named, Mapping) or hasattr(named, "keys"):
        names: Iterable[Any] = named.keys()
        return names
    for attribute in ("column_names", "columns"):
        if hasattr(named, attribute) and hasattr(named, "__getitem__"):
            return list(getattr(named, attribute))
    return None


def dictionary_of(facts: Any) -> Dictionary | None:
    """The dictionary in a JSON object, as `dataclasses.asdict` made it.

    Raises:
        KeyError, ValueError, TypeError: if it is something else.
    """
    if facts is None:
        return None
    return made_of(Dictionary, {"action_bounds": [], **as_object(facts, "dictionary")})


def dictionary_to_json(dictionary: Dictionary) -> dict[str, Any]:
    """What `dictionary_of` reads."""
    facts = asdict(dictionary)
    if not dictionary.action_bounds:
        del facts["action_bounds"]  # so that earlier versions read it
    return facts


def _numbers(values: Any, column: Column) -> npt.NDArray[np.float64]:
    """A column as floats; its own shape is the last axis."""
    found = np.asarray(values)
    try:
        if found.dtype.kind == "O":
            listed = values.to_pylist() if hasattr(values, "to_pylist") else found.tolist()
            found = np.array(listed, np.float64)
        if found.dtype.kind not in "fiub":
            raise TypeError(found.dtype)
        several = found.shape[: found.ndim - len(column.shape)]
        if found.shape != (*several, *column.shape):
            raise ValueError(found.shape)
    except (TypeError, ValueError) as error:
        wanted = f"arrays of shape {column.shape}" if column.shape else "numbers"
        raise QuorumError(
            f"column {column.name!r} of the observations holds something else than {wanted}: "
            "convert it."
        ) from error
    return found.astype(np.float64).reshape(*several, column.size)


def check_text(what: str, text: Any) -> None:
    if not (isinstance(text, str) and text.isprintable() and 0 < len(text) <= LONGEST):
        said = text if not isinstance(text, str) or len(text) <= LONGEST else text[:20] + "…"
        raise QuorumError(f"{what} is {said!r}: give a text of one line, not empty.")


def _check_number(what: str, value: Any) -> None:
    if value is None:
        return
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (number and abs(value) <= LARGEST):  # NaN is not
        raise QuorumError(f"{what} is {value!r}: give a number.")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (", …" if len(names) > 6 else "")


def called(action: int, labels: Sequence[str], *, continuous: bool = False) -> str:
    """An action, or a number of a continuous one, in words: its label, where there are some."""
    if labels:
        return repr(labels[action])
    return f"number {action} of the action" if continuous else f"action {action}"
