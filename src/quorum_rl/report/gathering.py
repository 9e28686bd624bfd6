"""The facts of a report, from the files of a run folder."""

import platform
import shlex
import tomllib
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final

import numpy as np

from quorum_rl import __version__
from quorum_rl.dictionary import called
from quorum_rl.files import plain_bytes
from quorum_rl.json_files import (
    CONFIG,
    as_object,
    items,
    made_of,
    number,
    object_of,
    read_config,
    read_object,
    reading,
    whole,
)
from quorum_rl.privacy import event_from_json
from quorum_rl.release import read_released
from quorum_rl.report.episode import gather_episode
from quorum_rl.report.facts import (
    ComparedMethods,
    Evaluation,
    Judged,
    JudgedAnswer,
    Learned,
    LearningCurve,
    Maybe,
    Missing,
    Notice,
    Prefixes,
    RunReport,
)
from quorum_rl.report.guarantee import gather_guarantee

REPEATED: Final = ("fit", "sweep", "site.fit")  # the tables of what writes a configuration
MOST_POINTS: Final = 400  # of a learning curve; more do not show
PACKAGES: Final = ("jax", "numpy", "dp-accounting", "optax")
NOT_PRIVATE: Final = Notice(
    "Not private",
    "This policy was trained on the logs without any noise. Nothing protects the experts in it.",
    grave=True,
)


def gather(folder: Path, ledger: Path | None = None) -> RunReport:
    """Everything a report shows about the run in `folder`, whose `ledger` may be elsewhere.

    Guarantee: reads what may be published about the run and nothing else: not the demonstrations,
    not the experts, nothing in `private/`.

    Raises:
        QuorumError: if there is no run, or one of its files is damaged.
    """
    config, chosen = read_config(folder), _chosen_in(folder)
    with reading(folder / CONFIG, "quorum fit"):
        learned = _learned(config, chosen)
        delta = number(config, "delta")
        settings, versions = _settings(config, learned), _versions(config)
        settings += _units(folder)
        iterations = _iterations(config)
    labels = () if learned.dictionary is None else learned.dictionary.action_labels
    guarantee, spending, notices = gather_guarantee(folder, delta, ledger)
    if learned.method == "non-private":
        notices = (NOT_PRIVATE, *notices)
    return RunReport(
        name=folder.resolve().name,
        made_at=datetime.now(UTC).date().isoformat(),
        learned=learned,
        notices=notices,
        guarantee=guarantee,
        spending=spending,
        evaluation=_evaluation(folder, learned.world),
        judged=_judged(folder, labels),
        comparison=_comparison(folder),
        prefixes=_prefixes(folder, iterations),
        learning=_learning_curve(folder, chosen),
        episode=gather_episode(folder, learned.world),
        repeat=_repeat(folder),
        settings=settings,
        versions=versions,
    )


def _chosen_in(folder: Path) -> int:
    """The number of the candidate that became the policy of this run."""
    path = folder / "judging.json"
    if not path.exists():
        return 0
    with reading(path, "quorum fit"):
        return _chosen(read_object(path))


def _learned(config: dict[str, Any], chosen: int) -> Learned:
    declared = as_object(config["declared"], "declared")
    settings = as_object(config["settings"], "settings")
    among = items(config, "candidates") if "candidates" in config else [config["learner"]]
    learner = dict(enumerate(among))[chosen]
    return made_of(Learned, settings | declared | {"learner": _learner(learner)})


def _learner(written: Any) -> str:
    """The learner in a line; runs of earlier versions have it as one."""
    if isinstance(written, str):
        return written
    facts = as_object(written, "learner")
    rest = ", ".join(f"{name} {value}" for name, value in facts.items() if name != "name")
    return f"{facts['name']} ({rest})"


def _settings(config: dict[str, Any], learned: Learned) -> tuple[tuple[str, str], ...]:
    """Every choice that decided the run, in the words of the configuration."""
    asked = {name: config[name] for name in ("epsilon", "delta")} | {"learner": learned.learner}
    return tuple((name, _shown(value)) for name, value in (asked | config["settings"]).items())


def _units(folder: Path) -> tuple[tuple[str, str], ...]:
    """What the experts were asked for, in the words of the run."""
    path = folder / "units.json"
    if not path.exists():
        return ()
    with reading(path, "quorum fit"):
        said = [str(line) for line in items(read_object(path), "said")]
    return (("private units", "; ".join(said)),)


def _shown(value: Any) -> str:
    return "left open" if value is None else str(value)


def _iterations(config: dict[str, Any]) -> int | None:
    """How many trajectories the release of this run looked at, if it had one."""
    for facts in items(config, "events"):
        if as_object(facts, "an event").get("event") == "release":
            return int(event_from_json(facts).iterations)  # type: ignore[union-attr]
    return None


def _versions(config: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    """The versions of what made the run, if it recorded them, and of what made this page."""
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
    """A path without what tells whose machine it is on: absolute ones do, and some with `..`."""
    climbs = folder.is_absolute() or ".." in folder.parts
    return folder.resolve().name if climbs else folder.as_posix()


def _repeat(folder: Path) -> str:
    """The command that repeats the run, from the configuration that the run kept."""
    shown, path = _shown_path(folder), folder / "config.toml"
    if not path.exists():
        return f"quorum_rl.fit(demonstrations, experts, ...)  # as {shown}/config.json says"
    with reading(path, "quorum fit"):
        tables = tomllib.loads(plain_bytes(path).decode())
        names = {*tables, *(f"site.{name}" for name in as_object(tables.get("site", {}), "site"))}
        (command,) = (name.replace(".", " ") for name in REPEATED if name in names)
    # Somebody will copy this into a shell, and the folder may have come from anybody.
    source, target = shlex.quote(f"{shown}/config.toml"), shlex.quote(f"{shown}-again")
    return f"quorum {command} --config {source} --folder {target}"


def _evaluation(folder: Path, world: str | None) -> Maybe[Evaluation]:
    path = folder / "evaluation.json"
    if not path.exists():
        command = f"quorum evaluate {_shown_path(folder)}"
        if world is None:
            why = "These logs name no world, so nobody has seen the policy act. With a simulator:"
            return Missing(why, f"{command} --world path/to/file.py:NAME")
        return Missing("The policy has not been evaluated.", command)
    with reading(path, "quorum evaluate"):
        return made_of(Evaluation, read_object(path))


BETTER: Final = {
    "yes": "The judges say that it is better than what is done today.",
    "no": "The judges say that it is not better than what is done today.",
    "cannot tell": "The judges cannot tell whether it is better than what is done today.",
}


def _judged(folder: Path, labels: Sequence[str] = ()) -> Maybe[Judged]:
    path = folder / "judging.json"
    if not path.exists():
        return Missing("No part of the experts judged this policy.")
    with reading(path, "quorum fit"):
        facts = read_object(path)
        asked = {
            "what the experts earn": facts["mean_return"],
            "what the policy earns": facts["value"],
        }
        asked = {what: answer for what, answer in asked.items() if answer is not None}
        about = as_object(facts["judges"], "judges")
        near = about.get("continuous") is True
        agreement = "how near the policy comes to" if near else "how often the policy does"
        asked[f"{agreement} what they did"] = facts["agreement"]
        each = "as near, in" if near else "the same, where they took"
        by_action = [
            (f"{each} {called(action, labels, continuous=near)}", answer)
            for action, answer in enumerate(items(facts, "agreement_by_action"))
        ]
        share = number(about, "share")
        better = None if facts["better"] is None else BETTER[facts["better"]]
        answers, candidates = _answers(list(asked.items())), _candidates(facts)
        return Judged(share, answers, _answers(by_action), better, candidates, _chosen(facts))


def _chosen(facts: dict[str, Any]) -> int:
    """The number of the candidate that the judges chose, the first where they did not."""
    among = items(facts, "candidates") if "candidates" in facts else []
    chosen = whole(facts, "chosen") if among else 0
    if not 0 <= chosen < max(len(among), 1):
        raise ValueError("chosen is none of the candidates")
    return chosen


def _candidates(facts: dict[str, Any]) -> tuple[JudgedAnswer, ...]:
    """What each candidate earns, by its name; nothing where there was no choice."""
    if "candidates" not in facts:
        return ()
    each = [as_object(one, "a candidate") for one in items(facts, "candidates")]
    return _answers([(f"what {one['learner']} earns", one["value"]) for one in each])


def _answers(told: list[tuple[str, Any]]) -> tuple[JudgedAnswer, ...]:
    return tuple(_answer(what, as_object(facts, what)) for what, facts in told)


def _answer(what: str, facts: dict[str, Any]) -> JudgedAnswer:
    estimate = facts["estimate"] if facts["tells"] is True else None
    interval, bounds = [facts["low"], facts["high"]], facts["bounds"]
    shown = {"what": what, "estimate": estimate, "interval": interval, "bounds": bounds}
    return made_of(JudgedAnswer, shown)


def _comparison(folder: Path) -> Maybe[ComparedMethods]:
    path = folder / "comparison.json"
    if not path.exists():
        return Missing("This run was not compared with other methods.", meant=False)
    with reading(path, "quorum demo"):
        return made_of(ComparedMethods, read_object(path))


def _prefixes(folder: Path, iterations: int | None) -> Maybe[Prefixes]:
    path = folder / "released.parquet"
    if not path.exists():
        return Missing("Nothing was released in this run.", meant=iterations is not None)
    lengths, counts = np.unique(read_released(path).lengths, return_counts=True)
    if not len(lengths):
        return Missing("The release came out empty: no prefix had enough experts behind it.")
    return Prefixes(tuple(zip(lengths.tolist(), counts.tolist(), strict=True)), iterations)


def _learning_curve(folder: Path, chosen: int = 0) -> Maybe[LearningCurve]:
    """The curve of the policy, which may be one of several candidates."""
    path = folder / "metrics.jsonl"
    if not path.exists():
        return Missing("This run wrote no metrics, so there is no learning curve.", meant=False)
    with reading(path, "quorum fit"):
        lines = [object_of(line) for line in plain_bytes(path).splitlines() if line.strip()]
        values = np.array([(number(line, "step"), number(line, "loss_on_released"))
                           for line in lines if "loss_on_released" in line
                           and line.get("candidate", chosen) == chosen])  # fmt: skip
    if not len(values):
        why = "No step was taken on released data, so there is no learning curve."
        return Missing(why, meant=False)
    averaged = -(-len(values) // MOST_POINTS)
    means = [group.mean(axis=0) for group in np.array_split(values, -(-len(values) // averaged))]
    return LearningCurve(tuple((float(step), float(loss)) for step, loss in means), averaged)
