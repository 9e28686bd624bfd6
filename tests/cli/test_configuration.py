"""`--config`: settings from a TOML file, outranked by flags, and written back into one."""

import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from commands import Quorum
from hypothesis import given, settings, strategies as st

from quorum_rl.cli.configuration import as_toml, values_of
from quorum_rl.cli.main import command_of
from quorum_rl.cli.parser import Positional, parse

PLAN = """
[plan.release]
minimum_experts = 3000
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


def test_a_command_takes_its_table_and_flags_outrank_it(tmp_path: Path, quorum: Quorum) -> None:
    words = ("--minimum-experts", "3000", "--actions", "2", "--horizon", "200", "--p-min", "0.02",
             "--delta", "3e-4", "--iterations", "25", "--mode", "paper")  # fmt: skip
    both = [("--config", written(tmp_path, PLAN)), words]
    from_file, from_words = (
        quorum.facts("plan", "release", *way, "--epsilon", "7.5") for way in both
    )
    assert from_file == from_words


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
        ("[plan.release]\nepsilom = 3", "did you mean epsilon?"),
        ("[plan.release]\nhorizont = 3", "unknown setting 'horizont' (did you mean horizon?)"),
        ("[plann]\nepsilon = 3", "unknown table 'plann' (did you mean plan?)"),
        ("[fit]\nepsilon = 3", "has no table [plan.release]"),
        ("plan = 3", "'plan' is a value, not a table"),
        ("[plan]\nrelease = 3", "'release' is a value, not a table"),
        ('[plan.release]\nepsilon = "much"', "epsilon is 'much', and must be a number"),
        (
            "[plan.release]\nminimum-experts = 2.5",
            "minimum-experts is 2.5, and must be a whole number",
        ),
        ("[plan.release]\njson = 1", "json is 1, and must be true or false"),
        ("[plan.release]\nout = 1", "out is 1, and must be a path"),
        ('[plan.release]\nmode = "loose"', "mode is 'loose', and must be one of tight, paper"),
        ("[plan.release]\nepsilon = ", "is no valid TOML"),
    ],
)
def test_a_file_that_does_not_fit_is_refused_in_one_sentence(
    text: str, says: str, tmp_path: Path, quorum: Quorum
) -> None:
    file = written(tmp_path, text)
    said = quorum.refused("plan", "release", "--config", file)
    assert file in said
    assert says in said


def test_a_file_that_is_not_there_or_named_twice_is_refused(tmp_path: Path, quorum: Quorum) -> None:
    assert "no.toml" in quorum.refused("plan", "release", "--config", tmp_path / "no.toml")
    assert "cannot be read" in quorum.refused("plan", "release", "--config", tmp_path)
    assert "needs one" in quorum.refused("plan", "release", "--config")
    assert "names 2 files" in quorum.refused("plan", "release", "--config", "a", "--config=b")


@dataclass(frozen=True)
class Group:
    share: float = 0.5
    steps: int | None = 2000


@dataclass(frozen=True)
class Words:
    """A command with every type that ours have."""

    source: Annotated[Path, Positional("SOURCE")]
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
@settings(max_examples=200)
def test_what_is_written_is_read_as_the_same_command(words: Words) -> None:
    table = tomllib.loads(as_toml(["some", "words"], words))["some"]["words"]
    assert parse(Words, [], values_of(Words, table, "here")) == words


def test_a_file_does_not_choose_the_code_that_is_run(tmp_path: Path, quorum: Quorum) -> None:
    own = "own.py:Iql"
    file = written(
        tmp_path,
        f'[fit]\ndemonstrations = "log"\nepsilon = 1\ndelta = 1e-4\nlearner = "{own}"\n',
    )
    assert f"names '{own}', Python code to run" in quorum.refused("fit", "--config", file)
    for words in (["--learner", own], [f"--learner={own}"], ["--learner", "cql"]):
        command: Any = command_of(["fit", "--config", file, *words])
        assert command.learner == words[-1].removeprefix("--learner=")


@pytest.mark.parametrize(
    "table", ['evaluate]\npolicy = "p"', 'demos.collect]\nexperts = "e"\nout = "o"']
)
def test_nor_does_it_import_a_module_for_gymnasium(
    table: str, tmp_path: Path, quorum: Quorum
) -> None:
    env = "somebodys_module:CartPole-v1"  # which gymnasium.make would import
    path = table.split("]")[0].split(".")
    file = written(tmp_path, f'[{table}\ngymnasium = "{env}"\n')
    assert f"names '{env}', Python code to run" in quorum.refused(*path, "--config", file)
    for words in (["--gymnasium", env], ["--gymnasium", "CartPole-v1"]):
        command: Any = command_of([*path, "--config", file, *words])
        assert command.gymnasium == words[-1]


def test_an_environment_of_gymnasium_itself_may_stand_in_a_file(tmp_path: Path) -> None:
    file = written(tmp_path, '[evaluate]\npolicy = "p"\ngymnasium = "CartPole-v1"\n')
    command: Any = command_of(["evaluate", "--config", file])
    assert command.gymnasium == "CartPole-v1"
