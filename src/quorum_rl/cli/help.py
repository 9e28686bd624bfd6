"""The pages of `--help` and `--help-all`, made of the commands' docstrings."""

import ast
import inspect
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

from quorum_rl.cli.parser import Flag, default_of, flags_of

WIDEST: Final = 100
COLUMN: Final = 26  # where what is said of a flag begins
METAVARS: Final[dict[Any, str]] = {int: "INT", float: "FLOAT", str: "TEXT", Path: "PATH"}
CONFIG: Final = """Settings from the table [{table}] of a TOML file, by the names of these flags.
The command line outranks it."""


def page(command: Any, called: str, *, everything: bool, table: str | None = None) -> str:
    """The help of a command: of the flags that most people use, or of all.

    `table` is where a configuration file has its settings, if it takes one.
    """
    flags = [flag for flag in flags_of(command) if flag.is_word]
    asked = {flag.name: flag for flag in flags if flag.metavar is None}
    names = [name for name in getattr(command, "common", asked) if name in asked]
    if everything:
        names += [name for name in asked if name not in names]
    said = said_of(command)
    lines = [_usage(called, flags), "", *_paragraphs(inspect.getdoc(command) or ""), ""]
    for flag in flags:
        if flag.metavar is not None:
            lines += _entry(flag.metavar, _with_default(flag, said))
    lines += [""] * any(flag.metavar for flag in flags)
    for name in names:
        lines += _entry(spelt(asked[name]), _with_default(asked[name], said))
    if table is not None:
        lines += _entry("--config FILE", CONFIG.format(table=table))
    more = len(asked) - len(names)
    if more:
        lines += ["", f"{more} more flags: {called} --help-all"]
    return "\n".join(lines) + "\n"


def overview(called: str, description: str, commands: Mapping[str, str]) -> str:
    """The help of a group of commands: what each is for."""
    lines = [f"usage: {called} COMMAND ...", "", *_paragraphs(description), ""]
    for name, what in commands.items():
        lines += _entry(name, what, column=16)
    return "\n".join([*lines, "", f"The flags of one: {called} COMMAND --help"]) + "\n"


def summary(command: Any) -> str:
    """The first paragraph of what is said of a command."""
    return " ".join((inspect.getdoc(command) or "").partition("\n\n")[0].split())


def spelt(flag: Flag) -> str:
    """A flag as it is written, with what comes after it."""
    if flag.kind is not bool:
        return f"--{flag.name} {metavar(flag.kind)}"
    return f"--[no-]{flag.name}" if flag.optional else flag.spellings[0]


def metavar(kind: Any) -> str:
    """What stands for a value."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin is tuple:
        return f"{metavar(inner[0])} ..."
    if origin is dict:
        return f"NAME {metavar(inner[1])} ..."
    return "|".join(inner) if origin is Literal else METAVARS[kind]


@cache
def said_of(command: Any) -> dict[str, str]:
    """The text under each field of a command, and of the dataclasses within it."""
    owners = [*reversed(command.__mro__), *(type(default_of(field)) for field in fields(command))]
    texts = (text for owner in owners if is_dataclass(owner) for text in _texts(owner))
    return dict(texts)


def _texts(owner: Any) -> Iterator[tuple[str, str]]:
    """The docstrings under the fields of one class."""
    classes = [node for node in _tree(owner.__module__).body if isinstance(node, ast.ClassDef)]
    body = next((node.body for node in classes if node.name == owner.__name__), [])
    for before, after in pairwise(body):
        match before, after:
            case (
                ast.AnnAssign(target=ast.Name(id=name)),
                ast.Expr(value=ast.Constant(value=str(text))),
            ):
                yield name, " ".join(text.split())


@cache
def _tree(module: str) -> ast.Module:
    try:
        return ast.parse(inspect.getsource(sys.modules[module]))
    except OSError:  # installed without its source
        return ast.parse("")


def _with_default(flag: Flag, said: Mapping[str, str]) -> str:
    text = said.get(flag.field, "")
    if flag.default is MISSING:
        return text if flag.metavar else f"{text} (required)"
    if flag.default in (None, (), {}) or isinstance(flag.default, bool):
        return text
    return f"{text} (default: {flag.default})"


def _usage(called: str, flags: Iterable[Flag]) -> str:
    """The first line: what must be given, then what may."""
    words, needed = [called], []
    for flag in flags:
        if flag.metavar is not None:
            words.append(flag.metavar if flag.default is MISSING else f"[{flag.metavar}]")
        elif flag.default is MISSING:
            needed.append(spelt(flag))
    words += needed
    return textwrap.fill(f"usage: {' '.join(words)} [flags]", _width(), subsequent_indent=" " * 8)


def _paragraphs(text: str) -> list[str]:
    parts = [textwrap.fill(" ".join(part.split()), _width()) for part in text.split("\n\n")]
    return "\n\n".join(parts).splitlines()


def _entry(name: str, text: str, column: int = COLUMN) -> list[str]:
    """A flag and what is said of it, beside it where there is room."""
    start = f"  {name}"
    blank = " " * column
    text = " ".join(text.split())
    beside = len(start) + 2 <= column
    first = start.ljust(column) if beside else blank
    lines = textwrap.wrap(
        text, _width(), initial_indent=first, subsequent_indent=blank, break_on_hyphens=False
    )
    return lines if beside and lines else [start, *lines]


def _width() -> int:
    return min(shutil.get_terminal_size().columns, WIDEST)
