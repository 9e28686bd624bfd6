"""A `columns.toml` for the owner of a table to correct.

It is made from the table's schema alone: what is in its rows is private.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from quorum_rl.files import toml_text
from quorum_rl.logs.columns import NEXT
from quorum_rl.logs.schema import (
    Schema,
    is_date,
    is_flag,
    is_list,
    is_number,
    is_text,
    is_time,
    is_whole,
)

HEAD: Final = """\
# What the columns of {name} are, from its schema alone: no row was read.
# Correct it, then: quorum demos import TABLE --columns FILE --horizon ... --out ...

"""
AFTER: Final = {
    "step": "step_orders = false  # true: it sorts the rows and does not count them, as a time\n",
    "action": "action_labels = []  # of actions in words: all that there are, in their order\n"
    "# action_bounds = [[0, 10]]  # instead, of continuous ones: the bounds of each number\n",
}
OBSERVED: Final = """
# The numbers that are seen before acting, in this order: take out the others. Of each you may say
#     { unit = "mg/dL", fill = 120, clip = [40, 400], shape = [84, 84], next = "glucose_after" }
# in what it is measured, what stands for a missing value, the range that it is cut to, the shape of
# lists whose type does not say it, and the column that has the same after the action.
[observation]
"""


def sketch_columns(schema: Schema, name: str) -> str:
    """A `columns.toml` to correct, from the schema of the table called `name`."""
    head = HEAD.format(name=_one_line(name))
    return head + "".join((*_role_lines(schema.kinds), OBSERVED, *_column_lines(schema.kinds)))


def _role_lines(kinds: Mapping[str, Any]) -> Iterator[str]:
    """A line for each role: the column of that name, or else all of a type that fits."""
    for role, fits in ROLES.items():
        found = role if role in kinds else ""
        fitting = [_one_line(name) for name, kind in kinds.items() if kind is None or fits(kind)]
        hint = "  # if there is one, " if role == "truncated" else "  # "
        hint += f"one of: {', '.join(fitting) or 'no column has a type that fits'}"
        yield f"{role} = {toml_text(found)}{'' if found else hint}\n" + AFTER.get(role, "")


def _column_lines(kinds: Mapping[str, Any]) -> Iterator[str]:
    """A line for each other column, behind a # unless it may well be part of the observation."""
    following = {name: _following(name, kinds) for name in kinds}
    after = {name for name in kinds if re.fullmatch(NEXT + r"(_\d+)?", name)}
    after |= set(following.values())
    for name, kind in kinds.items():
        if name in ROLES or name in after:
            continue
        facts = f"{{ next = {toml_text(following[name])} }}" if following[name] else "{}"
        typed = "" if kind is None else f"  # {_one_line(str(kind))}"
        seen = kind is None or is_list(kind) or (is_number(kind) and not is_flag(kind))
        yield f"{'' if seen else '# '}{_key(name)} = {facts}{typed}\n"


def _following(name: str, kinds: Mapping[str, Any]) -> str:
    """The column that by its name has the same after the action; empty if there is none."""
    usual = (f"{name}_after", f"{name}_next", f"next_{name}")
    return next((other for other in usual if other in kinds), "")


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_text(name)


def _one_line(text: str) -> str:
    """For a comment, which nothing may end."""
    return text if text.isprintable() else toml_text(text)


def _is_name(kind: Any) -> bool:
    return is_text(kind) or is_whole(kind)


def _may_be_episode(kind: Any) -> bool:
    return _is_name(kind) or is_date(kind)


def _may_order(kind: Any) -> bool:
    return is_time(kind) or is_whole(kind)


def _may_be_action(kind: Any) -> bool:
    return _is_name(kind) or is_flag(kind)


def _may_be_flag(kind: Any) -> bool:
    return is_flag(kind) or is_whole(kind)


ROLES: Final[dict[str, Callable[[Any], bool]]] = {
    "expert": _is_name,
    "episode": _may_be_episode,
    "step": _may_order,
    "action": _may_be_action,
    "reward": is_number,
    "terminated": _may_be_flag,
    "truncated": _may_be_flag,
}
