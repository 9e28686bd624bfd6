"""All that a run shows, with an expert and without: nothing differs but what has noise.

Both runs draw the same bits, and the mechanisms see nobody: contributions are zero, judges tell
zeros, no prefix passes. What differs then was counted, named or measured beside the mechanisms.
"""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from commands import Quorum
from crash_points import process
from fits import HORIZON, Crowd, crowd, fitted
from ledger_files import pool
from tree_logs import table_experts

from quorum_rl.budget import key_path
from quorum_rl.judging import ask, parted
from quorum_rl.logs import Demonstrations, save_demonstrations
from quorum_rl.pipeline import FitSettings
from quorum_rl.pipeline.context import configuration
from quorum_rl.training.units import BINS

Shown = dict[str, Any]

RUN: Final = Path("run")
LAST: Final = 399  # the expert in question
STILL: Final = ("--epsilon", "5", "--delta", "0.01", "--local-rate", "1e-60", "--private-steps",
                "3", "--local-steps", "1", "--hidden", "2", "--judges", "0.5", "--return-bounds",
                "0", "5", "--accept", "one-expert-each", "own-names")  # fmt: skip
RELEASING: Final = FitSettings(
    method="selective",
    iterations=6,
    private_steps=3,
    clip_norm=1e10,  # so that a gradient is less than a unit of the lattice
    least_released=0,
    release_only_steps=3,
)
AFTERWARDS: Final = (
    ("report", RUN),
    ("publish", RUN, "--out", "bundle"),
    ("ledger", "show", RUN / "ledger.jsonl"),
    ("certificate", "show", RUN),
    ("certificate", "verify", "bundle", "--json"),
)


def some(with_them: bool, identity: str) -> Crowd:
    """The crowd with or without its last expert, who has a long name and earns and sees much."""
    log = crowd(identity=identity, minimum=396).log
    names = (*(f"desk-{number:03d}" for number in range(LAST)), "the one who is sought" * 9)
    rewards, seen = log.columns.rewards.copy(), log.columns.observations.copy()
    theirs = log.episodes.expert == LAST
    rewards[log.episodes.first_step[theirs][0] :] = -1e30
    seen[log.episodes.first_state[theirs][0] :] = 1e30
    changed = replace(
        log, columns=log.columns._replace(rewards=rewards, observations=seen), expert_names=names
    )
    if not with_them:
        changed = replace(changed.select(~theirs), expert_names=names[:LAST])
    tables = np.broadcast_to([0.9, 0.1], (changed.expert_count, HORIZON + 1, 2))
    return Crowd(table_experts(tables, 0.1), changed)


def by_command(people: Crowd, quorum: Quorum) -> list[str]:
    save_demonstrations(people.log, "log.arrow")
    return [quorum("fit", "log.arrow", *STILL, "--folder", RUN, "--json"), quorum.err]


def by_a_program(people: Crowd, _: Quorum) -> list[str]:
    said: list[str] = []
    choices: Shown = {"settings": RELEASING, "judges": 0.5, "seed": None, "report": said.append}
    choices["units"] = "private"
    made = fitted(people, RUN, track=lambda facts: said.append(str(facts)), **choices)
    return [*said, repr(made), made._repr_html_()]


FITS: Final = {"by a command": by_command, "by a program": by_a_program}


def all_shown(
    fit: str, with_them: bool, place: Path, quorum: Quorum, commands: Sequence[Any]
) -> Shown:
    """Everything that is printed, and every file that may leave, with who may read it."""
    place.mkdir()
    with process(0, place), pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        said = FITS[fit](some(with_them, pool(1)), quorum)
        for command in commands:
            said += [quorum(*command), quorum.err]
        key_path(RUN / "ledger.jsonl").unlink()  # which nobody is shown
        files = [path for folder in (RUN, Path("bundle")) for path in sorted(folder.rglob("*"))]
        return {
            "said": [re.sub(r"\d:\d\d:\d\d", "", text) for text in said],  # how long it took
            **{str(path): (path.stat().st_mode, path.read_bytes()) for path in files},
        }


def nobody_passes(*given: Any) -> Any:
    return np.zeros_like(given[1])


def tells_nothing(judges: Demonstrations, _: Any, plan: Any) -> Any:
    return np.zeros((judges.expert_count, plan.size))


def tells_no_unit(experts: Demonstrations, plan: Any) -> Any:
    return np.zeros((experts.expert_count, len(plan.asked) * BINS))


@pytest.fixture(autouse=True)
def _mechanisms_that_see_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("quorum_rl.release.run.released_lengths", nobody_passes)
    monkeypatch.setattr("quorum_rl.pipeline.judging_stage.told_by", tells_nothing)
    monkeypatch.setattr("quorum_rl.pipeline.units_stage.told_units", tells_no_unit)


def difference(fit: str, folder: Path, quorum: Quorum, commands: Sequence[Any] = ()) -> list[str]:
    """What is not the same to the bit."""
    first, second = (
        all_shown(fit, there, folder / str(there), quorum, commands) for there in (True, False)
    )
    assert first.keys() == second.keys()
    return [name for name in first if first[name] != second[name]]


@pytest.mark.parametrize("fit", FITS)
def test_nothing_that_is_shown_differs_but_what_has_noise(
    fit: str, tmp_path: Path, quorum: Quorum
) -> None:
    assert difference(fit, tmp_path, quorum, AFTERWARDS) == []


def counts_in_the_configuration(plan: Any, log: Demonstrations, seed: int | None) -> Any:
    return configuration(plan, log, seed) | {"experts": log.expert_count}


def asks_without_noise_how_many(told: Any, plan: Any, key: Any) -> Any:
    return ask(told, plan, key) + len(told)


def names_whoever_judges(log: Demonstrations, key: Any) -> Any:
    Path(RUN, "parts.json").write_text(str([part.names for part in parted(log, key)]))
    return parted(log, key)


BUGS: Final = {
    "config.json": ("quorum_rl.pipeline.run.configuration", counts_in_the_configuration),
    "judging.json": ("quorum_rl.pipeline.judging_stage.ask", asks_without_noise_how_many),
    "parts.json": ("quorum_rl.pipeline.run.parted", names_whoever_judges),
}


@pytest.mark.parametrize("file", BUGS)
def test_what_is_counted_or_named_beside_the_mechanisms_is_seen(
    file: str, tmp_path: Path, quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(*BUGS[file])
    assert f"run/{file}" in difference("by a program", tmp_path, quorum)
