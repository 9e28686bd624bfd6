"""The one exception a user of Quorum is meant to read."""

from collections.abc import Iterable
from difflib import get_close_matches


class QuorumError(ValueError):
    """Something the user can mend: the message names the thing and the fix.

    The command prints it as one sentence and exits with status 2.
    """


class TooLittleBudgetError(QuorumError):
    """What was asked for is sound, and the budget is too little for it."""


class Interrupted(Exception):  # noqa: N818 - not an error: the user asked for it
    """The user stopped a command, and the message says how to go on."""


def unknown_name(kind: str, name: str, known: Iterable[str]) -> QuorumError:
    """The error for a name that is not in a list of names, with the nearest one suggested."""
    names = sorted(known)
    by_lower_case = {one.lower(): one for one in names}
    near = get_close_matches(name.lower(), list(by_lower_case), n=1)
    hint = f" (did you mean {by_lower_case[near[0]]}?)" if near else ""
    return QuorumError(f"unknown {kind} {name!r}{hint}: choose one of {', '.join(names)}.")
