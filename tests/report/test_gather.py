"""What a report says about a run, and what it does where a file is missing or damaged."""

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reported_runs import DELTA, RELEASE, TRAINING, change_json, write_run
from scipy import stats

from quorum_rl.budget import Certificate, Ledger, certificate, read_ledger
from quorum_rl.errors import QuorumError
from quorum_rl.files import write_json
from quorum_rl.privacy import total_epsilon
from quorum_rl.report.facts import Guarantee, Missing, RunReport
from quorum_rl.report.gathering import gather
from quorum_rl.report.page import render

OPTIONAL = {
    "evaluation.json": "evaluation",
    "judging.json": "judged",
    "comparison.json": "comparison",
    "released.parquet": "prefixes",
    "metrics.jsonl": "learning",
    "policy.safetensors": "episode",
}


@pytest.fixture(scope="module")
def whole(written_run: Path) -> RunReport:
    return gather(written_run)


def test_a_complete_run_has_every_part(whole: RunReport) -> None:
    assert whole.name == "cartpole"
    for part in (whole.guarantee, whole.spending, *(getattr(whole, p) for p in OPTIONAL.values())):
        assert not isinstance(part, Missing)


def test_the_counts_are_the_declared_ones(whole: RunReport) -> None:
    assert whole.learned.minimum_experts == 2999
    assert whole.learned.horizon == 200
    assert not isinstance(whole.prefixes, Missing)
    assert (whole.prefixes.iterations, whole.prefixes.prefixes) == (25, 21)


def test_the_stages_cost_more_added_up_than_together(whole: RunReport) -> None:
    assert not isinstance(whole.spending, Missing)
    alone = [total_epsilon([event], DELTA) for event in (RELEASE, TRAINING)]
    assert [stage.epsilon for stage in whole.spending.stages] == pytest.approx(alone)
    together = total_epsilon([RELEASE, TRAINING], DELTA)
    assert together <= whole.spending.together < together + 1e-3
    assert whole.spending.together < whole.spending.added_up
    assert whole.spending.unspent == pytest.approx(5.0 - whole.spending.together)


def test_the_judges_say_what_they_know_and_no_more(whole: RunReport) -> None:
    assert not isinstance(whole.judged, Missing)
    answers = (*whole.judged.answers, *whole.judged.by_action)
    said = {answer.what: (answer.estimate, answer.interval) for answer in answers}
    assert said["what the experts earn"] == (151.0, (148.0, 154.0))
    assert said["the same, where they took action 1"] == (None, (0.0, 1.0))
    page = render(whole)
    assert page.count("<td>cannot tell</td>") == 1
    assert "What the judges say" in page
    unjudged = replace(whole, judged=Missing("nobody"))
    assert "judge" not in render(unjudged)


def test_of_several_learners_that_of_the_policy_is_shown_beside_the_others(
    run_folder: Path,
) -> None:
    told = {"estimate": 1.5, "low": 1.0, "high": 2.0, "bounds": [0, 9], "tells": True}
    each = [{"learner": name, "value": told} for name in ("bc", "<cql>")]
    change_json(run_folder / "judging.json", candidates=each, chosen=1)
    change_json(run_folder / "config.json", candidates=["Bc()", "Cql()"])
    shown = gather(run_folder)
    assert shown.learned.learner == "Cql()"
    assert not isinstance(shown.judged, Missing)
    earned = [one.what for one in shown.judged.earned]
    assert earned == ["what the experts earn", "what bc earns", "what <cql> earns"]
    assert "as what &lt;cql&gt; earns has the interval that begins highest" in render(shown)
    for wrong in (2, -1, "1", None):
        change_json(run_folder / "judging.json", chosen=wrong)
        with pytest.raises(QuorumError, match=r"judging\.json"):
            gather(run_folder)
    change_json(run_folder / "judging.json", chosen=1)
    change_json(run_folder / "config.json", candidates=["Bc()"])
    with pytest.raises(QuorumError, match=r"config\.json"):
        gather(run_folder)


def test_judges_without_return_bounds_have_one_chart(run_folder: Path) -> None:
    nothing = {"mean_return": None, "value": None, "gain": None, "better": None}
    change_json(run_folder / "judging.json", **nothing)
    page = render(gather(run_folder))
    assert 'id="shares-chart"' in page
    assert 'id="earned-chart"' not in page


def test_a_comparison_says_how_many_steps_were_taken(whole: RunReport) -> None:
    assert "Steps taken: non-private 4,000. A private step is" in render(whole)


def test_marks_and_open_assumptions_stand_at_the_top(whole: RunReport) -> None:
    titles = [notice.title for notice in whole.notices]
    assert "Research ledger" in titles
    assert "Reproducible noise" in titles
    assert "Assumption not accepted: one-expert-each" in titles
    assert not any("logs-from-queried-policies" in title for title in titles)


@pytest.mark.parametrize("name", OPTIONAL)
def test_a_missing_file_gives_a_sentence_in_its_place(name: str, run_folder: Path) -> None:
    (run_folder / name).unlink(missing_ok=True)
    part = getattr(gather(run_folder), OPTIONAL[name])
    assert isinstance(part, Missing)
    assert part.why.endswith((".", ":"))


@pytest.mark.parametrize("content", [b"{", b"[]\n", b"\xff\xfe"])
@pytest.mark.parametrize(
    "name", ["config.json", "config.toml", "certificate.json", "ledger.jsonl", *OPTIONAL]
)
def test_a_damaged_file_is_named(name: str, content: bytes, run_folder: Path) -> None:
    (run_folder / name).write_bytes(content)
    with pytest.raises(QuorumError, match=name.replace(".", r"\.")) as refused:
        gather(run_folder)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("comparison.json", {"methods": [{"name": "selective"}]}),
        ("comparison.json", {"seeds": -1}),
        ("evaluation.json", {"interval": [2.0, 1.0]}),
        ("evaluation.json", {"mean": "1"}),
        ("judging.json", {"agreement": None}),
        ("judging.json", {"agreement_by_action": [{"low": 1.0, "high": 0.0}]}),
        ("evaluation.json", {"mean": float("nan")}),
        ("config.json", {"declared": {}}),
        ("config.json", {"settings": None}),
        ("config.json", {"events": [{"event": "release"}]}),
        ("certificate.json", {"delta": None}),
    ],
)
def test_a_file_with_a_wrong_fact_is_named(name: str, change: Any, run_folder: Path) -> None:
    change_json(run_folder / name, **change)
    with pytest.raises(QuorumError, match=name.replace(".", r"\.")):
        gather(run_folder)


def test_units_that_were_found_stand_with_the_settings(run_folder: Path) -> None:
    write_json(run_folder / "units.json", {"said": ["observations are seen less (1 2)", "<b>"]})
    shown = gather(run_folder)
    assert shown.settings[-1] == ("private units", "observations are seen less (1 2); <b>")
    assert "&lt;b&gt;" in render(shown)
    change_json(run_folder / "units.json", said=None)
    with pytest.raises(QuorumError, match=r"units\.json"):
        gather(run_folder)


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(QuorumError, match="holds no run"):
        gather(tmp_path)


def test_a_certificate_that_claims_less_than_was_spent_does_not_hold(run_folder: Path) -> None:
    change_json(run_folder / "certificate.json", epsilon=1.0)
    for _ in range(2):  # with its ledger, and then without
        found = gather(run_folder)
        assert isinstance(found.guarantee, Guarantee)
        assert not found.guarantee.claims
        assert found.notices[0].title == "The certificate does not hold"
        assert str(run_folder) not in found.notices[0].text
        (run_folder / "ledger.jsonl").unlink(missing_ok=True)


def test_without_its_ledger_a_certificate_is_shown_as_not_checked(run_folder: Path) -> None:
    (run_folder / "ledger.jsonl").unlink()
    found = gather(run_folder)
    assert isinstance(found.guarantee, Guarantee)
    assert found.guarantee.claims
    assert "Not checked" in found.guarantee.check


def test_a_ledger_kept_elsewhere_is_compared_when_it_is_named(
    run_folder: Path, tmp_path: Path
) -> None:
    elsewhere = (run_folder / "ledger.jsonl").rename(tmp_path / "experts.ledger")
    found = gather(run_folder, ledger=elsewhere)
    assert isinstance(found.guarantee, Guarantee)
    assert "agrees with its ledger" in found.guarantee.check
    assert not found.guarantee.contradicted


def test_a_ledger_that_has_gone_on_is_said_to_have(run_folder: Path) -> None:
    with Ledger.open(run_folder / "ledger.jsonl") as ledger:
        ledger.charge(TRAINING, run="fit-2")
    assert "The ledger has gone on" in [notice.title for notice in gather(run_folder).notices]


def test_an_interrupted_run_is_spoken_for_by_its_ledger(run_folder: Path) -> None:
    (run_folder / "certificate.json").unlink()
    found = gather(run_folder)
    assert found.notices[0].title == "The run is not finished"
    assert isinstance(found.guarantee, Guarantee)
    expected = certificate(read_ledger(run_folder / "ledger.jsonl"), delta=DELTA)
    assert found.guarantee.certificate == expected


def test_without_certificate_and_ledger_nothing_is_guaranteed(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "plain", method="non-private")
    (folder / "certificate.json").unlink()
    (folder / "ledger.jsonl").unlink()
    found = gather(folder)
    assert isinstance(found.guarantee, Missing)
    assert isinstance(found.spending, Missing)
    assert [notice.title for notice in found.notices] == ["Not private"]
    assert not found.covered


def test_only_a_page_without_a_comparison_is_covered(whole: RunReport, run_folder: Path) -> None:
    assert not whole.covered
    (run_folder / "comparison.json").unlink()
    assert gather(run_folder).covered


def test_a_long_learning_curve_is_averaged(run_folder: Path) -> None:
    lines = [{"step": step, "loss_on_released": float(step)} for step in range(1000)]
    (run_folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    curve = gather(run_folder).learning
    assert not isinstance(curve, Missing)
    assert curve.averaged == 3
    assert len(curve.points) <= 400
    assert np.mean([loss for _, loss in curve.points]) == pytest.approx(499.5, rel=0.01)


def test_the_command_that_repeats_a_run_is_the_one_that_made_it(run_folder: Path) -> None:
    assert gather(run_folder).repeat.startswith("quorum fit --config cartpole/config.toml")
    (run_folder / "config.toml").unlink()
    assert gather(run_folder).repeat.startswith("quorum_rl.fit(")


def test_the_command_that_repeats_a_run_is_no_other_command(run_folder: Path) -> None:
    """Whoever reads a report may copy it into a shell, and the folder may be anybody's."""
    hostile = run_folder.rename(run_folder.with_name("x; touch harm"))
    assert gather(hostile).repeat == (
        "quorum fit --config 'x; touch harm/config.toml' --folder 'x; touch harm-again'"
    )
    (hostile / "config.toml").write_text("[site.fit]\nepsilon = 5.0\n")
    assert gather(hostile).repeat.startswith("quorum site fit --config ")
    for table in ('"fit; touch harm #"', "train", 'site."fit; touch harm"'):
        (hostile / "config.toml").write_text(f"[{table}]\nepsilon = 5.0\n")
        with pytest.raises(QuorumError, match=r"config.toml' is damaged"):
            gather(hostile)


def test_worlds_that_are_not_ours_are_not_played(written_run: Path, run_folder: Path) -> None:
    shutil.copy(written_run / "policy.safetensors", run_folder)
    config = json.loads((run_folder / "config.json").read_text())
    change_json(run_folder / "config.json", declared=config["declared"] | {"world": "Desk"})
    episode = gather(run_folder).episode
    assert isinstance(episode, Missing)
    assert "Desk" in episode.why


def claim(whole: RunReport, epsilon: float, delta: float) -> Guarantee:
    assert isinstance(whole.guarantee, Guarantee)
    made: Certificate = replace(whole.guarantee.certificate, epsilon=epsilon, delta=delta)
    return Guarantee(made, "")


def test_guessing_bounds_hold_for_a_gaussian_and_are_tight_for_the_worst_pair(
    whole: RunReport,
) -> None:
    """The worst pair of all: with δ the answer is given away, else it is right with e^ε/(1+e^ε)."""
    for epsilon, delta in ((0.1, 0.0), (1.0, 1e-3), (5.0, 0.05)):
        found = claim(whole, epsilon, delta)
        right = delta + (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))
        assert found.best_accuracy == pytest.approx(right)
        # Best test of the same pair with few false alarms, by the Neyman–Pearson lemma.
        present = [delta, (1 - delta) * math.exp(epsilon) / (1 + math.exp(epsilon))]
        absent = [0.0, (1 - delta) / (1 + math.exp(epsilon))]
        share = min(0.01 / absent[1], 1.0)
        rest = (0.01 - absent[1] * share) / ((1 - delta) - absent[1])
        power = present[0] + present[1] * share + rest * (1 - present[0] - present[1])
        assert found.recognised_at(0.01) == pytest.approx(power)
    # A Gaussian of sensitivity 1 and scale 1 is (ε, δ)-indistinguishable with this δ.
    epsilon = 1.5
    delta = stats.norm.cdf(0.5 - epsilon) - math.exp(epsilon) * stats.norm.cdf(-0.5 - epsilon)
    found = claim(whole, epsilon, delta)
    assert stats.norm.cdf(0.5) <= found.best_accuracy
    assert stats.norm.sf(stats.norm.isf(0.01) - 1) <= found.recognised_at(0.01)


def test_an_absurd_epsilon_is_shown_as_no_protection(whole: RunReport) -> None:
    assert claim(whole, 1e6, 0.0).best_accuracy == pytest.approx(1.0)
