"""What the scripts share that write the docs' tables from result files.

What stands in a page between a line <!-- NAME --> and a line <!-- /NAME --> is made by a script;
everything else is left alone. So no number of those tables is typed by hand.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[1]
RESULTS = DOCS.parent / "results"

Sections = Mapping[str, Callable[[], str]]


def rendered(page: str, sections: Sections) -> str:
    """The page with its sections made anew."""
    for name, section in sections.items():
        first, last = f"<!-- {name} -->\n", f"<!-- /{name} -->"
        before, found_first, rest = page.partition(first)
        _, found_last, after = rest.partition(last)
        assert found_first, f"the page has no place for {name}"
        assert found_last, f"the page has no end of {name}"
        page = before + first + section() + "\n" + last + after
    return page


def write(name: str, sections: Sections) -> None:
    """Make the sections of one of the docs' pages anew."""
    page = DOCS / name
    page.write_text(rendered(page.read_text(encoding="utf-8"), sections), encoding="utf-8")


def table(header: list[str], rows: list[list[str]], words: int = 1) -> str:
    """A table whose first columns, so many, are words; the others are numbers."""
    aligned = ["---"] * words + ["--:"] * (len(header) - words)
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, aligned, *rows])


def hundredths(value: float, sign: str = "") -> str:
    """A number to two places, with a minus that is one, and none before a zero."""
    text = f"{value:{sign}.2f}"
    return text.replace("-0.00", f"{sign}0.00").replace("-", "−")


def by_learner(folder: Path) -> dict[str, dict[str, Any]]:
    """The results in a folder that has one for each learner."""
    files = [json.loads(file.read_text()) for file in sorted(folder.glob("*.json"))]
    return {facts["configuration"]["learner"]: facts for facts in files}


def for_each_learner(folder: Path, shown: Callable[[dict[str, Any]], str]) -> str:
    """A table of every result in such a folder, and where it comes from."""
    every = by_learner(folder).values()
    return "\n\n".join(f"{shown(facts)}\n\n{provenance(facts)}." for facts in every)


def steps_looked_at(facts: dict[str, Any]) -> list[int]:
    """After how many steps every way of a study was looked at, which is the same for all."""
    (steps,) = {tuple(row["steps"] for row in way["rows"]) for way in facts["ways"]}
    return list(steps)


def provenance(facts: dict[str, Any]) -> str:
    """Where a result comes from, in words."""
    machine = facts["machine"].split(",")[0].removeprefix("gpu ").removeprefix("cpu ")
    return f"{machine}, {facts['seconds']:.0f} s, commit `{facts['commit']}`"
