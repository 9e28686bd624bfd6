"""The tables and pictures of audit.md."""

import math
from typing import Final

from matplotlib.figure import Figure

from quorum_rl.audit import BUGS, Finding, draw_findings
from quorum_rl.audit.finding import GAUSSIAN
from reproduction.results import study
from reproduction.tables.formatting import provenance, table

PARTS: Final = ("release", "training", "pipeline")
SEEN: Final = {"released": "what came out"}  # others are called what they are


def _every_finding() -> list[Finding]:
    return [Finding.from_json(row) for part in PARTS for row in study("audit")[part]["findings"]]


def findings() -> str:
    results = study("audit")
    sources = "; ".join(f"{part}: {provenance(results[part])}" for part in PARTS)
    seeds = {results[part]["configuration"]["seed"] for part in PARTS}
    text = f"`quorum audit --only PART`, seed {', '.join(map(str, sorted(seeds)))} ({sources})."
    head = ["what", "the adversary sees", "claimed ε", "ε at least (95%)", "of the claim", "δ"]
    head += ["runs of each kind", "could show at most (99.9%)"]
    return f"{table(head, [_row(finding) for finding in _every_finding()], words=2)}\n\n{text}"


def _row(finding: Finding) -> list[str]:
    threat = finding.threat.split(":")[0]
    epsilon, hopeless = finding.bound.epsilon, ": cannot be refuted with so few runs"
    return [
        finding.what,
        SEEN.get(threat, threat) + (", Gaussian" if finding.note == GAUSSIAN else ""),
        f"{finding.claimed:.3f}",
        f"{epsilon:.3f}",
        f"{math.floor(100 * epsilon / finding.claimed)}%",
        f"{finding.bound.delta:g}",
        f"{finding.runs:,}",
        f"{finding.ceiling:.3f}" + ("" if finding.refutable else hopeless),
    ]


def accusations() -> str:
    every = _every_finding()
    refutable = [finding for finding in every if finding.refutable]
    accused = sum(finding.refuted for finding in refutable)
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
    facts = study("audit")["planted"]
    rows = []
    for name, bug in BUGS.items():
        shown = Finding.from_json(facts["planted"][name][0])
        numbers = (shown.claimed, shown.bound.epsilon, shown.certain)
        caught = f"{facts['caught'][name]} of {facts['repeats']}"
        cells = [f"{value:.3f}" for value in numbers]
        rows.append([f"`{name}`", bug.said, shown.what, *cells, f"{shown.runs:,}", caught])
    head = ["name", "bug", "worst case", "claimed ε", "ε at least: 95%", "99.9%"]
    sound, seeds = facts["without bugs"], facts["configuration"]["seeds"]
    text = (
        f"`quorum audit --planted all --repeats {facts['repeats']}`, seeds {seeds[0]} to "
        f"{seeds[-1]}, of which the first is shown and all are in the results "
        f"({provenance(facts)}). The same audits of the sound code gave {sound['findings']} lines, "
        f"of which {sound['accused'] or 'none'} accused it."
    )
    return f"{table([*head, 'runs of each kind', 'caught'], rows, words=3)}\n\n{text}"


def pictures() -> dict[str, Figure]:
    return {"audit": draw_findings(_every_finding())}
