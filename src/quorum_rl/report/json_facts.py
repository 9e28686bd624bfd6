"""Reading the files of a run folder, which somebody may have changed or cut short."""

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from quorum_rl.errors import QuorumError


@contextmanager
def reading(path: Path, maker: str) -> Iterator[None]:
    """Turns whatever goes wrong while a file is read into one sentence that names it.

    `maker` is the command that writes such a file.
    """
    try:
        yield
    except OSError as error:
        raise QuorumError(f"{str(path)!r} cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
        reason = " ".join(reason.split()).rstrip(".")
        raise QuorumError(
            f"{str(path)!r} is damaged ({reason}): make it again with '{maker}'."
        ) from error


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file.

    Raises:
        ValueError: if it is something else.
        OSError: if the file cannot be read.
    """
    return as_object(json.loads(path.read_text(encoding="utf-8")), "it")


def as_object(value: Any, name: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{name} is no JSON object")
    return value


def number(facts: dict[str, Any], name: str) -> float:
    """A finite number."""
    return _number(facts[name], name)


def number_or_none(facts: dict[str, Any], name: str) -> float | None:
    value = facts.get(name)
    return None if value is None else _number(value, name)


def whole(facts: dict[str, Any], name: str) -> int:
    """A whole number that is not negative."""
    value = facts[name]
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise ValueError(f"{name} is {value!r}, not a whole number")
    return value


def whole_or_none(facts: dict[str, Any], name: str) -> int | None:
    return None if facts.get(name) is None else whole(facts, name)


def text(facts: dict[str, Any], name: str) -> str:
    value = facts[name]
    if not isinstance(value, str):
        raise ValueError(f"{name} is {value!r}, not a text")
    return value


def text_or_none(facts: dict[str, Any], name: str) -> str | None:
    return None if facts.get(name) is None else text(facts, name)


def items(facts: dict[str, Any], name: str) -> list[Any]:
    value = facts[name]
    if not isinstance(value, list):
        raise ValueError(f"{name} is {value!r}, not a list")
    return value


def interval_or_none(facts: dict[str, Any], name: str) -> tuple[float, float] | None:
    """Two numbers in order."""
    if facts.get(name) is None:
        return None
    values = [_number(value, name) for value in items(facts, name)]
    if len(values) != 2 or values[0] > values[1]:
        raise ValueError(f"{name} is {values}, not two numbers in order")
    return values[0], values[1]


def _number(value: Any, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise ValueError(f"{name} is {value!r}, not a number")
    return float(value)
