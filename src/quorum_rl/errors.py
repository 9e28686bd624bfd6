"""The one exception a user of Quorum is meant to read."""

import sys
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from importlib.util import find_spec
from numbers import Integral, Real
from typing import Any, Final, NamedTuple


class QuorumError(ValueError):
    """Something the user can mend: the message names the thing and the fix.

    The command prints it as one sentence and exits with status 2.
    """


class TooLittleBudgetError(QuorumError):
    """What was asked for is sound, and the budget is too little for it."""


class MissingPackageError(QuorumError):
    """What was asked for needs a package that Quorum can do without otherwise."""


class Interrupted(Exception):  # noqa: N818 - not an error: the user asked for it
    """The user stopped a command, and the message says how to go on."""


def require_packages(what: str, extra: str, *packages: str) -> None:
    """Refuse what needs these packages, which come with an extra, where one is not installed.

    Raises:
        MissingPackageError: one sentence that says how to install them.
    """
    lacking = [package for package in packages if find_spec(package) is None]
    if lacking:
        raise MissingPackageError(
            f"{what} needs packages that are not installed ({', '.join(lacking)}): "
            f"pip install 'quorum-rl[{extra}]'."
        )


def unknown_name(kind: str, name: str, known: Iterable[str]) -> QuorumError:
    """The error for a name that is not in a list of names, with the nearest one suggested."""
    names = sorted(known)
    by_lower_case = {known_name.lower(): known_name for known_name in names}
    near = get_close_matches(name.lower(), list(by_lower_case), n=1)
    hint = f" (did you mean {by_lower_case[near[0]]}?)" if near else ""
    return QuorumError(f"unknown {kind} {name!r}{hint}: choose one of {', '.join(names)}.")


class Rule(NamedTuple):
    """What a value must be: in words that follow "give", and as a test."""

    words: str
    holds: Callable[[Any], bool]


def _number(value: Any) -> bool:
    # Whole numbers beyond all floats are none: `isfinite` itself fails for them.
    real = not isinstance(value, bool) and isinstance(value, Real)
    return real and abs(value) <= sys.float_info.max


POSITIVE: Final = Rule("a positive number", lambda value: _number(value) and value > 0)
FRACTION: Final = Rule("a number between 0 and 1", lambda value: _number(value) and 0 < value < 1)
SHARE: Final = Rule(
    "a number above 0 and at most 1", lambda value: _number(value) and 0 < value <= 1
)
PERSON: Final = Rule(
    "a name of at most 100 characters in one line",
    lambda name: (
        isinstance(name, str)
        and 0 < len(name) <= 100
        and name.isprintable()
        and name == name.strip()
    ),
)
SEED: Final = Rule(
    f"a whole number from 0 to {2**32 - 1}",
    lambda seed: isinstance(seed, Integral) and 0 <= int(seed) < 2**32,
)


def at_least(least: int) -> Rule:
    """A whole number, `least` or more."""
    return Rule(
        f"at least {least}",
        lambda value: (
            not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= least
        ),
    )


def require(name: str, value: Any, rule: Rule) -> None:
    """Refuse a value that breaks a rule.

    Raises:
        QuorumError: one sentence with the name, the value and the rule.
    """
    if not rule.holds(value):
        raise QuorumError(f"{name} is {value!r}: give {rule.words}.")
