"""The page itself: it needs nothing from elsewhere, and whatever a file says stays text."""

import html
import json
import math
import re
from dataclasses import asdict, replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from ledger_files import answered
from reported_runs import COMPARISON, RELEASE, TRAINING, change_json, write_run

from quorum_rl.budget import ASSUMPTIONS, AT_SITES, OF_PARTS, Ledger, certificate, read_ledger
from quorum_rl.budget.schema import read_certificate
from quorum_rl.dictionary import Column, Dictionary
from quorum_rl.report import write_report
from quorum_rl.report.facts import Spending
from quorum_rl.report.gathering import gather
from quorum_rl.report.page import percent_text, render

ATTACK = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>'\""


NAMED = asdict(Dictionary((Column("sugar", ATTACK, fill=1),), (ATTACK, "treat")))


class Parts(HTMLParser):
    """Tags with their attributes, and the text of every script and style."""

    def __init__(self, page: str) -> None:
        super().__init__(convert_charrefs=True)
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.raw: dict[str, list[str]] = {"script": [], "style": []}
        self.shown: list[str] = []
        self._inside: str | None = None
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._inside = tag if tag in self.raw else None
        if self._inside:
            self.raw[tag].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside:
            self._inside = None

    def handle_data(self, data: str) -> None:
        if self._inside:
            self.raw[self._inside][-1] += data
        else:
            self.shown.append(data)


@pytest.fixture(scope="module")
def page(written_run: Path) -> str:
    return render(gather(written_run))


def test_nothing_is_loaded_from_elsewhere(page: str) -> None:
    found = Parts(page)
    for tag, attributes in found.tags:
        assert tag not in {"link", "iframe", "img", "object", "embed", "base", "form"}
        for name in ("src", "href", "xlink:href", "action", "data", "srcset"):
            assert (attributes.get(name) or "#").startswith(("#", "data:image/png")), attributes
    styles = " ".join([*found.raw["style"], *(a.get("style") or "" for _, a in found.tags)])
    assert "@import" not in styles
    assert all(target.startswith("#") for target in re.findall(r"url\(['\"]?([^)]*)", styles))


def test_the_page_forbids_itself_the_network_and_other_scripts(page: str) -> None:
    found = Parts(page)
    (policy,) = [
        attributes["content"] or ""
        for tag, attributes in found.tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert "default-src 'none'" in policy
    assert "unsafe-eval" not in policy
    assert "script-src 'sha256-" in policy
    assert not any(name.startswith("on") for _, attributes in found.tags for name in attributes)


def test_every_chart_has_a_place_a_text_and_a_table(page: str) -> None:
    found = Parts(page)
    charts = json.loads(found.raw["script"][0])
    names = ("budget", "earned", "shares", "comparison", "prefixes", "learning")
    assert set(charts) == {f"{name}-chart" for name in names}
    places = [attributes for tag, attributes in found.tags if attributes.get("class") == "chart"]
    assert {attributes["id"] for attributes in places} == set(charts)
    assert all(attributes["role"] == "img" and attributes["aria-label"] for attributes in places)
    tables = [attributes for _, attributes in found.tags if attributes.get("class") == "numbers"]
    assert len(tables) == len(charts)


def test_the_page_says_what_it_must(page: str) -> None:
    text = " ".join(" ".join(Parts(page).shown).split())
    for words in (
        "at least 2,999",
        "two sets of experts that differ by one expert",
        "not private against someone who knows the seed",
        "Research ledger",
        "not accepted",
        "one-expert-each",
        "whoever already holds a log recognises a released prefix of it",
        "quorum fit --config cartpole/config.toml --folder cartpole-again",
        "What is not protected",
    ):
        assert words in text, words


def test_two_stages_that_cost_less_added_up_are_explained_otherwise(written_run: Path) -> None:
    """Each alone has all of δ, so what they add up to is for two of it."""
    report = gather(written_run)
    assert isinstance(report.spending, Spending)
    usual, more = "hardly ever give away their most at once", "the sum holds at 2δ only"
    page = render(report)
    assert usual in page
    assert more not in page
    dearer = replace(report.spending, together=report.spending.added_up + 1)
    page = render(replace(report, spending=dearer))
    assert usual not in page
    assert more in page


def test_the_page_says_what_is_seen_and_what_is_done(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "named")
    config = json.loads((folder / "config.json").read_text())
    named = asdict(Dictionary((Column("sugar", "mg/dL", 120, 40, 400),), ("hold", "treat")))
    change_json(folder / "config.json", declared=config["declared"] | {"dictionary": named})
    page = render(gather(folder))
    assert "sugar (mg/dL), cut to 40 to 400, 120 where it is missing" in page
    assert "<td>hold, treat</td>" in page


def test_what_files_say_is_never_markup(page: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path / ATTACK.replace("/", "∕"))
    plain = Parts(page)
    change_json(folder / "evaluation.json", world=ATTACK, protocol=ATTACK)
    methods = [COMPARISON["methods"][0] | {"name": ATTACK, "note": ATTACK}]
    methods += COMPARISON["methods"][1:]
    change_json(folder / "comparison.json", world=ATTACK, methods=methods)
    config = json.loads((folder / "config.json").read_text())
    change_json(
        folder / "config.json",
        learner=ATTACK,
        declared=config["declared"] | {"world": ATTACK, "smoothing": ATTACK, "dictionary": NAMED},
        settings=config["settings"] | {ATTACK: ATTACK},
        versions={ATTACK: ATTACK},
    )
    found = Parts(render(gather(folder)))
    assert len(found.raw["script"]) == len(plain.raw["script"]) == 2
    assert found.raw["script"][1] == plain.raw["script"][1]
    charts = json.loads(found.raw["script"][0])
    assert ATTACK in json.dumps(charts, ensure_ascii=False).encode().decode().replace('\\"', '"')
    assert not any(tag == "img" for tag, _ in found.tags)
    assert " ".join(found.shown).count(ATTACK) >= 8


def test_missing_parts_leave_sentences_and_no_empty_chart(run_folder: Path) -> None:
    for name in ("comparison.json", "evaluation.json", "metrics.jsonl", "released.parquet",
                 "policy.safetensors", "certificate.json", "judging.json",
                 "ledger.jsonl"):  # fmt: skip
        (run_folder / name).unlink(missing_ok=True)
    found = Parts(write_report(run_folder).read_text(encoding="utf-8"))
    assert json.loads(found.raw["script"][0]) == {}
    assert not any(attributes.get("class") == "chart" for _, attributes in found.tags)
    text = " ".join(" ".join(found.shown).split())
    assert "nothing is guaranteed" in text
    assert "quorum evaluate cartpole" in text
    assert "is right at most" not in text


def short_of(page: str) -> dict[str, str]:
    """The first answers of a page, by their questions."""
    rows = re.findall(r"<dt>(.*?)</dt><dd>(.*?)</dd>", page, re.DOTALL)
    plain = [[" ".join(re.sub("<[^>]*>", " ", cell).split()) for cell in row] for row in rows]
    return dict(plain)


def test_the_page_answers_first_what_people_ask(page: str, written_run: Path) -> None:
    assert page.index("<dt>") < page.index("<section")
    short = short_of(page)
    assert list(short) == [
        "What was learned",
        "From how many",
        "What it cost them",
        "How good it is",
        "Who answers for it",
        "What is not protected",
    ]
    assert short["What was learned"].startswith("One policy for CartPole It sees 4 numbers")
    assert short["From how many"].startswith("At least 2,999 experts")
    made = read_certificate(written_run / "certificate.json")
    guess = 1 - (1 - made.delta) / (1 + math.exp(made.epsilon))
    assert short["What it cost them"].startswith(f"A guess is right at most {percent_text(guess)}")
    assert f"ε&nbsp;=&nbsp;{made.epsilon:.4f}, δ" in short["What it cost them"]
    assert short["How good it is"].startswith("Earns 834 The mean of 20 episodes of CartPole")
    assert "what the experts earn, the judges say 151 (148 to 154)" in short["How good it is"]
    assert "of the experts’ whole budget was left" in short["What it cost them"]
    assert short["Who answers for it"].startswith("Nobody, for 1 of 6 assumptions")


def test_what_a_policy_earns_is_judged_or_unknown_where_it_is(run_folder: Path) -> None:
    (run_folder / "evaluation.json").unlink()
    judged = short_of(render(gather(run_folder)))["How good it is"]
    assert judged.startswith("Judged by a part of the experts Asked what the experts earn")
    assert judged.endswith("No simulator has measured what it earns.")
    (run_folder / "judging.json").unlink()
    assert short_of(render(gather(run_folder)))["How good it is"].startswith("Nobody has measured")


def test_the_page_names_who_answers_and_when(run_folder: Path) -> None:
    book = run_folder / "ledger.jsonl"
    book.unlink()
    Ledger.create(book, epsilon=8.0, delta=3e-4, kind="research")
    held = {"accepted": list(ASSUMPTIONS)}
    who = {"name": ATTACK, "assumptions": ["one-expert-each"]}
    with Ledger.open(book) as ledger:
        ledger.charge(
            RELEASE, run="fit-1", facts={"pool": "a log", **held, **answered(ATTACK, *ASSUMPTIONS)}
        )
        ledger.charge(TRAINING, run="fit-1", facts=held | {"accepted_by": who})
    made = certificate(read_ledger(book))
    (run_folder / "certificate.json").write_text(made.to_json())
    day = read_ledger(book).charges[0].date
    page = render(gather(run_folder))
    found = Parts(page)
    assert len(found.raw["script"]) == 2
    assert not any(tag == "img" for tag, _ in found.tags)
    assert f"{html.escape(ATTACK, quote=False)}".replace("'", "&#39;").replace('"', "&#34;") in page
    text = " ".join(found.shown)
    assert f"{ATTACK} ({day})" in text  # at the top
    assert text.count(f"accepted by {ATTACK} on {day}") == len(
        {*ASSUMPTIONS} - {*AT_SITES, *OF_PARTS}
    )


def test_a_run_of_logs_alone_has_no_place_for_what_it_was_never_to_have(run_folder: Path) -> None:
    for name in ("comparison.json", "evaluation.json", "metrics.jsonl", "released.parquet"):
        (run_folder / name).unlink()
    config = json.loads((run_folder / "config.json").read_text())
    events = [event for event in config["events"] if event["event"] != "release"]
    declared = config["declared"] | {"world": None}
    change_json(run_folder / "config.json", events=events, declared=declared)
    found = Parts(render(gather(run_folder)))
    sections = [attributes["id"] for tag, attributes in found.tags if tag == "section"]
    assert sections == ["guarantee", "assumptions", "limits", "learned", "budget", "repeat"]
    links = [attributes["href"] for tag, attributes in found.tags
             if tag == "a" and (attributes.get("href") or "").startswith("#")]  # fmt: skip
    assert set(links) == {f"#{section}" for section in sections} | {"#assumptions", "#limits"}
    assert "nobody has seen the policy act" not in " ".join(found.shown)
    (run_folder / "judging.json").unlink()  # without judges, only a simulator could tell
    unjudged = Parts(render(gather(run_folder)))
    assert "--world path/to/file.py:NAME" in " ".join(unjudged.shown)


def test_only_a_covered_page_says_that_it_may_be_published(run_folder: Path) -> None:
    whole = gather(run_folder)
    assert "quorum:covered" not in render(whole)
    (run_folder / "comparison.json").unlink()
    head = read_certificate(run_folder / "certificate.json").ledger_head
    said = f'<meta name="quorum:covered" content="{head}">'
    assert said in render(gather(run_folder))


def test_an_absolute_path_is_not_told(run_folder: Path) -> None:
    assert str(run_folder) not in write_report(run_folder).read_text(encoding="utf-8")


def test_neither_is_a_path_that_climbs_out_of_here(
    run_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    elsewhere = tmp_path / "here" / "below"
    elsewhere.mkdir(parents=True)
    (tmp_path / "zoes-files").mkdir()
    moved = run_folder.rename(tmp_path / "zoes-files" / "desks")
    monkeypatch.chdir(elsewhere)
    page = write_report(Path("..", "..", "zoes-files", "desks")).read_text(encoding="utf-8")
    assert moved.name in page
    assert "zoes-files" not in page


def test_percentages_are_rounded_up_and_never_to_all() -> None:
    assert percent_text(0.9550001) == "96%"
    assert percent_text(0.9933) == "99.4%"
    assert percent_text(0.99995) == "99.9950%"
    assert percent_text(1.0) == "100%"


def test_a_run_in_mode_paper_claims_nothing(run_folder: Path) -> None:
    (run_folder / "ledger.jsonl").unlink()
    Ledger.create(run_folder / "ledger.jsonl", epsilon=None, delta=3e-4, kind="research")
    with Ledger.open(run_folder / "ledger.jsonl") as ledger:
        ledger.charge(replace(RELEASE, mode="paper"), run="fit-1", facts={"pool": "a log"})
    made = certificate(read_ledger(run_folder / "ledger.jsonl"))
    (run_folder / "certificate.json").write_text(made.to_json())
    text = " ".join(Parts(render(gather(run_folder))).shown)
    assert "No finite ε is claimed" in text
    assert "is right at most" not in text
    assert short_of(render(gather(run_folder)))["What it cost them"].startswith("Nothing is")
