"""Writes the tables of audit.md and draws its pictures, from results/audit/*.json.

python docs/pictures/make_audit.py
"""

import json
import math
from typing import Any

import matplotlib as mpl
from rendering import DOCS, RESULTS, Sections, provenance, table, write

from quorum_rl.audit import BUGS, Finding, draw_curves, draw_findings
from quorum_rl.audit.finding import GAUSSIAN

PAGE = "audit.md"
PARTS = ("release", "training", "one-run", "pipeline")
GAMES = ("membership", "membership-few")
SEEN = {"released": "what came out"}  # others are called what they are


def found(name: str) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((RESULTS / "audit" / f"{name}.json").read_text())
    return facts


def findings_of(part: str) -> list[Finding]:
    return [Finding.from_json(one) for one in found(part)["findings"]]


def findings() -> str:
    rows = [_row(one) for part in PARTS for one in findings_of(part)]
    head = ["what", "the adversary sees", "claimed ε", "ε at least (95%)", "of the claim"]
    sources = "; ".join(f"{part}: {provenance(found(part))}" for part in PARTS)
    seeds = {found(part)["configuration"]["seed"] for part in PARTS}
    text = f"`quorum audit --only PART`, seed {', '.join(map(str, sorted(seeds)))} ({sources})."
    tail = ["δ", "runs of each kind", "could show at most (99.9%)"]
    return f"{table([*head, *tail], rows, words=2)}\n\n{text}"


def _row(one: Finding) -> list[str]:
    threat = one.threat.split(":")[0]
    seen = SEEN.get(threat, threat) + (", Gaussian" if one.note == GAUSSIAN else "")
    return [
        one.what,
        seen,
        f"{one.claimed:.3f}",
        f"{one.bound.epsilon:.3f}",
        f"{math.floor(100 * one.bound.epsilon / one.claimed)}%",
        f"{one.bound.delta:g}",
        f"{one.runs:,}",
        f"{one.ceiling:.3f}" + ("" if one.refutable else ": cannot be refuted with so few runs"),
    ]


def accusations() -> str:
    every = [one for part in PARTS for one in findings_of(part)]
    refutable = [one for one in every if one.refutable]
    accused = sum(one.refuted for one in refutable)
    hopeless = len(every) - len(refutable)
    text = (
        f"Of the {len(refutable)} lines whose claim so many runs could refute, {accused or 'none'} "
        f"{'is' if accused < 2 else 'are'} refuted with 99.9% confidence; sound code would have "
        f"one that is with probability {len(refutable) * 0.001:.1%} at most."
    )
    if hopeless:
        text += (
            f" The other {hopeless} could not be refuted whatever came out, so that they were not "
            "says nothing."
        )
    return text


def planted() -> str:
    facts = found("planted")
    rows = []
    for name, bug in BUGS.items():
        shown = Finding.from_json(facts["planted"][name][0])
        rows.append(
            [
                f"`{name}`",
                bug.said,
                shown.what,
                f"{shown.claimed:.3f}",
                f"{shown.bound.epsilon:.3f}",
                f"{shown.certain:.3f}",
                f"{shown.runs:,}",
                f"{facts['caught'][name]} of {facts['repeats']}",
            ]
        )
    head = ["name", "bug", "worst case", "claimed ε", "ε at least: 95%", "99.9%"]
    sound, seeds = facts["without bugs"], facts["configuration"]["seeds"]
    text = (
        f"`quorum audit --planted all --repeats {facts['repeats']}`, seeds {seeds[0]} to "
        f"{seeds[-1]}, of which the first is shown and all are in the results "
        f"({provenance(facts)}). The same audits of the sound code gave {sound['findings']} lines, "
        f"of which {sound['accused'] or 'none'} accused it."
    )
    return f"{table([*head, 'runs of each kind', 'caught'], rows, words=3)}\n\n{text}"


def membership() -> str:
    return "\n\n".join(_game(found(game)) for game in GAMES)


def _game(facts: dict[str, Any]) -> str:
    """The shares that every attack finds, with privacy and without."""
    attacks, chosen = facts["attacks"], facts["configuration"]
    methods = list(dict.fromkeys(one["method"] for one in attacks))
    names = list(dict.fromkeys(one["attack"] for one in attacks))
    shares = {(one["method"], one["attack"]): _share(one) for one in attacks}
    rows = [[name, *(shares.get((method, name), "") for method in methods)] for name in names]
    best = {
        method: max(one["true_positives"] for one in attacks if one["method"] == method)
        for method in methods
    }
    text = (
        f"**{facts['world']}, {chosen['experts']:,} experts** with about "
        f"{chosen['transitions'] / chosen['experts']:,.0f} steps each, {chosen['games']} games, "
        f"ε = {chosen['epsilon']:g}, δ = {chosen['delta']:g} ({provenance(facts)}). The best "
        "attack finds "
        + " and ".join(f"{best[method]:.1%} ({_said(method)})" for method in methods)
        + f" of those who took part; guessing finds 0.1%. {_released(names)}"
    )
    head = ["found at 0.1% false positives [95%]", *(_said(method) for method in methods)]
    return f"{text}\n\n{table(head, rows)}"


def _released(names: list[str]) -> str:
    if "released prefixes" in names:
        return "Every private game released prefixes."
    return "Not every private game released prefixes, so that attack is left out."


def _share(one: dict[str, Any]) -> str:
    low, high = one["interval"]
    return f"{one['true_positives']:.2%} [{low:.2%}, {high:.2%}]"


def _said(method: str) -> str:
    return "without privacy" if method == "non-private" else f"private, {method}"


def draw() -> None:
    mpl.rcParams["svg.hashsalt"] = "quorum"  # the same picture is the same file
    pictures = {"audit": draw_findings([one for part in PARTS for one in findings_of(part)])}
    for game in GAMES:
        pictures[f"audit-{game}"] = draw_curves(found(game)["attacks"])
    for name, figure in pictures.items():
        figure.savefig(DOCS / "pictures" / f"{name}.svg", metadata={"Date": None})


SECTIONS: Sections = {
    "findings": findings,
    "accusations": accusations,
    "planted": planted,
    "membership": membership,
}


if __name__ == "__main__":
    write(PAGE, SECTIONS)
    draw()
