"""JSON files that somebody may have changed or cut short: one reader, which says what is wrong."""

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import is_dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Final, NoReturn, TypeVar, get_args, get_origin, get_type_hints

from quorum_rl.errors import QuorumError
from quorum_rl.files import plain_bytes

CONFIG: Final = "config.json"  # of a run
MOST_DIGITS: Final = 300  # of a whole number

Made = TypeVar("Made")


@contextmanager
def reading(path: Path, maker: str) -> Iterator[None]:
    """Turns whatever goes wrong while a file is read into one sentence that names it.

    `maker` is the command that writes such a file.
    """
    try:
        yield
    except OSError as error:
        raise QuorumError(f"{str(path)!r} cannot be read: {error.strerror}.") from error
    except (
        ValueError, KeyError, TypeError, AttributeError, RecursionError, ArithmeticError,
    ) as error:  # fmt: skip
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        reason = " ".join(reason.split()).rstrip(".")
        raise QuorumError(
            f"{str(path)!r} is damaged ({reason}): make it again with '{maker}'."
        ) from error


def read_config(folder: Path) -> dict[str, Any]:
    """The configuration of the run in a folder.

    Raises:
        QuorumError: if there is no run, or its configuration is damaged.
    """
    path = folder / CONFIG
    if not path.is_file():
        raise QuorumError(f"{str(folder)!r} holds no run: give a folder that 'quorum fit' wrote.")
    with reading(path, "quorum fit"):
        return read_object(path)


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file, as `object_of` takes it.

    Raises:
        ValueError: if it is something else.
        OSError: if the file cannot be read.
    """
    return object_of(plain_bytes(path))


def strict_object(content: bytes, path: Path) -> dict[str, Any]:
    """As `object_of`, for the content of the file at `path`.

    Raises:
        QuorumError: if it is anything else.
    """
    try:
        return object_of(content)
    except (ValueError, RecursionError) as error:
        raise QuorumError(f"{str(path)!r} is not a JSON object ({error}): give one.") from error


def object_of(content: bytes) -> dict[str, Any]:
    """The JSON object that a file is, all of it, with finite numbers and no name given twice.

    Two readers of such a file find the same facts, which is not so with repeated names.

    Raises:
        ValueError: if it is anything else.
    """
    facts = json.loads(
        content.decode(),
        parse_constant=_refused_constant,
        parse_float=_finite,
        parse_int=bounded_int,
        object_pairs_hook=_without_repeats,
    )
    return as_object(facts, "it")


def _refused_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text} is too large a number")
    return value


def bounded_int(text: str) -> int:
    """A whole number of a file, if a float can hold it.

    Raises:
        ValueError: if it is larger.
    """
    if len(text) > MOST_DIGITS:
        raise ValueError(f"{text[:9]}... is too large a number")
    return int(text)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    facts = dict(pairs)
    if len(facts) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it has {twice!r} twice")
    return facts


def as_object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} is no JSON object")
    return value


def number(facts: Mapping[str, Any], name: str) -> float:
    """A finite number."""
    return _number(facts[name], name)


def whole(facts: Mapping[str, Any], name: str) -> int:
    """A whole number that is not negative."""
    return _whole(facts[name], name)


def items(facts: Mapping[str, Any], name: str) -> list[Any]:
    return _list(facts[name], name)


def made_of(kind: type[Made], facts: Mapping[str, Any]) -> Made:
    """A dataclass from the facts with the names of its fields, each of the type that it declares.

    Fields are `str`, `int`, `float`, tuples of these, other such dataclasses, or any of them or
    None. A pair of numbers is an interval. Whole numbers are not negative, numbers are finite.

    Raises:
        KeyError: if a fact is missing.
        ValueError: if one is of another type.
    """
    hints = get_type_hints(kind)
    return kind(**{name: _typed(hint, facts, name) for name, hint in hints.items()})


def _typed(kind: Any, facts: Mapping[str, Any], name: str) -> Any:
    if isinstance(kind, UnionType):
        return None if facts.get(name) is None else _typed(get_args(kind)[0], facts, name)
    value = facts[name]
    if is_dataclass(kind):
        return made_of(kind, as_object(value, name))  # type: ignore[arg-type]
    if get_origin(kind) is not tuple:
        return _CHECKED[kind](value, name)
    item, more = get_args(kind)
    values = tuple(_typed(item, {name: part}, name) for part in _list(value, name))
    if more is not Ellipsis and (len(values) != 2 or values[0] > values[1]):
        raise ValueError(f"{name} is {list(values)}, not two numbers in order")
    return values


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} is {value!r}, not a number")
    return float(value)


def _whole(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} is {value!r}, not a whole number")
    return value


def _text(value: Any, name: str) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name} is {value!r}, not a text")
    return value


def _list(value: Any, name: str) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{name} is {value!r}, not a list")
    return value


_CHECKED: Final[dict[Any, Callable[[Any, str], Any]]] = {
    float: _number,
    int: _whole,
    str: _text,
}
