"""Commands are dataclasses: their fields are flags, set by words or by a table of a TOML file.

Types of fields: bool, int, float, str, Path, Literal; tuples of one type; dictionaries from names;
any of these or None; and dataclasses, whose fields are flags of the command too.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from quorum_rl.errors import QuorumError

UNIVERSAL: Final = ("--help", "--help-all", "--config")
NONE: Final = "None"  # what stands for nothing, in a file as on the command line
UNIONS: Final = (Union, UnionType)
FILE_ONLY: Final = "set in a configuration file only"
RUNS_CODE: Final = "may name Python code to run, so the command line itself must name it"
IN_WORDS: Final[dict[Any, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
}

LARGEST: Final = 10**300  # beyond it no float is

CommandT = TypeVar("CommandT")


@dataclass(frozen=True)
class Positional:
    """Marks a field that is given by its place; `metavar` is what help calls it."""

    metavar: str


class Flag(NamedTuple):
    """One flag or positional word; `within` is the field of the dataclass that it belongs to."""

    field: str
    kind: Any
    optional: bool  # whether it may be None
    default: Any  # MISSING where it must be given
    marks: Sequence[Any]
    within: str | None

    @property
    def name(self) -> str:
        """Of a field `run_` it is `run`: a command has a method of that name."""
        return self.field.rstrip("_").replace("_", "-")

    @property
    def metavar(self) -> str | None:
        """What a positional word is called."""
        return next((mark.metavar for mark in self.marks if isinstance(mark, Positional)), None)

    @property
    def shown(self) -> str:
        """What a sentence calls it."""
        return self.metavar or f"--{self.name}"

    @property
    def is_word(self) -> bool:
        """Whether the command line can set it."""
        return FILE_ONLY not in self.marks

    @property
    def spellings(self) -> list[str]:
        """The ways to write it that change something."""
        if self.kind is not bool:
            return [self.shown]
        yes, no = [f"--{self.name}"], [f"--no-{self.name}"]
        return yes + no if self.optional else no if self.default is True else yes


def flags_of(command: Any) -> tuple[Flag, ...]:
    """All that can be set about a command, in the order of its fields."""
    return tuple(_flags_of(command))


def _flags_of(
    command: Any, kinds: Mapping[str, Any] | None = None, within: str | None = None
) -> Iterator[Flag]:
    """`kinds` are types to take instead of a field's own: a mark of the dataclass says them."""
    for field in fields(command):
        given = (kinds or {}).get(field.name, field.type)
        kind, *marks = get_args(given) if get_origin(given) is Annotated else [given]
        if kind is NoneType:  # only Python can say it
            continue
        if is_dataclass(kind):
            others = next((mark for mark in marks if isinstance(mark, dict)), {})
            yield from _flags_of(kind, others, field.name)
            continue
        optional = get_origin(kind) in UNIONS and NoneType in get_args(kind)
        if optional:
            kind = Union[tuple(part for part in get_args(kind) if part is not NoneType)]  # noqa: UP007
        yield Flag(field.name, kind, optional, default_of(field), marks, within)


def default_of(field: Field[Any]) -> Any:
    """The default of a dataclass's field, or MISSING."""
    return field.default if field.default_factory is MISSING else field.default_factory()


def parse(
    command: type[CommandT],
    words: Sequence[str],
    table: Mapping[str, Any] | None = None,
    called: str = "",
) -> CommandT:
    """The command that these words make, with values of a `table` where they say nothing.

    Raises:
        QuorumError: one sentence that names the flag, its value and what is wanted.
    """
    read, greedy = _read(command, words)
    values = dict(table or {})
    for name, value in read.items():
        joined = isinstance(value, dict) and name in values
        values[name] = {**values[name], **value} if joined else value
    flags = flags_of(command)
    missing = [flag.shown for flag in flags if flag.default is MISSING and flag.name not in values]
    if missing:
        hint = ""
        if greedy is not None and not missing[0].startswith("-"):
            hint = f" before {greedy}, which takes all words that follow it"
        raise QuorumError(f"{called} needs {' and '.join(missing)}{hint}: see '{called} --help'.")
    groups: defaultdict[str | None, dict[str, Any]] = defaultdict(dict)
    for flag in flags:
        if flag.name in values:
            groups[flag.within][flag.field] = values[flag.name]
    arguments = groups.pop(None, {})
    for field in fields(command):  # type: ignore[arg-type]
        if field.name in groups:
            arguments[field.name] = replace(default_of(field), **groups[field.name])
    return command(**arguments)


def _read(command: Any, words: Sequence[str]) -> tuple[dict[str, Any], str | None]:
    """What the words say, by the names of flags, and the last flag that took several of them."""
    flags = {flag.shown: flag for flag in flags_of(command)}
    places = [flag for flag in flags.values() if flag.metavar is not None]
    values: dict[str, Any] = {}
    greedy = None
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not is_flag(word):
            if not places:
                raise QuorumError(f"{word!r} is one word too many: give its flag, or leave it out.")
            flag = places.pop(0)
            values[flag.name] = _of_words([word], flag)
            continue
        name, equals, attached = word.partition("=")
        flag, value = _found(flags, name)
        if flag.kind is bool:
            if equals:
                raise QuorumError(f"{name} takes no value: leave out {attached!r}.")
        else:
            several = get_origin(flag.kind) in (tuple, dict)
            taken = [attached] if equals else []
            while rest and not is_flag(rest[0]) and (several or not taken):
                taken.append(rest.pop(0))
            greedy = name if several else greedy
            value = _of_words(taken, flag)
        values[flag.name] = value
    return values, greedy


def is_flag(word: str) -> bool:
    """Whether a word names a flag; -3, -2:2 and - are values."""
    if not word.startswith("-") or word == "-":
        return False
    try:
        float(word.partition(":")[0])
    except ValueError:
        return True
    return False


def _found(flags: Mapping[str, Flag], name: str) -> tuple[Flag, bool]:
    """The flag of that name, and whether it is meant and not its contrary.

    Raises:
        QuorumError: if there is none, with the nearest.
    """
    if name in flags and flags[name].is_word:
        return flags[name], True
    contrary = flags.get("--" + name.removeprefix("--no-"))
    if name.startswith("--no-") and contrary is not None and contrary.kind is bool:
        return contrary, False
    if name in flags:
        raise QuorumError(f"{name} is set in a configuration file only: see --config.")
    if name == "--sites":
        raise QuorumError("logs at sites of their own are for 'quorum site fit': see its --help.")
    near = get_close_matches(name, [*filter(is_flag, flags), *UNIVERSAL], n=1)
    raise QuorumError(
        f"unknown flag {name}"
        + (f" (did you mean {near[0]}?)." if near else ": see --help-all for those there are.")
    )


def _of_words(words: Sequence[str], flag: Flag) -> Any:
    """The value that these words after a flag mean."""
    origin, kinds = get_origin(flag.kind), get_args(flag.kind)
    if flag.optional and list(words) == [NONE]:
        return None

    def value(word: str, kind: Any) -> Any:
        try:
            return as_kind(word, kind, is_word=True)
        except (ValueError, TypeError):
            raise QuorumError(f"{flag.shown} is {word!r}: give {in_words(kind)}.") from None

    if origin is tuple:
        return tuple(value(word, kinds[0]) for word in words)
    if origin is dict:
        if words and all("=" in word for word in words):
            words = [part for word in words for part in word.split("=", 1)]
        if len(words) % 2 or not words:
            said = " ".join(words) or "nothing"
            raise QuorumError(
                f"{flag.shown} has {said!r}: give pairs, each a name and {in_words(kinds[1])}."
            )
        pairs = zip(words[::2], words[1::2], strict=True)
        return {name: value(word, kinds[1]) for name, word in pairs}
    if not words:
        raise QuorumError(f"{flag.shown} needs a value: give {in_words(flag.kind)}.")
    return value(words[0], flag.kind)


def as_kind(value: Any, kind: Any, *, is_word: bool = False) -> Any:
    """A word, or a value of a TOML file, as a field's type has it.

    Raises:
        TypeError, ValueError: if it is no such thing.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        if value in inner:
            return value
    elif origin in UNIONS:
        for part in inner:
            with suppress(TypeError):
                return as_kind(value, part)
    elif origin is tuple and isinstance(value, list):
        return tuple(as_kind(part, inner[0]) for part in value)
    elif origin is dict and isinstance(value, dict):
        return {name: as_kind(part, inner[1]) for name, part in value.items()}
    elif kind is float and type(value) is int and abs(value) > LARGEST:
        raise TypeError
    elif is_word or (kind, type(value)) in ((Path, str), (float, int)):
        return kind(value)
    elif type(value) is kind:
        return value
    raise TypeError


def in_words(kind: Any) -> str:
    """What a value must be, for a sentence."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in UNIONS:
        return " or ".join(in_words(part) for part in inner)
    if origin is Literal:
        return "one of " + ", ".join(map(str, inner))
    if origin is tuple:
        return f"a list, each {in_words(inner[0])}"
    if origin is dict:
        return f"a table of names, each {in_words(inner[1])}"
    return IN_WORDS.get(kind, str(kind))
