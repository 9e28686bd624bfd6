"""Makes every table and picture of the docs anew, or says which are not current.

    python -m reproduction.tables
    python -m reproduction.tables --check

What stands in a page between a line <!-- NAME --> and a line <!-- /NAME --> is made here; all else
is left alone. So no number of those tables is typed by hand.
"""

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from matplotlib.figure import Figure

from reproduction.results import study as whole
from reproduction.tables import (
    audit,
    concepts,
    continuous,
    few,
    grid,
    hiv,
    judging,
    paper,
    populations,
    result,
    studies,
    tried,
    tuning,
)
from reproduction.tables.pictures import is_current, save

ROOT: Final = Path(__file__).parents[2]
PICTURES: Final = ROOT / "docs" / "pictures"

Sections = Mapping[str, Callable[[], str]]
PAGES: Final[dict[str, Sections]] = {
    "README.md": {"glance": few.at_a_glance},
    "docs/accounting.md": {"accounts": paper.accounts},
    "docs/audit.md": {
        "findings": audit.findings,
        "accusations": audit.accusations,
        "planted": audit.planted,
    },
    "docs/few-experts.md": {
        "results": few.results,
        "beside": few.beside,
        "goals": few.goals,
        "further": few.further,
        "tried": tried.what_was_tried,
        "values": few.values,
        "released": few.released,
    },
    "docs/judging.md": {"values": judging.values},
    "docs/results.md": {"headline": lambda: populations.headline(whole("populations"))},
    "docs/reproduction.md": {
        "offered": lambda: populations.settings(whole("populations")),
        "released": lambda: populations.released(whole("populations")),
        "continuous": continuous.earned,
        "continuous values": judging.continuous_values,
        "result": result.fractions,
        "goals": paper.goals,
        "experts": paper.experts,
        "comparisons": paper.comparisons,
        "published": paper.published,
        "costs": paper.costs,
        "releases": paper.releases,
        "long trainings": studies.long_trainings,
        "steps": studies.private_steps,
        "ablation": paper.ablation,
        "beside": studies.beside_a_release,
        "grid": grid.grid,
        "low epsilon": grid.split_at_low_epsilon,
        "counts": paper.counts,
        "seconds": paper.seconds,
        "alone": studies.from_nothing,
        "choices": tuning.choices,
        "units": tuning.units,
        "chosen settings": tuning.chosen_settings,
        "rates": tuning.rates,
        "bcq": tuning.bcq,
        "rewards": tuning.rewards,
        "rewards at full scale": paper.rewards_at_full_scale,
        "noise": tuning.noise,
        "split": hiv.split,
        "hiv, small experts": hiv.small_experts,
        "hiv, the paper's experts": hiv.papers_experts,
        "hiv, least epsilon": hiv.least_epsilon,
    },
    "docs/scale.md": {"devices": studies.devices},
}


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


def pictures() -> Iterator[tuple[str, Figure]]:
    """Every picture that is drawn from results or plans."""
    yield "few-experts", few.picture()
    yield "result", result.picture()
    yield "paper-experts", result.picture_of_experts()
    for draw in (populations.by_experts, populations.by_method, populations.beside_others):
        yield f"results-{draw.__name__.replace('_', '-')}", draw(whole("populations"))
    yield from audit.pictures().items()
    yield from concepts.pictures()


def stale(root: Path = ROOT) -> Iterator[str]:
    """The pages and pictures that are not what the results say."""
    for name, sections in PAGES.items():
        text = (root / name).read_text(encoding="utf-8")
        for section, made in sections.items():
            if rendered(text, {section: made}) != text:
                yield f"{name}, {section}"
    for name, figure in pictures():
        file = Path("docs/pictures") / f"{name}.svg"
        if not is_current(figure, root / file):
            yield str(file)


def write() -> Iterator[str]:
    """Make all of them anew, and name them."""
    for name, sections in PAGES.items():
        page = ROOT / name
        page.write_text(rendered(page.read_text(encoding="utf-8"), sections), encoding="utf-8")
        yield name
    for name, figure in pictures():
        save(figure, PICTURES / f"{name}.svg")
        yield f"docs/pictures/{name}.svg"


def main(words: Iterable[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="change nothing")
    given = parser.parse_args(None if words is None else list(words))
    if not given.check:
        print("\n".join(write()))
        return
    found = list(stale())
    print("\n".join(f"not current: {name}" for name in found) or "all are current")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
