"""A sweep from its search to its winner: paid for first, then run program by program."""

import json
import random
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from quorum_rl.budget import (
    Budget,
    Certificate,
    Entropy,
    KeyedEntropy,
    Ledger,
    OsEntropy,
    are_words,
    check_committed,
    check_contents,
    commitments,
    secret_words,
)
from quorum_rl.errors import QuorumError
from quorum_rl.files import write_json
from quorum_rl.json_files import read_config, read_object
from quorum_rl.logs import salted_digest
from quorum_rl.pipeline import Progress, ReportLine, RunFolder, check_noisy
from quorum_rl.policy import Policy
from quorum_rl.privacy import total_epsilon
from quorum_rl.release import released_digest
from quorum_rl.sweep.options import SweepOptions
from quorum_rl.sweep.payment import certified, check_accountable, events_of, pay, shared_release
from quorum_rl.sweep.programs import Inputs, Spread, TrialResult, one_by_one
from quorum_rl.sweep.results import (
    has_ended,
    policy_file,
    read_judged,
    save_found,
    save_table,
    write_winner,
)
from quorum_rl.sweep.space import Choices
from quorum_rl.sweep.trials import Program, Trial, planned, programs_of
from quorum_rl.tensors import refusing_damage
from quorum_rl.types import Released

KEY_BITS: Final = 256
TRIALS: Final = "trials.json"
JUDGED_BY: Final = ("judge", "world", "world_code")
ANEW: Final = "bring it back, or choose another folder"


@dataclass(frozen=True)
class Swept:
    """How a sweep ended: its winner, and what that cost."""

    folder: Path
    trial: Trial
    judged: TrialResult
    certificate: Certificate | None
    trials: int | None  # how many there were; with private selection nobody may know


def sweep(
    asked: SweepOptions,
    folder: Path,
    *,
    spread: Spread = one_by_one,
    report: ReportLine = print,
    progress: Progress | None = None,
    command: str | None = None,
) -> Swept:
    """Run all trials, or those that an interrupted sweep has left, and keep the best.

    In `folder`: `sweep.parquet` (not if the selection is private), and in `winner/` the policy with
    its certificate. `spread` says where programs run.

    Guarantee: a ledger is charged before anything runs, and once, however often this is called;
    a program that is run again draws the same noise.

    Raises:
        QuorumError: if nothing can be run, or the ledger refuses.
        Interrupted: from `progress`; what programs have ended is kept.
    """
    trials = asked.trials()
    settings = [trial.plan.settings for trial in trials if trial.plan is not None]
    check_noisy(settings, asked.diagnostics_not_private or asked.select is not None)
    place = RunFolder(folder)
    if (place.winner / "policy.safetensors").exists():
        place.finish()  # in case that alone was interrupted
        raise QuorumError(f"{str(folder)!r} holds a finished sweep: choose another folder.")
    book = place.winner / "ledger.jsonl" if asked.ledger is None else asked.ledger
    with place.unless_refused(book):
        if asked.select is not None:
            check_accountable(asked, trials)
            asked = _for_all_together(asked, trials)
            trials = asked.trials()
            check_accountable(asked, trials)
        _settle(place, asked)
        if command is not None:
            place.write("config.toml", command)
        place.winner.mkdir(exist_ok=True)
        if asked.select is None:
            inputs = Inputs(asked, range(asked.first_seed, asked.first_seed + asked.seeds))
        else:
            trials, inputs = _paid(asked, trials, place, book, report)
        _ = inputs.judged_on  # refuses where there is nothing to judge by
        programs = programs_of(trials, asked.together)
        if not programs:
            raise QuorumError(f"no trial of {len(trials)} can be run: {trials[0].reason}")
    results = _results_of(place)
    results.mkdir(exist_ok=True)
    if asked.select != "private":
        report(f"{_counted(trials, 'trial')} in {_counted(programs, 'program')}")
    left = [program for program in programs if not has_ended(program, results)]
    for found in spread(inputs, left, progress):
        save_found(found, results)
    return _finished(asked, trials, programs, place, book)


def _results_of(place: RunFolder) -> Path:
    """The folder of what programs found: there once one may have run."""
    return place.private / "programs"


def _counted(things: Sequence[object], what: str) -> str:
    return f"{len(things)} {what}{'' if len(things) == 1 else 's'}"


def _settle(place: RunFolder, asked: SweepOptions) -> None:
    """Write down what is swept, or check that it is what was begun here.

    Whoever wanted to judge by the sweep's own release, without a world, may name another judge
    until a trial has run: the release may have given nothing. All that is known by then is what it
    let out, and by what to judge may depend on that.
    """
    wanted = asked.configuration()
    if (place.path / "config.json").exists() and not _results_of(place).exists():
        begun = read_config(place.path)
        judge = {name: begun.get(name) for name in JUDGED_BY}
        if judge == {"judge": "released", "world": None, "world_code": None}:
            place.settle(wanted | judge)
            place.write_json("config.json", wanted)
            return
    place.settle(wanted)


def _for_all_together(asked: SweepOptions, trials: Sequence[Trial]) -> SweepOptions:
    """The sweep with a release that does not run out at what all trials cost together."""
    common, shared = asked.common, shared_release(trials)
    if shared is None:
        return asked
    trainings = [event for event in events_of(asked, trials) if event != shared.event]
    if not trainings:
        return asked
    about = common.epsilon + total_epsilon(trainings, common.delta)
    return replace(asked, common=replace(common, whole_epsilon=about))


def _paid(
    asked: SweepOptions, trials: list[Trial], place: RunFolder, book: Path, report: ReportLine
) -> tuple[list[Trial], Inputs]:
    """Pay for a sweep whose selection is accounted; its trials, each with a key of its own."""
    delta = asked.common.delta
    report(
        f"a trial by itself costs at most epsilon = {asked.common.epsilon:g} at delta = {delta:g}, "
        f"and all with the choice among them {total_epsilon(events_of(asked, trials), delta):.4g}"
    )
    removal = asked.log.said_of_removal(asked.log.declared.minimum_experts)
    if removal is not None:
        report(removal)
    if asked.ledger is None and not book.exists():
        Budget.create(book, epsilon=None, delta=delta, kind="research")
    drawn = _secrets(place, asked)
    with Ledger.open(book) as opened:
        committed = _check_and_keep(place, opened, drawn, asked)
        released = pay(asked, trials, place, opened, KeyedEntropy(drawn["release"]), committed)
        if released is not None:
            _check_and_keep_released(place, opened, released)
    every, keys = drawn["trials"], tuple(drawn["keys"])
    chosen = planned(every, asked.common, asked.log.declared)
    if released is not None and not len(released):
        report("nothing was released: trials take their private steps alone")
        chosen = [_without_release(trial) for trial in chosen]
    return chosen, Inputs(asked, range(1), keys, released)


def _drawn(asked: SweepOptions, entropy: Entropy) -> list[Choices]:
    """As many trials as a geometric number of that mean says, each drawn by itself.

    Guarantee: neither how many nor which depends on any data.
    """
    stream = entropy.stream("number of trials")
    source = random.SystemRandom()
    every = [asked.search.one(source)]
    while stream.below(asked.mean_trials) != 0:
        every.append(asked.search.one(source))
    return every


def _secrets(place: RunFolder, asked: SweepOptions) -> dict[str, Any]:
    """The trials, their keys and what the release's noise follows from: as kept, or drawn.

    Raises:
        QuorumError: if what was kept is damaged, or that of an earlier version.
    """
    path, entropy = place.private / TRIALS, OsEntropy()
    if path.exists():
        with refusing_damage(f"{str(path)!r} is damaged, or of an earlier version", fix=ANEW):
            kept = read_object(path)
            if not (are_words(kept["release"]) and len(kept["trials"]) == len(kept["keys"])):
                raise ValueError("it holds no secrets")
            return kept
    every = _drawn(asked, entropy) if asked.select == "private" else asked.search.all()
    keys = [secrets.randbits(KEY_BITS) for _ in every]
    drawn = {"trials": every, "keys": keys, "release": secret_words(entropy)}
    return json.loads(json.dumps(drawn))  # type: ignore[no-any-return]


def _check_and_keep(
    place: RunFolder, opened: Ledger, drawn: dict[str, Any], asked: SweepOptions
) -> dict[str, str]:
    """Keep the secrets until the sweep is complete; what its charges hold of them.

    Raises:
        QuorumError: if the ledger was charged for other ones, or for another log.
    """
    held = {name: drawn.pop(name) for name in ("log", "released") if name in drawn}
    configuration = read_config(place.path)
    # All trials of a public selection are paid for, and only the best of a private one.
    free = () if asked.select == "private" else JUDGED_BY
    settled = {name: fact for name, fact in configuration.items() if name not in free}
    committed = commitments(drawn, settled)
    check_committed(opened.record, place.name(), committed, reproducible=False)
    beside = "" if asked.experts is None else asked.experts.digest()
    now = salted_digest(asked.log, drawn["release"], beside)
    check_contents(opened.record, place.name(), held.get("log"), now)
    write_json(place.private / TRIALS, drawn | held | {"log": now})
    return committed


def _check_and_keep_released(place: RunFolder, opened: Ledger, released: Released) -> None:
    """Keep which prefixes the trials learn beside.

    Raises:
        QuorumError: if they were others before the sweep was interrupted.
    """
    path = place.private / TRIALS
    kept, now = read_object(path), released_digest(released)
    check_contents(opened.record, place.name(), kept.get("released", now), now)
    if "released" not in kept:
        write_json(path, kept | {"released": now})


def _without_release(trial: Trial) -> Trial:
    """The trial where nothing came out of the release: private steps alone."""
    if trial.plan is None:
        return trial
    if trial.plan.private is None:
        raise QuorumError(
            "nothing was released and no private steps were planned, so there is nothing to "
            "learn from: give a larger epsilon, or method dp-sgd, with new demonstrations."
        )
    return replace(trial, plan=replace(trial.plan, plain_steps=0))


def _finished(
    asked: SweepOptions,
    trials: Sequence[Trial],
    programs: Sequence[Program],
    place: RunFolder,
    book: Path,
) -> Swept:
    """The table and the winner; the policy last, for it says that all is there."""
    results, private = _results_of(place), asked.select == "private"
    judged = [TrialResult(trial.number, reason=trial.reason) for trial in trials]
    within: dict[int, int] = {}
    for program in programs:
        for result in read_judged(program, results):
            judged[result.number], within[result.number] = result, program.number
    if not private:
        save_table(trials, judged, place.path / "sweep.parquet")
    best = max(judged, key=lambda result: result.score)
    if not best.scores:
        raise QuorumError(f"no trial has ended well: {best.reason}")
    trial = trials[best.number]
    made = certified(asked, trial, place, book)
    policy = Policy.load(policy_file(results, within[best.number]))
    write_winner(place.winner, trial, best, policy, made, events_of(asked, [trial]))
    place.finish()
    return Swept(place.path, trial, best, made, None if private else len(trials))
