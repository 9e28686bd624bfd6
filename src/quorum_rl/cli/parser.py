"""Commands are dataclasses: their fields are flags, set by words or by a table of a TOML file.

Types of fields: bool, int, float, str, Path, Literal; tuples of one type; dictionaries from names;
any of these or None; and dataclasses, whose fields are flags of the command too.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from difflib import get_close_matches
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

from quorum_rl.errors import QuorumError

UNIVERSAL: Final = ("--help", "--help-all", "--config")
NONE: Final = "None"  # what stands for nothing, in a file as on the command line
WORDS: Final[dict[Any, str]] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
}

CommandT = TypeVar("CommandT")


@dataclass(frozen=True)
class Positional:
    """Marks a field that is given by its place; `metavar` is what help calls it."""

    metavar: str


@dataclass(frozen=True)
class Named:
    """Marks a field whose flag has another name."""

    name: str


@dataclass(frozen=True, eq=False)
class Described:
    """Marks a dataclass from elsewhere: what help says of its fields, and types to take instead."""

    words: Mapping[str, str]
    kinds: Mapping[str, Any]


FILE_ONLY: Final = "set in a configuration file only"
RUNS_CODE: Final = "may name Python code to run, so the command line itself must name it"


class Flag(NamedTuple):
    """One flag or positional word; `within` is the field of the dataclass that it belongs to."""

    field: str
    name: str
    kind: Any
    optional: bool  # whether it may be None
    default: Any  # MISSING where it must be given
    metavar: str | None  # of a positional word
    marks: tuple[Any, ...]
    within: str | None = None

    @property
    def shown(self) -> str:
        """What a sentence calls it."""
        return self.metavar or f"--{self.name}"

    @property
    def is_word(self) -> bool:
        """Whether the command line can set it."""
        return FILE_ONLY not in self.marks


def flags_of(command: Any) -> tuple[Flag, ...]:
    """All that can be set about a command, in the order of its fields."""
    return tuple(_flags_of(command, {}))


def _flags_of(command: Any, kinds: Mapping[str, Any]) -> Iterator[Flag]:
    for field in fields(command):
        kind, marks = _apart(kinds.get(field.name, field.type))
        if kind is NoneType:  # only Python can say it
            continue
        if is_dataclass(kind):
            described = next((mark for mark in marks if isinstance(mark, Described)), None)
            for inner in _flags_of(kind, {} if described is None else described.kinds):
                yield inner._replace(within=field.name)
            continue
        names = [mark.name for mark in marks if isinstance(mark, Named)]
        metavars = [mark.metavar for mark in marks if isinstance(mark, Positional)]
        bare, optional = _without_none(kind)
        yield Flag(
            field=field.name,
            name=(names or [field.name])[0].replace("_", "-"),
            kind=bare,
            optional=optional,
            default=default_of(field),
            metavar=metavars[0] if metavars else None,
            marks=marks,
        )


def default_of(field: Field[Any]) -> Any:
    """The default of a dataclass's field, or MISSING."""
    return field.default if field.default_factory is MISSING else field.default_factory()


def parse(
    command: type[CommandT],
    words: Sequence[str],
    table: Mapping[tuple[str | None, str], Any] | None = None,
    called: str = "",
) -> CommandT:
    """The command that these words make, with values of a `table` where they say nothing.

    Raises:
        QuorumError: one sentence that names the flag, its value and what is wanted.
    """
    read, greedy = _read(command, words)
    values = dict(table or {})
    for key, value in read.items():
        joined = isinstance(value, dict) and key in values
        values[key] = {**values[key], **value} if joined else value
    missing = [
        flag.shown
        for flag in flags_of(command)
        if flag.default is MISSING and (flag.within, flag.field) not in values
    ]
    if missing:
        hint = ""
        if greedy is not None and not missing[0].startswith("-"):
            hint = f" before {greedy}, which takes all words that follow it"
        raise QuorumError(f"{called} needs {' and '.join(missing)}{hint}: see '{called} --help'.")
    return _made(command, values)


def _made(command: type[CommandT], values: Mapping[tuple[str | None, str], Any]) -> CommandT:
    arguments: dict[str, Any] = {
        field: value for (within, field), value in values.items() if within is None
    }
    for field in fields(command):  # type: ignore[arg-type]
        kind, _ = _apart(field.type)
        if is_dataclass(kind):
            inner = {
                name: value for (within, name), value in values.items() if within == field.name
            }
            arguments[field.name] = kind(**inner)  # type: ignore[operator]
    return command(**arguments)


def _read(
    command: Any, words: Sequence[str]
) -> tuple[dict[tuple[str | None, str], Any], str | None]:
    """What the words say, and the last flag that took several of them."""
    flags = {f"--{flag.name}": flag for flag in flags_of(command) if flag.metavar is None}
    places = [flag for flag in flags_of(command) if flag.metavar is not None]
    values: dict[tuple[str | None, str], Any] = {}
    greedy = None
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not is_flag(word):
            if not places:
                raise QuorumError(f"{word!r} is one word too many: give its flag, or leave it out.")
            flag = places.pop(0)
            values[flag.within, flag.field] = converted(word, flag)
            continue
        name, equals, attached = word.partition("=")
        flag, value = _found(command, flags, name)
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
        values[flag.within, flag.field] = value
    return values, greedy


def is_flag(word: str) -> bool:
    """Whether a word names a flag; -3 and - are values."""
    if not word.startswith("-") or word == "-":
        return False
    try:
        float(word)
    except ValueError:
        return True
    return False


def _found(command: Any, flags: Mapping[str, Flag], name: str) -> tuple[Flag, bool]:
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
    renamed = getattr(command, "renamed", {}).get(name.removeprefix("--"))
    if renamed is not None:
        raise QuorumError(f"unknown flag {name}: it is called --{renamed} now.")
    near = get_close_matches(name, [*flags, *UNIVERSAL], n=1)
    raise QuorumError(
        f"unknown flag {name}"
        + (f" (did you mean {near[0]}?)." if near else ": see --help-all for those there are.")
    )


def _of_words(words: Sequence[str], flag: Flag) -> Any:
    """The value that these words after a flag mean."""
    origin, kinds = get_origin(flag.kind), get_args(flag.kind)
    if flag.optional and list(words) == [NONE]:
        return None
    if origin is tuple:
        return tuple(converted(word, flag, kinds[0]) for word in words)
    if origin is dict:
        if len(words) % 2 or not words:
            said = " ".join(words) or "nothing"
            raise QuorumError(
                f"{flag.shown} has {said!r}: give pairs, each a name and {in_words(kinds[1])}."
            )
        pairs = zip(words[::2], words[1::2], strict=True)
        return {name: converted(word, flag, kinds[1]) for name, word in pairs}
    if not words:
        raise QuorumError(f"{flag.shown} needs a value: give {in_words(flag.kind)}.")
    return converted(words[0], flag)


def converted(word: str, flag: Flag, kind: Any = None) -> Any:
    """One word as a value of a flag, or of the kind of which the flag has several."""
    kind = flag.kind if kind is None else kind
    if flag.optional and word == NONE:
        return None
    try:
        if get_origin(kind) is Literal:
            return as_kind(word, kind)
        return kind(word)
    except (ValueError, TypeError):
        raise QuorumError(f"{flag.shown} is {word!r}: give {in_words(kind)}.") from None


def as_kind(value: Any, kind: Any) -> Any:
    """A value of a TOML file as a field's type has it.

    Raises:
        TypeError: if it is of another type.
    """
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        spelt = value.replace(" ", "-") if isinstance(value, str) else value  # as once in files
        if spelt in inner:
            return spelt
    elif origin in (Union, UnionType):
        return _as_one_of(value, inner)
    elif origin is tuple and isinstance(value, list):
        return tuple(as_kind(part, inner[0]) for part in value)
    elif origin is dict and isinstance(value, dict):
        return {name: as_kind(part, inner[1]) for name, part in value.items()}
    elif kind is Path and isinstance(value, str):
        return Path(value)
    elif kind is float and type(value) in (int, float):
        return float(value)
    elif type(value) is kind:
        return value
    raise TypeError


def _as_one_of(value: Any, kinds: Sequence[Any]) -> Any:
    for kind in kinds:
        try:
            return as_kind(value, kind)
        except TypeError:
            continue
    raise TypeError


def in_words(kind: Any) -> str:
    """What a value must be, for a sentence."""
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return " or ".join(in_words(part) for part in inner if part is not NoneType)
    if origin is Literal:
        return "one of " + ", ".join(map(str, inner))
    if origin is tuple:
        return f"a list, each {in_words(inner[0])}"
    if origin is dict:
        return f"a table of names, each {in_words(inner[1])}"
    return WORDS.get(kind, str(kind))


def _apart(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """A type, and the marks that are on it."""
    if get_origin(kind) is Annotated:
        bare, *marks = get_args(kind)
        return bare, tuple(marks)
    return kind, ()


def _without_none(kind: Any) -> tuple[Any, bool]:
    """A type without None, and whether it allowed that."""
    inner = get_args(kind)
    if get_origin(kind) not in (Union, UnionType) or NoneType not in inner:
        return kind, False
    return Union[tuple(part for part in inner if part is not NoneType)], True  # noqa: UP007
