"""What the columns of a table are: their roles, and `columns.toml`, in which an owner says so."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

from quorum_rl.dictionary import Bounds, Column, Dictionary
from quorum_rl.errors import QuorumError, unknown_name
from quorum_rl.files import read_toml
from quorum_rl.logs.schema import Schema, shape_in

OBSERVATION: Final = "observation"
NEXT: Final = "next_observation"
ACTION: Final = "action"
SETTINGS: Final = ("step_orders", "action_labels", "action_bounds")  # beside roles
SAYS: Final = ("unit", "fill", "clip", "shape", "next")  # of one column


@dataclass(frozen=True)
class TableColumns:
    """What the columns are called in the file.

    An observation is a list column, or columns NAME_0, NAME_1, …, or the columns of a tuple of
    names; so is a continuous action. `truncated` and `next_observation` may be absent, if not
    renamed here. With `step_orders` the step is anything that rises within an episode, and not
    0, 1, 2, …
    """

    expert: str = "expert"
    episode: str = "episode"
    step: str = "step"
    observation: str | tuple[str, ...] = OBSERVATION
    action: str | tuple[str, ...] = ACTION
    reward: str = "reward"
    terminated: str = "terminated"
    truncated: str = "truncated"
    next_observation: str | tuple[str, ...] = NEXT
    step_orders: bool = False


DEFAULT_COLUMNS: Final = TableColumns()
ROLES: Final = tuple(field.name for field in fields(TableColumns) if field.name != "step_orders")
# No policy is told whose these are, and nobody sees beforehand what comes of it.
UNSEEN: Final = ("expert", "episode", "action", "reward", "terminated", "truncated")


def columns_named(
    names: Mapping[str, str | Sequence[str]], base: TableColumns = DEFAULT_COLUMNS
) -> TableColumns:
    """The columns of a file, from the names of those that are called otherwise than in `base`.

    Raises:
        QuorumError: for a role that there is not, or several columns of one that has one.
    """
    for name, given in names.items():
        if name not in ROLES:
            raise unknown_name("column of logs", name, ROLES)
        if name not in (OBSERVATION, NEXT, ACTION) and not isinstance(given, str):
            raise QuorumError(
                f"the {name} is {', '.join(given)}: give one column; make one of several first."
            )
    chosen: dict[str, Any] = {
        name: given if isinstance(given, str) else tuple(given) for name, given in names.items()
    }
    return replace(base, **chosen)


def vector_names(name: str | tuple[str, ...], present: Sequence[str]) -> list[str]:
    """The columns that make up a vector: as listed, or NAME_0, NAME_1, … without a gap."""
    if not isinstance(name, str):
        return list(name)
    if name in present:
        return [name]
    numbered = [other for other in present if re.fullmatch(re.escape(name) + r"_\d+", other)]
    return [f"{name}_{index}" for index in range(len(set(numbered)))]


def observed_columns(
    schema: Schema, columns: TableColumns, known: Dictionary | None, size: int | None
) -> tuple[Column, ...]:
    """The columns of an observation with their shapes, as far as names, schema and `size` say.

    Raises:
        QuorumError: if one is not there, is used for something else, or has no known shape.
    """
    for role in ("expert", "episode", "step", "reward", "terminated"):
        schema.check_has(getattr(columns, role))
    done = action_names(schema, columns)
    for name in done:
        schema.check_has(name)
    given = () if known is None else known.columns
    if not given:
        names = vector_names(columns.observation, list(schema.kinds))
        given = tuple(Column(name) for name in names or [f"{columns.observation}_0"])
    roles = {getattr(columns, role): role for role in UNSEEN if role != ACTION}
    roles |= dict.fromkeys(done, ACTION)
    for column in given:
        schema.check_has(column.name)
        if column.name in roles:
            raise QuorumError(
                f"{schema.where}: column {column.name!r} is the {roles[column.name]} and part of "
                "the observation too, in which no policy may see it: take it out of one of the two."
            )
    found = _with_shapes(schema, given, size)
    count = Dictionary(found).size
    if size is not None and count != size:
        counted = "columns" if count == len(found) else "numbers in the columns"
        called = repr(columns.observation) if not (known and known.columns) else "an observation"
        raise QuorumError(
            f"{schema.where} has {count} {counted} for {called}, but observation_size {size} was "
            "declared: correct one of the two."
        )
    return found


def action_names(schema: Schema, columns: TableColumns) -> list[str]:
    """What the columns of an action are called: one, or for each number of a continuous one."""
    found = vector_names(columns.action, list(schema.kinds))
    return found or ([columns.action] if isinstance(columns.action, str) else [])


def action_columns(schema: Schema, columns: TableColumns, bounds: Bounds) -> tuple[Column, ...]:
    """The columns of a continuous action with their shapes.

    Raises:
        QuorumError: if they do not have as many numbers as there are bounds.
    """
    given = [Column(name) for name in action_names(schema, columns)]
    for column in given:
        schema.check_has(column.name)
    found = _with_shapes(schema, given, len(bounds))
    if (count := Dictionary(found).size) != len(bounds):
        raise QuorumError(
            f"{schema.where} has {count} numbers in the columns of an action, but action_bounds of "
            f"{len(bounds)} were declared: correct one of the two."
        )
    return found


def _with_shapes(schema: Schema, columns: Sequence[Column], size: int | None) -> tuple[Column, ...]:
    """Each with the shape that was given, or that its type says, or that is left of `size`."""
    shapes = [column.shape or shape_in(schema.kinds[column.name]) for column in columns]
    unknown = [column.name for column, shape in zip(columns, shapes, strict=True) if shape is None]
    rest = (size or 0) - sum(math.prod(shape) for shape in shapes if shape is not None)
    if unknown and (len(unknown) > 1 or rest < 1):
        raise QuorumError(
            f"{schema.where}: column {unknown[0]!r} holds lists, and its schema says not how long: "
            "declare its shape in the file of --columns, or observation_size (--observations)."
        )
    return tuple(
        replace(column, shape=(rest,) if shape is None else shape)
        for column, shape in zip(columns, shapes, strict=True)
    )


def worth_keeping(columns: Sequence[Column]) -> bool:
    """Whether a dictionary tells more than the names that every table of ours has."""
    plain = all(column == Column(column.name, shape=column.shape) for column in columns)
    return not (
        plain
        and all(re.fullmatch(OBSERVATION + r"(_\d+)?", column.name) for column in columns)
        and all(len(column.shape) < 2 for column in columns)
    )


# --- columns.toml ---


def read_columns(path: Path) -> tuple[TableColumns, Dictionary]:
    """What a `columns.toml` says: the roles of columns, and the dictionary of observations.

    Raises:
        QuorumError: naming the file, the name and what it must be.
    """
    where = f"columns {str(path)!r}"
    said = read_toml(path, "columns")
    observed = said.pop(OBSERVATION, {})
    roles = [role for role in ROLES if role not in (OBSERVATION, NEXT)]
    for name, value in said.items():
        if name not in (*roles, *SETTINGS):
            raise QuorumError(
                f"{where}: {unknown_name('name', name, (*roles, *SETTINGS, OBSERVATION))}"
            )
        several = name == ACTION and isinstance(value, list)
        if several and not all(isinstance(part, str) for part in value):
            raise QuorumError(f"{where}: action is {value!r}: give the names of columns.")
        if name in roles and not (isinstance(value, str) or several):
            raise QuorumError(f"{where}: {name} is {value!r}: give the name of a column.")
        if name in roles and not value and name != "truncated":
            raise QuorumError(
                f"{where} does not say which column is the {name}: write its name there."
            )
    orders, labels = said.get("step_orders", False), said.get("action_labels", [])
    if not isinstance(orders, bool):
        raise QuorumError(f"{where}: step_orders is {orders!r}: give true or false.")
    bounds = said.get("action_bounds", [])
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise QuorumError(f"{where}: action_labels is {labels!r}: give a list of texts.")
    if not isinstance(bounds, list) or not all(
        isinstance(pair, list) and len(pair) == 2 for pair in bounds
    ):
        raise QuorumError(
            f"{where}: action_bounds is {bounds!r}: give two numbers for each number of an action, "
            "such as [[-2, 2]]."
        )
    if not isinstance(observed, dict) or not all(isinstance(v, dict) for v in observed.values()):
        raise QuorumError(
            f"{where}: {OBSERVATION} is no table of columns: give lines such as "
            'glucose = { unit = "mg/dL", fill = 120, clip = [40, 400] }.'
        )
    try:
        seen = tuple(_column(*item) for item in observed.items())
        made = Dictionary(seen, tuple(labels), tuple((low, high) for low, high in bounds))
    except QuorumError as error:
        raise QuorumError(f"{where}: {error}") from error
    names: dict[str, Any] = {role: said[role] for role in roles if said.get(role)}
    names |= {OBSERVATION: made.names} if made.names else {}
    following = [facts["next"] for facts in observed.values() if "next" in facts]
    if following and len(following) < len(observed):
        raise QuorumError(f"{where}: some columns have a next and others have none: give all.")
    names |= {NEXT: tuple(following)} if following else {}
    return columns_named(names, TableColumns(step_orders=orders)), made


def _column(name: str, facts: Mapping[str, Any]) -> Column:
    for key in facts:
        if key not in SAYS:
            raise QuorumError(f"column {name!r}: {unknown_name('fact', key, SAYS)}")
    clip, shape = facts.get("clip"), facts.get("shape", [])
    if clip is not None and not (isinstance(clip, list) and len(clip) == 2):
        raise QuorumError(
            f"column {name!r}: clip is {clip!r}: give two numbers, such as [40, 400]."
        )
    if not isinstance(shape, list):
        raise QuorumError(f"column {name!r}: shape is {shape!r}: give lengths, such as [84, 84].")
    for key in ("unit", "next"):
        if not isinstance(facts.get(key, ""), str):
            raise QuorumError(f"column {name!r}: {key} is {facts[key]!r}: give a text.")
    low, high = (None, None) if clip is None else clip
    unit = facts.get("unit") or None
    return Column(name, unit, facts.get("fill"), low, high, tuple(shape))


def range_in(text: str, what: str) -> tuple[float, float]:
    """The two numbers of a range that is written `40:400`.

    Raises:
        QuorumError: naming what it is the range of.
    """
    try:
        low, high = map(float, text.split(":"))
    except ValueError as error:
        raise QuorumError(f"{what} is {text!r}: give two numbers, such as 40:400.") from error
    return low, high


def with_facts(
    columns: Sequence[Column],
    *,
    fill: Mapping[str, float],
    clip: Mapping[str, str],
    unit: Mapping[str, str],
) -> tuple[Column, ...]:
    """The columns with these facts in place of their own; a range is written `40:400`.

    Raises:
        QuorumError: for a column that there is not, or a range that is none.
    """
    known = {column.name: column for column in columns}
    for name in (*fill, *clip, *unit):
        if name not in known:
            raise unknown_name("column of the observation", name, known)
    for name, text in clip.items():
        low, high = range_in(text, f"the range of column {name!r}")
        # What filled the old range may lie outside the new one.
        known[name] = replace(
            known[name], low=low, high=high, fill=fill.get(name, known[name].fill)
        )
    for name, value in fill.items():
        known[name] = replace(known[name], fill=value)
    for name, text in unit.items():
        known[name] = replace(known[name], unit=text)
    return tuple(known.values())
