"""`--config`: the words of a command from a TOML file, and back into one.

A file has a table for each command, such as `[fit]` or `[experts.train]`, with the names of its
flags (dashes or underscores) and of its positional words. Flags on the command line outrank it.
"""

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from quorum_rl.cli.parser import NONE, RUNS_CODE, as_kind, flags_of, in_words
from quorum_rl.errors import Interrupted, QuorumError, unknown_name
from quorum_rl.files import read_toml, toml_text

FLAG: Final = "--config"


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
    found: Any = read_toml(path, FLAG)
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


def values_of(command: Any, table: Mapping[str, Any], where: str) -> dict[str, Any]:
    """What a table sets about a command, by the names of its flags.

    Raises:
        QuorumError: for a name that the command does not have, or a value of another type.
    """
    known = {flag.name: flag for flag in flags_of(command)}
    values = {}
    for key, value in table.items():
        name = key.replace("_", "-")
        flag = known.get(name)
        if flag is None:
            raise QuorumError(f"{where}: {unknown_name('setting', name, known)}")
        try:
            is_none = flag.optional and value == NONE
            values[flag.name] = None if is_none else as_kind(value, flag.kind)
        except TypeError:
            raise QuorumError(
                f"{where}: {key} is {value!r}, and must be {in_words(flag.kind)}: correct it."
            ) from None
    return values


def check_no_code(values: Any, words: Sequence[str]) -> None:
    """Refuse Python code to run that a configuration names and the command line does not.

    Raises:
        QuorumError: naming what to add.
    """
    for name in _code_to_run(values):
        if not any(name == word or word.endswith(f"={name}") for word in words):
            raise QuorumError(
                f"the configuration names {name!r}, Python code to run: if you trust it, name it "
                "on the command line too."
            )


@contextmanager
def going_on(command: Sequence[str], values: Any) -> Iterator[None]:
    """Whoever interrupts this block is told which words go on with a command, whose `as_toml` is
    in its folder.

    Raises:
        Interrupted: with these words.
    """
    try:
        yield
    except Interrupted as stop:
        file, code = values.folder / "config.toml", _code_to_run(values, flags=True)
        again = shlex.join(["quorum", *command, FLAG, str(file), *code])
        raise Interrupted(f"{stop} Go on with: {again}") from None


def _code_to_run(values: Any, *, flags: bool = False) -> list[str]:
    """What a command names as `file.py:NAME` or `module:NAME`, with its flag before it or alone."""
    found = []
    for flag in flags_of(type(values)):
        value = getattr(values, flag.field, None)
        if RUNS_CODE in flag.marks and isinstance(value, str) and ":" in value:
            found += [f"--{flag.name}", value] if flags and flag.metavar is None else [value]
    return found


def as_toml(command: Sequence[str], values: Any) -> str:
    """A command with all that is set about it, as the table that `values_of` reads."""
    lines = [f"[{'.'.join(command)}]"]
    for flag in flags_of(type(values)):
        holder = values if flag.within is None else getattr(values, flag.within)
        value = getattr(holder, flag.field)
        if value is not None or flag.default is not None:
            lines.append(f"{flag.name} = {_written(value)}")
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
            items = (f"{_written(str(name))} = {_written(part)}" for name, part in value.items())
            return f"{{{', '.join(items)}}}"
        case list() | tuple():
            return f"[{', '.join(map(_written, value))}]"
        case _:
            return toml_text(str(value))
