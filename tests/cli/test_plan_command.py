"""`quorum plan`: from declared numbers to noise and thresholds, for people and for programs."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from commands import Quorum

KEYS = {
    "mode", "experts", "actions", "p_min", "stop_probability", "horizon", "prefix_cap",
    "iterations", "epsilon", "delta", "theta", "threshold", "threshold_noise_scale",
    "query_noise_scale", "iteration_epsilon_remove", "iteration_epsilon_add", "iteration_delta",
    "pool_size", "longest_prefix", "expected_transitions", "feasible",
}  # fmt: skip
CARTPOLE = ("--minimum-experts", "3000", "--actions", "2", "--p-min", "0.02", "--horizon", "200",
            "--epsilon", "7.5", "--delta", "3e-4")  # fmt: skip
LUNAR_LANDER = ("--minimum-experts", "3000", "--actions", "4", "--p-min", "0.02", "--horizon",
                "1000", "--epsilon", "7.5", "--delta", "3e-4", "--iterations", "100")  # fmt: skip


def test_a_plan_for_machines_has_every_fact_under_the_name_of_its_option(quorum: Quorum) -> None:
    words = (*CARTPOLE, "--prefix-cap", "100", "--iterations", "25", "--mode", "tight")
    facts = quorum.facts("plan", "release", *words)
    assert set(facts) >= KEYS
    for option, value in zip(words[::2], words[1::2], strict=True):
        name = option.removeprefix("--").removeprefix("minimum-").replace("-", "_")
        assert facts[name] == (value if option == "--mode" else float(value))
    assert facts["feasible"] is True
    assert facts["longest_prefix"] == 100
    assert facts["stop_probability"] == 0


def test_a_person_sees_a_table_and_how_long_the_prefixes_should_be(quorum: Quorum) -> None:
    shown = quorum("plan", "release", *CARTPOLE, "--iterations", "25")
    for word in ("threshold", "query noise scale", "pool size", "expected transitions", "█"):
        assert word in shown
    assert "Nothing would come out" not in shown


def test_a_plan_that_gives_nothing_says_what_would_change_that_and_is_no_error(
    quorum: Quorum,
) -> None:
    """Each of the changes that it names is then tried, and must help."""
    hopeless = (*LUNAR_LANDER, "--mode", "paper")
    shown = quorum("plan", "release", *hopeless)
    assert "Nothing would come out" in shown
    _, advice = shown.split("This would change it: ")
    options = {}
    for first, second, third, *_ in map(str.split, advice.split("; or ")):
        option, value = {"epsilon": ("epsilon", third), "mode": ("mode", second)}.get(
            first, (second, first)
        )
        options[option] = value
    assert set(options) == {"experts", "epsilon", "iterations", "mode"}
    for option, value in options.items():
        option = "minimum-experts" if option == "experts" else option
        assert (
            quorum.facts("plan", "release", *hopeless, f"--{option}", value)["feasible"] is True
        ), option


def test_a_plan_is_written_to_a_file_which_is_not_replaced_unasked(
    tmp_path: Path, quorum: Quorum
) -> None:
    path = tmp_path / "plan.json"
    words = (*CARTPOLE, "--mode", "paper", "--iterations", "25", "--out", str(path))
    assert quorum.facts("plan", "release", *words) == json.loads(path.read_text())
    assert "--overwrite" in quorum.refused_for_free(
        tmp_path, "plan", "release", *words, "--epsilon", "5"
    )
    quorum("plan", "release", *words, "--epsilon", "5", "--overwrite")
    assert json.loads(path.read_text())["epsilon"] == 5


FIT = ("plan", "fit", "--actions", "3", "--observations", "6", "--delta", "1e-4",
       "--minimum-experts")  # fmt: skip


def test_a_fit_is_planned_before_there_are_logs(quorum: Quorum) -> None:
    """With what such plans earned, so that nobody takes a linear policy for more than it is."""
    many, few = quorum(*FIT, "300", "--epsilon", "1"), quorum(*FIT, "20", "--epsilon", "3")
    assert "hidden layers of 64" in many
    assert "such plans earned 0.99 to" in many
    assert "a linear policy is not enough everywhere" in few
    assert "nothing was charged" in few
    facts = quorum.facts(*FIT, "300", "--epsilon", "1")
    assert facts["refused"] is None
    assert facts["spends"] == pytest.approx(1, rel=1e-3)
    assert len(facts["charges"]) == 1


@pytest.mark.parametrize("judges", [(), ("--judges", "0.3", "--return-bounds", "0", "1")])
def test_what_a_useless_plan_is_said_to_need_is_enough(
    quorum: Quorum, judges: tuple[str, ...]
) -> None:
    """Both numbers that it names are then tried; with two experts fewer it is useless still."""
    said = quorum.refused(*FIT, "20", "--epsilon", "0.5", *judges)
    found = re.search(r"an epsilon of ([\d.]+) or (\d+) experts", said)
    assert found is not None
    assert ("fewer judges" in said) is bool(judges)
    epsilon, experts = found.groups()
    more, fewer = (*FIT, experts), (*FIT, str(int(experts) - 2))
    assert quorum.facts(*FIT, "20", "--epsilon", epsilon, *judges)["noise_over_signal"] <= 1
    assert quorum.facts(*more, "--epsilon", "0.5", *judges)["noise_over_signal"] <= 1
    assert "mostly noise" in quorum.refused(*fewer, "--epsilon", "0.5", *judges)


def test_planning_touches_no_device() -> None:
    """A plan is made of declared numbers, so it needs neither JAX nor any file of the experts."""
    code = (
        "import sys, quorum_rl.cli.main as cli\n"
        f"cli.main(['plan', 'release', *{CARTPOLE!r}, '--mode', 'paper', '--json'])\n"
        "assert 'jax' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
