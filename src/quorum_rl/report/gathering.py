"""The facts of a report, from the files of a run folder."""

import json
import platform
import tomllib
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import numpy as np

from quorum_rl import __version__
from quorum_rl.errors import QuorumError
from quorum_rl.privacy import event_from_json
from quorum_rl.release import read_released
from quorum_rl.report.episode import gather_episode
from quorum_rl.report.facts import (
    Agreement,
    Comparison,
    Evaluation,
    Learned,
    LearningCurve,
    Maybe,
    MethodResult,
    Missing,
    Notice,
    Prefixes,
    RunReport,
)
from quorum_rl.report.guarantee import gather_guarantee
from quorum_rl.report.json_facts import (
    as_object,
    interval_or_none,
    items,
    number,
    number_or_none,
    read_object,
    reading,
    text,
    text_or_none,
    whole,
    whole_or_none,
)

MOST_POINTS: Final = 400  # of a learning curve; more do not show
PACKAGES: Final = ("jax", "numpy", "dp-accounting", "optax")
DIAGNOSTICS: Final = Notice(
    "Contains diagnostics that are not private",
    "The agreement of the experts was computed from their logs without noise, which no certificate "
    "covers. Do not pass this page on if the experts are real.",
    grave=True,
)
NOT_PRIVATE: Final = Notice(
    "Not private",
    "This policy was trained on the logs without any noise. Nothing protects the experts in it.",
    grave=True,
)


def gather(
    folder: Path, agreement: Agreement | None = None, ledger: Path | None = None
) -> RunReport:
    """Everything a report shows about the run in `folder`, whose `ledger` may be elsewhere.

    Guarantee: reads what may be published about the run and nothing else, `agreement` apart: not
    the demonstrations, not the experts, nothing in `private/`.

    Raises:
        QuorumError: if there is no run, or one of its files is damaged.
    """
    config = _configuration(folder)
    with reading(folder / "config.json", "quorum fit"):
        learned = _learned(config)
        delta = number(config, "delta")
        settings, versions = _settings(config), _versions(config)
        iterations = _iterations(config)
    guarantee, spending, notices = gather_guarantee(folder, delta, ledger)
    if learned.method == "non-private":
        notices = (NOT_PRIVATE, *notices)
    if agreement is not None:
        notices = (DIAGNOSTICS, *notices)
    return RunReport(
        name=folder.resolve().name,
        made_at=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        learned=learned,
        notices=notices,
        guarantee=guarantee,
        spending=spending,
        evaluation=_evaluation(folder),
        comparison=_comparison(folder),
        prefixes=_prefixes(folder, iterations),
        learning=_learning_curve(folder),
        episode=gather_episode(folder, learned.world),
        agreement=agreement,
        repeat=_repeat(folder),
        settings=settings,
        versions=versions,
    )


def _configuration(folder: Path) -> dict[str, Any]:
    path = folder / "config.json"
    if not path.exists():
        raise QuorumError(f"{str(folder)!r} holds no run (no config.json): give a run's folder.")
    with reading(path, "quorum fit"):
        return read_object(path)


def _learned(config: dict[str, Any]) -> Learned:
    declared, settings = as_object(config["declared"], "declared"), _settings_of(config)
    return Learned(
        method=text(settings, "method"),
        mode=text(settings, "mode"),
        learner=_learner(config),
        world=text_or_none(declared, "world"),
        minimum_experts=whole_or_none(declared, "minimum_experts"),
        action_count=whole(declared, "action_count"),
        observation_size=whole(declared, "observation_size"),
        horizon=whole(declared, "horizon"),
        p_min=number_or_none(declared, "p_min"),
        smoothing=text_or_none(declared, "smoothing"),
    )


def _learner(config: dict[str, Any]) -> str:
    """The learner in a line; runs of earlier versions have it as one."""
    if isinstance(config["learner"], str):
        return text(config, "learner")
    facts = as_object(config["learner"], "learner")
    rest = ", ".join(f"{name} {value}" for name, value in facts.items() if name != "name")
    return f"{text(facts, 'name')} ({rest})"


def _settings_of(config: dict[str, Any]) -> dict[str, Any]:
    return as_object(config["settings"], "settings")


def _settings(config: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Every choice that decided the run, in the words of the configuration."""
    asked = {name: config[name] for name in ("epsilon", "delta")} | {"learner": _learner(config)}
    return tuple((name, _shown(value)) for name, value in (asked | _settings_of(config)).items())


def _shown(value: Any) -> str:
    return "left open" if value is None else str(value)


def _iterations(config: dict[str, Any]) -> int | None:
    """How many trajectories the release of this run looked at, if it had one."""
    for facts in items(config, "events"):
        if as_object(facts, "an event").get("event") == "release":
            return int(event_from_json(facts).iterations)  # type: ignore[union-attr]
    return None


def _versions(config: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """Of what made the run where it says so, and of what made this page."""
    found = [
        (f"{name}, of the run", _shown(value))
        for name, value in as_object(config.get("versions", {}), "versions").items()
    ]
    found += [("Quorum", __version__), ("Python", platform.python_version())]
    for name in PACKAGES:
        try:
            found.append((name, version(name)))
        except PackageNotFoundError:  # a plain checkout has no metadata of its own parts
            continue
    return tuple(found)


def _shown_path(folder: Path) -> str:
    """An absolute path would say whose machine it was, and so may one that climbs out of here."""
    climbs = folder.is_absolute() or ".." in folder.parts
    return folder.resolve().name if climbs else folder.as_posix()


def _repeat(folder: Path) -> str:
    """The command that does the run again: the one whose words the run kept."""
    shown, path = _shown_path(folder), folder / "config.toml"
    if not path.exists():
        return f"quorum_rl.fit(demonstrations, experts, ...)  # as {shown}/config.json says"
    with reading(path, "quorum fit"):
        (command,) = tomllib.loads(path.read_text(encoding="utf-8"))  # a table for each command
    return f"quorum {command} --config {shown}/config.toml --folder {shown}-again"


def _evaluation(folder: Path) -> Maybe[Evaluation]:
    path = folder / "evaluation.json"
    if not path.exists():
        return Missing(
            "The policy has not been evaluated.", f"quorum evaluate {_shown_path(folder)}"
        )
    with reading(path, "quorum evaluate"):
        facts = read_object(path)
        return Evaluation(
            world=text(facts, "world"),
            episodes=whole(facts, "episodes"),
            mean=number(facts, "mean"),
            interval=interval_or_none(facts, "interval"),
            score=number_or_none(facts, "score"),
            score_interval=interval_or_none(facts, "score_interval"),
            protocol=text(facts, "protocol"),
        )


def _comparison(folder: Path) -> Maybe[Comparison]:
    path = folder / "comparison.json"
    if not path.exists():
        return Missing(
            "This run was not compared with other methods. A comparison trains on the logs without "
            "noise as well, so it is made on synthetic experts only:",
            "quorum demo",
        )
    with reading(path, "quorum demo"):
        facts = read_object(path)
        return Comparison(
            world=text(facts, "world"),
            experts=whole(facts, "experts"),
            seeds=whole(facts, "seeds"),
            methods=tuple(_method(as_object(one, "a method")) for one in items(facts, "methods")),
        )


def _method(facts: dict[str, Any]) -> MethodResult:
    return MethodResult(
        name=text(facts, "name"),
        epsilon=number_or_none(facts, "epsilon"),
        delta=number_or_none(facts, "delta"),
        scores=tuple(number({"scores": score}, "scores") for score in items(facts, "scores")),
        score=number(facts, "score"),
        interval=interval_or_none(facts, "interval"),
        mean_return=number_or_none(facts, "mean_return"),
        note=text_or_none(facts, "note") or "",
    )


def _prefixes(folder: Path, iterations: int | None) -> Maybe[Prefixes]:
    path = folder / "released.parquet"
    if not path.exists():
        return Missing("Nothing was released in this run.")
    lengths, counts = np.unique(read_released(path).lengths, return_counts=True)
    if not len(lengths):
        return Missing("The release came out empty: no prefix had enough experts behind it.")
    return Prefixes(tuple(zip(lengths.tolist(), counts.tolist(), strict=True)), iterations)


def _learning_curve(folder: Path) -> Maybe[LearningCurve]:
    path = folder / "metrics.jsonl"
    if not path.exists():
        return Missing("This run wrote no metrics, so there is no learning curve.")
    with reading(path, "quorum fit"):
        lines = path.read_text(encoding="utf-8").splitlines()
        found = [as_object(json.loads(line), "a line") for line in lines if line.strip()]
        values = np.array(
            [(number(line, "step"), number(line, "loss_on_released")) for line in found]
        ).reshape(-1, 2)
    if not len(values):
        return Missing("No step was taken on released data, so there is no learning curve.")
    averaged = -(-len(values) // MOST_POINTS)
    groups = np.array_split(values, -(-len(values) // averaged))
    points = tuple((float(step), float(loss)) for step, loss in (g.mean(axis=0) for g in groups))
    return LearningCurve(points, averaged)
