"""`--config`: the words of a command from a TOML file, and back into one.

A file has a table for each command, such as `[fit]` or `[experts.train]`, with the names of its
flags (dashes or underscores) and of its positional words. Flags on the command line outrank it.
"""

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import tyro

from quorum_rl.errors import QuorumError, unknown_name

FLAG: Final = "--config"
NONE: Final = "None"  # what stands for nothing, in a file as on the command line
WORDS: Final[dict[Any, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
}

CommandT = TypeVar("CommandT")


def without_config(words: Sequence[str]) -> tuple[list[str], Path | None]:
    """The words of a command line without `--config FILE`, and that file.

    Raises:
        QuorumError: if no file, or a second one, is named.
    """
    kept, files = list[str](), list[str]()
    rest = iter(words)
    for word in rest:
        if word == FLAG:
            files.append(next(rest, ""))
        elif word.startswith(f"{FLAG}="):
            files.append(word.removeprefix(f"{FLAG}="))
        else:
            kept.append(word)
    if len(files) > 1 or "" in files:
        raise QuorumError(f"{FLAG} names {len(files)} files and needs one: give one TOML file.")
    return kept, Path(files[0]) if files else None


def read_table(
    path: Path, command: Sequence[str], known: Sequence[Iterable[str]]
) -> dict[str, Any]:
    """The table of one command in a TOML file.

    `known` are the names that tables may have beside each word of the command.

    Raises:
        QuorumError: if the file cannot be read, has no such table, or names a command that there
            is not.
    """
    try:
        found: Any = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise QuorumError(f"{FLAG} {str(path)!r} cannot be read: {error.strerror}.") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise QuorumError(f"{FLAG} {str(path)!r} is no valid TOML: {error}.") from error
    for word, names in zip(command, known, strict=True):
        for name, within in found.items():
            if name not in names:
                raise QuorumError(f"{FLAG} {str(path)!r}: {unknown_name('table', name, names)}")
            if not isinstance(within, dict):
                raise QuorumError(f"{FLAG} {str(path)!r}: {name!r} is a value, not a table.")
        if word not in found:
            raise QuorumError(
                f"{FLAG} {str(path)!r} has no table [{'.'.join(command)}]: add one, or leave the "
                "file out."
            )
        found = found[word]
    table: dict[str, Any] = found
    return table


class Setting(NamedTuple):
    """One flag or positional word of a command; `within` is the field of a group of flags."""

    name: str
    kind: Any
    default: Any
    within: str | None


def settings_of(command: Any) -> Iterator[Setting]:
    """What can be set about a command (a dataclass); groups of flags are taken apart."""
    hints = get_type_hints(command, include_extras=True)
    for field in fields(command):
        kind = _bare(hints[field.name])
        if is_dataclass(kind):
            for inner in settings_of(kind):
                yield inner._replace(within=field.name)
        else:
            yield Setting(field.name, kind, _default(field), None)


def with_defaults(command: type[CommandT], table: Mapping[str, Any], where: str) -> CommandT:
    """A command whose defaults come from a file; what neither has is left open for tyro.

    Raises:
        QuorumError: for a name that the command does not have, or a value of another type.
    """
    known = {setting.name: setting for setting in settings_of(command)}
    given: dict[str | None, dict[str, Any]] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        if name not in known:
            shown = [one.replace("_", "-") for one in known]
            raise QuorumError(f"{where}: {unknown_name('setting', key.replace('_', '-'), shown)}")
        setting = known[name]
        given.setdefault(setting.within, {})[name] = _converted(value, setting.kind, where, key)
    made: dict[str, Any] = {}
    for field in fields(command):  # type: ignore[arg-type]
        if field.name in given.get(None, {}):
            made[field.name] = given[None][field.name]
        elif field.name in given:
            made[field.name] = replace(_default(field), **given[field.name])
        else:
            made[field.name] = _default(field)
    return command(**made)


def as_toml(command: Sequence[str], values: Any) -> str:
    """A command with all that is set about it, as the table that `with_defaults` reads."""
    lines = [f"[{'.'.join(command)}]"]
    for setting in settings_of(type(values)):
        holder = values if setting.within is None else getattr(values, setting.within)
        value = getattr(holder, setting.name)
        if value is None and setting.default is None:
            continue
        lines.append(f"{setting.name.replace('_', '-')} = {_written(value)}")
    return "\n".join(lines) + "\n"


def _written(value: Any) -> str:
    match value:
        case None:
            return _written(NONE)
        case bool():
            return str(value).lower()
        case int() | float():
            return repr(value)
        case Mapping():
            items = (f"{_written(str(name))} = {_written(one)}" for name, one in value.items())
            return f"{{{', '.join(items)}}}"
        case list() | tuple():
            return f"[{', '.join(map(_written, value))}]"
        case _:
            # JSON's texts are TOML's, but for one character.
            return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _bare(kind: Any) -> Any:
    """A type without what is said to tyro about it."""
    return _bare(get_args(kind)[0]) if get_origin(kind) is Annotated else kind


def _default(field: Field[Any]) -> Any:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return tyro.MISSING if field.default is MISSING else field.default


def _converted(value: Any, kind: Any, where: str, key: str) -> Any:
    """A value of a file as the command takes it.

    Raises:
        QuorumError: if it is of another type.
    """
    try:
        return _as_kind(value, kind)
    except TypeError:
        raise QuorumError(
            f"{where}: {key} is {value!r}, and must be {_in_words(kind)}: correct it."
        ) from None


def _as_kind(value: Any, kind: Any) -> Any:
    """Raises TypeError if `value` is not of that kind."""
    origin, inner = get_origin(kind), [_bare(one) for one in get_args(kind)]
    if origin in (Union, UnionType):
        return _as_one_of(value, inner)
    if origin is Literal and value in inner:
        return value
    if origin is tuple and isinstance(value, list):
        return tuple(_as_kind(one, inner[0]) for one in value)
    if origin is dict and isinstance(value, dict):
        return {name: _as_kind(one, inner[1]) for name, one in value.items()}
    if kind is Path and isinstance(value, str):
        return Path(value)
    if kind is float and type(value) in (int, float):
        return float(value)
    if origin is None and type(value) is kind:
        return value
    raise TypeError


def _as_one_of(value: Any, kinds: Sequence[Any]) -> Any:
    if NoneType in kinds and value == NONE:
        return None
    for kind in kinds:
        try:
            return _as_kind(value, kind)
        except TypeError:
            continue
    raise TypeError


def _in_words(kind: Any) -> str:
    origin, inner = get_origin(kind), [_bare(one) for one in get_args(kind)]
    if origin in (Union, UnionType):
        return " or ".join(_in_words(one) for one in inner if one is not NoneType)
    if origin is Literal:
        return "one of " + ", ".join(map(str, inner))
    if origin is tuple:
        return f"a list, each {_in_words(inner[0])}"
    if origin is dict:
        return f"a table of names, each {_in_words(inner[1])}"
    return WORDS.get(kind, str(kind))
