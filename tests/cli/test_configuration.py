"""`--config`: settings from a TOML file, outranked by flags, and written back into one."""

import json
import tomllib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import tyro
from hypothesis import given, settings, strategies as st

from quorum_rl.cli.configuration import as_toml, with_defaults
from quorum_rl.cli.main import COMMANDS, _loaded, command_of, main, subcommands

Refused = Callable[..., str]

PLAN = """
[plan]
experts = 3000
actions = 2
horizon = 200
p_min = 0.02
epsilon = 7
delta = 3e-4
iterations = 25
mode = "paper"
"""


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "quorum.toml"
    path.write_text(text)
    return str(path)


def test_a_command_takes_its_table_and_flags_outrank_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, PLAN)
    main(["plan", "--config", file, "--epsilon", "7.5", "--json"])
    from_file = json.loads(capsys.readouterr().out)
    main(["plan", "--experts", "3000", "--actions", "2", "--horizon", "200", "--p-min", "0.02",
          "--epsilon", "7.5", "--delta", "3e-4", "--iterations", "25", "--mode", "paper",
          "--json"])  # fmt: skip
    assert from_file == json.loads(capsys.readouterr().out)


def test_positional_words_and_tables_of_names_may_come_from_the_file_and_be_added_to(
    tmp_path: Path,
) -> None:
    file = written(
        tmp_path,
        '[worlds.draw]\nworld = "CartPole"\nout = "a.png"\nparam = {gravity = 9, time_limit = 5}\n',
    )
    command: Any = command_of(
        ["worlds", "draw", f"--config={file}", "Acrobot", "--param", "gravity", "8"]
    )
    assert command.world == "Acrobot"
    assert command.out == Path("a.png")
    assert command.param == {"gravity": 8, "time_limit": 5}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[plan]\nepsilom = 3", "did you mean epsilon?"),
        ("[plan]\nhorizont = 3", "unknown setting 'horizont' (did you mean horizon?)"),
        ("[plann]\nepsilon = 3", "unknown table 'plann' (did you mean plan?)"),
        ("[fit]\nepsilon = 3", "has no table [plan]"),
        ("plan = 3", "'plan' is a value, not a table"),
        ('[plan]\nepsilon = "much"', "epsilon is 'much', and must be a number"),
        ("[plan]\nexperts = 2.5", "experts is 2.5, and must be a whole number"),
        ("[plan]\njson = 1", "json is 1, and must be true or false"),
        ("[plan]\nout = 1", "out is 1, and must be a path"),
        ('[plan]\nmode = "loose"', "mode is 'loose', and must be one of tight, paper"),
        ("[plan]\nepsilon = ", "is no valid TOML"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_in_one_sentence(
    text: str, says: str, tmp_path: Path, refused: Refused
) -> None:
    file = written(tmp_path, text)
    said = refused("plan", "--config", file)
    assert file in said
    assert says in said


def test_a_file_that_is_not_there_or_named_twice_is_refused(
    tmp_path: Path, refused: Refused
) -> None:
    assert "no.toml" in refused("plan", "--config", str(tmp_path / "no.toml"))
    assert "cannot be read" in refused("plan", "--config", str(tmp_path))
    assert "needs one" in refused("plan", "--config")
    assert "names 2 files" in refused("plan", "--config", "a", "--config=b")


@dataclass(frozen=True)
class Group:
    share: float = 0.5
    steps: int | None = 2000


@dataclass(frozen=True)
class Words:
    """A command with every type that ours have."""

    source: Annotated[Path, tyro.conf.Positional]
    text: str
    other: str | None = None
    rate: float | None = None
    flag: bool = False
    choice: Literal["a", "b"] = "a"
    names: tuple[str, ...] = ()
    sizes: tuple[int, ...] | None = None
    param: dict[str, float] = field(default_factory=dict)
    group: Group = Group()


numbers = st.floats(allow_nan=False)
texts = st.text(st.characters(exclude_categories=["Cs"]))
commands = st.builds(
    Words,
    source=texts.map(Path),
    text=texts,
    other=st.none() | texts.filter(lambda text: text != "None"),
    rate=st.none() | numbers,
    flag=st.booleans(),
    choice=st.sampled_from(["a", "b"]),
    names=st.lists(texts).map(tuple),
    sizes=st.none() | st.lists(st.integers()).map(tuple),
    param=st.dictionaries(texts, numbers),
    group=st.builds(Group, share=numbers, steps=st.none() | st.integers()),
)


@given(commands)
@settings(max_examples=200, deadline=None)
def test_what_is_written_is_read_as_the_same_command(words: Words) -> None:
    table = tomllib.loads(as_toml(["some", "words"], words))["some"]["words"]
    assert with_defaults(Words, table, "here") == words


def every_command() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name in COMMANDS:
        inner = subcommands(_loaded(name))
        found += [(name, one) for one in inner] if inner else [(name,)]
    return found


@pytest.mark.parametrize("path", every_command(), ids=" ".join)
def test_every_command_has_help_with_an_example_of_its_own(
    path: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([*path, "--help"])
    assert stopped.value.code == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert f"Example: quorum {' '.join(path)}" in shown
    assert f"table [{'.'.join(path)}] of a TOML file" in shown
