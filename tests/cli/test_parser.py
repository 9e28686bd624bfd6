"""Flags of a dataclass: what words mean, what is refused, what help and shells are told."""

import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from commands import Quorum

from quorum_rl.cli.help import metavar, page, said_of
from quorum_rl.cli.main import command_of, load, paths, run_alone
from quorum_rl.cli.parser import flags_of
from quorum_rl.errors import QuorumError

FIT = ("fit", "log.arrow", "--epsilon", "1", "--delta", "1e-4")
USED = ("epsilon", "delta", "learner", "method", "folder", "ledger", "minimum-experts", "accept",
        "dry-run", "json", "seed")  # fmt: skip


def run(*words: str, stdin: int | None = None) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "quorum_rl", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, stdin=stdin)


def test_words_become_the_fields_of_a_command() -> None:
    fit: Any = command_of(
        [*FIT, "experts", "--hidden", "8", "4", "--observation-centre", "-0.5", "1e-3",
         "--observation-scale", "--seed=3", "--method", "dp-sgd", "--no-falling-rates",
         "--normalised", "--accept", "a", "b", "--json", "--reward-scale", "None"]
    )  # fmt: skip
    assert (fit.demonstrations, fit.experts) == (Path("log.arrow"), Path("experts"))
    assert (fit.epsilon, fit.delta, fit.seed) == (1.0, 1e-4, 3)
    assert (fit.hidden, fit.observation_centre, fit.observation_scale) == ((8, 4), (-0.5, 1e-3), ())
    assert (fit.accept, fit.json, fit.reward_scale) == (("a", "b"), True, None)
    assert fit.settings.method == "dp-sgd"
    assert (fit.settings.falling_rates, fit.settings.normalised) == (False, True)
    draw: Any = command_of(["worlds", "draw", "CartPole", "--param", "gravity", "9", "--out", "x"])
    assert draw.param == {"gravity": 9.0}
    draw = command_of(["worlds", "draw", "CartPole", "--out", "x", "--param", "gravity=9", "a=-1"])
    assert draw.param == {"gravity": 9.0, "a": -1.0}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ((*FIT, "--epsilonn", "1"), "unknown flag --epsilonn (did you mean --epsilon?)."),
        ((*FIT, "--sites", "north=20"), "logs at sites of their own are for 'quorum site fit'"),
        ((*FIT, "-x"), "unknown flag -x: see --help-all for those there are."),
        ((*FIT, "--epsilon", "much"), "--epsilon is 'much': give a number."),
        ((*FIT, "--seed", "1.5"), "--seed is '1.5': give a whole number."),
        ((*FIT, "--hidden", "8", "x"), "--hidden is 'x': give a whole number."),
        ((*FIT, "--seed"), "--seed needs a value: give a whole number."),
        ((*FIT, "--seed", "--json"), "--seed needs a value: give a whole number."),
        ((*FIT, "--mode", "lose"), "--mode is 'lose': give one of tight, paper."),
        ((*FIT, "--json=yes"), "--json takes no value: leave out 'yes'."),
        ((*FIT, "a", "b"), "'b' is one word too many: give its flag, or leave it out."),
        (("fit", "log.arrow"), "quorum fit needs --epsilon and --delta: see 'quorum fit --help'."),
        (
            ("fit", "--epsilon", "1", "--delta", "1", "--accept", "a", "log.arrow"),
            "quorum fit needs DEMONSTRATIONS before --accept, which takes all words that follow "
            "it: see 'quorum fit --help'.",
        ),
        (("sweep", "log", "--grid", "1"), "--grid is set in a configuration file only: see"),
        (("worlds", "draw", "A", "--param", "gravity"), "--param has 'gravity': give pairs, each"),
        (("demos", "collect", "e", "--smoothing", "none"), "give one of greedy, uniform-mixture."),
        (("--verbose",), "unknown flag --verbose: name a command first, see 'quorum --help'."),
        (("experts", "trian"), "unknown command of 'quorum experts' 'trian' (did you mean train?)"),
        (("import", "t.csv"), "unknown command 'import' (did you mean demos import?): see"),
        (("create",), "unknown command 'create' (did you mean ledger create?): see"),
    ],
)
def test_a_mistake_is_one_sentence_that_names_it(
    words: Sequence[str], sentence: str, quorum: Quorum
) -> None:
    assert sentence in quorum.refused(*words)


def test_a_flag_has_one_meaning() -> None:
    """Of one name, all commands take values of one kind, and call them by one word."""
    kinds = defaultdict(set)
    for path in paths():
        for flag in flags_of(load(path)):
            if flag.metavar is None and flag.is_word and flag.name not in ("only", "policy"):
                kinds[flag.name].add("" if flag.kind is bool else metavar(flag.kind))
    clashes = {name: found for name, found in kinds.items() if len(found) > 1}
    assert clashes.pop("out") == {"PATH", "TEXT"}  # a file, or minari:NAME
    assert not clashes


def test_the_help_of_fit_has_what_people_use_and_help_all_the_rest() -> None:
    fit = load(["fit"])
    short, whole = (
        page(fit, "quorum fit", everything=every, table="fit") for every in (False, True)
    )
    every = {flag.name for flag in flags_of(fit) if flag.metavar is None}

    def listed(text: str) -> set[str]:
        entries = [line.split()[0] for line in text.splitlines() if line.startswith("  --")]
        return {
            entry.removeprefix("--").replace("[no-]", "").removeprefix("no-") for entry in entries
        }

    assert listed(short) == {*USED, "config"}
    assert listed(whole) == every | {"config"}
    for text in (short, whole):
        assert "DEMONSTRATIONS" in text
        assert "EXPERTS" in text
    assert "None" not in whole
    assert "--no-json" not in whole


@pytest.mark.parametrize("path", paths(), ids=" ".join)
def test_every_command_has_help_with_an_example_and_a_text_for_every_flag(
    path: tuple[str, ...], quorum: Quorum
) -> None:
    for flag in ("--help", "--help-all", "-h"):
        with pytest.raises(SystemExit, match="0"):
            quorum(*path, flag)
        shown = " ".join(quorum.capsys.readouterr().out.split())
        assert f"Example: quorum {' '.join(path)}" in shown
        assert f"table [{'.'.join(path)}] of a TOML file" in shown
    command = load(path)
    said = said_of(command)
    assert not [flag.name for flag in flags_of(command) if not said.get(flag.field)]
    names = [flag.name for flag in flags_of(command)]
    assert len(set(names)) == len(names)
    assert set(getattr(command, "common", ())) <= {*names, "released", "dry-run"}


def test_help_is_quick() -> None:
    """Half of what a person notices, of the slowest; the machine may be busy, so the best of 3."""
    seconds = []
    for _ in range(3):
        begun = time.perf_counter()
        assert run("sweep", "--help").returncode == 0
        seconds.append(time.perf_counter() - begun)
    assert min(seconds) < 0.6


def test_a_reader_who_has_seen_enough_ends_a_command_quietly(tmp_path: Path) -> None:
    """As `quorum ... | head -1` does, for a table of rich and for plain lines."""
    for words in (("fit", "--help-all"), ("worlds", "list"), ("worlds", "list", "--json")):
        reader, writer = os.pipe()
        os.close(reader)
        command = [sys.executable, "-m", "quorum_rl", *words]
        done = subprocess.run(
            command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False, cwd=tmp_path
        )
        os.close(writer)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.fixture(scope="module")
def bash_script() -> str:
    done = run("completion", "bash")
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("quorum cert", {"certificate"}),
        ("quorum demos ", {"collect", "show", "import", "export", "agreement"}),
        ("quorum demos co", {"collect"}),
        ("quorum fit log --eps", {"--epsilon"}),
        ("quorum fit log --no-", {"--no-normalised", "--no-falling-rates"}),
        ("quorum fit --method s", {"solve", "selective"}),
        ("quorum experts train --cou", {"--count"}),
        ("quorum experts train --epsilon", set()),
        ("quorum completion z", {"zsh"}),
        ("quorum fit ", set()),  # files, by the shell itself
    ],
)
def test_bash_completes(line: str, words: set[str], bash_script: str) -> None:
    code = (
        'source /dev/stdin; read -ra COMP_WORDS <<< "$1"; [[ "$1" == *" " ]] && COMP_WORDS+=("");'
        'COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 )); _quorum; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", code, "bash", line], input=bash_script, capture_output=True, text=True,
        check=False,
    )  # fmt: skip
    assert done.stderr == ""
    assert set(done.stdout.split()) == words


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_are_told_the_same(shell: str) -> None:
    done = run("completion", shell)
    assert done.returncode == 0, done.stderr
    for word in ("certificate", "collect", "epsilon", "no-falling-rates", "selective"):
        assert word in done.stdout


@dataclass(frozen=True)
class Alone:
    """A program beside the package."""

    count: int
    """How many."""

    def run(self) -> None:
        if self.count < 0:
            raise QuorumError("too few.")
        print(self.count)


def test_a_program_by_itself_has_the_same_help_and_answers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    run_alone(Alone, "alone", ["--count", "3"])
    assert capsys.readouterr().out == "3\n"
    for words, status, said in (
        (["--help"], 0, "--count INT"),
        (["--count", "-1"], 2, "alone: too few."),
        (["--cuont", "3"], 2, "alone: unknown flag --cuont (did you mean --count?)."),
    ):
        with pytest.raises(SystemExit) as stopped:
            run_alone(Alone, "alone", words)
        assert stopped.value.code == status
        shown = capsys.readouterr()
        assert said in shown.out + shown.err
        assert "--config" not in shown.out
