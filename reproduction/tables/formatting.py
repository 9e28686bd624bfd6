"""How numbers, intervals and tables are written."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from quorum_rl.evaluation import Interval, as_fraction_of, summarise
from reproduction.results import Facts

BILLION: Final = 1e9


def table(header: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """A table whose first columns, so many, are words; the others are numbers."""
    aligned = ["---"] * words + ["--:"] * (len(header) - words)
    return "\n".join(f"| {' | '.join(row)} |" for row in [header, aligned, *rows])


def fixed(value: float, digits: int = 0) -> str:
    """A number to so many places, with a true minus sign."""
    return f"{value:.{digits}f}".replace("-", "−")


def hundredths(value: float, sign: str = "") -> str:
    """A number to two places, with a true minus sign, and none before a zero."""
    text = f"{value:{sign}.2f}"
    return text.replace("-0.00", f"{sign}0.00").replace("-", "−")


def number(value: float) -> str:
    """A return: four digits, or three and an exponent."""
    return f"{value:.2e}" if abs(value) >= 1e5 else f"{value:.4g}".replace("-", "−")


def at_epsilons(epsilons: Sequence[float]) -> list[str]:
    """Heads of columns."""
    return [f"ε = {epsilon:g}" for epsilon in epsilons]


def brackets(interval: Interval | None) -> str:
    if interval is None:
        return ""
    return f" [{hundredths(interval.low)}, {hundredths(interval.high)}]"


def fraction(scores: Any, bound: Any) -> str:
    """Scores as a fraction of the bound's mean, with their interval."""
    made = summarise(as_fraction_of(np.array(scores), bound))
    return hundredths(made.mean) + brackets(made.mean_interval)


def mean(returns: Sequence[float]) -> str:
    return f"{round(sum(returns) / len(returns))}".replace("-", "−")


def by_seed(returns: Sequence[float]) -> str:
    """The mean, and every seed's."""
    each = ", ".join(mean([seed]) for seed in returns)
    return f"{mean(returns)} ({each})" if len(returns) > 1 else mean(returns)


def in_billions(returns: Sequence[float]) -> str:
    return " ".join(hundredths(earned / BILLION) for earned in returns)


def option(name: str, value: float) -> str:
    """A setting in words."""
    return f"{name.replace('_', ' ')} {value:g}"


def provenance(facts: Mapping[str, Any]) -> str:
    """Where a result comes from, in words."""
    machine = facts["machine"].split(",")[0].removeprefix("gpu ").removeprefix("cpu ")
    return f"{machine}, {facts['seconds']:.0f} s, commit `{facts['commit']}`"


def world_and_learner(facts: Facts) -> str:
    return f"{facts['world']}, {facts['configuration']['learner'].upper()}"
