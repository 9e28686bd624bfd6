"""A sweep from its search to its winner: paid for first, then run program by program."""

import json
import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from quorum_rl.budget import Budget, Certificate, Entropy, Ledger, OsEntropy
from quorum_rl.errors import QuorumError
from quorum_rl.experts import LoggedExperts
from quorum_rl.files import replacing
from quorum_rl.learners import learner_to_json
from quorum_rl.logs import Demonstrations
from quorum_rl.pipeline import Progress, ReportLine, RunFolder, check_noisy
from quorum_rl.policy import Policy
from quorum_rl.privacy import Event, total_epsilon
from quorum_rl.release import REPRODUCIBLE_NOISE
from quorum_rl.sweep.judge import (
    PAID_ELSEWHERE,
    Judge,
    check_judge,
    check_released,
    judged_on,
    named,
    paid_elsewhere,
)
from quorum_rl.sweep.payment import (
    NOT_ACCOUNTED,
    Select,
    check_accountable,
    pay,
    shared_release,
    training_events,
)
from quorum_rl.sweep.programs import Inputs, Judged, Spread, one_by_one
from quorum_rl.sweep.results import (
    judged_file,
    policy_file,
    results_of,
    run_left,
    write_winner,
)
from quorum_rl.sweep.space import Choices, Search
from quorum_rl.sweep.table import (
    IN_A_WORLD,
    ON_RELEASED,
    read_judged,
    save_picture,
    save_table,
)
from quorum_rl.sweep.trials import Common, Program, Trial, planned, programs_of
from quorum_rl.types import Released

KEY_BITS: Final = 256


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """What to try, on whom, and how the best is chosen.

    - `world` is the public simulator that trials are judged in, `episodes` episodes each. It may be
      None where `judge` is not "world": "released" judges them by how often they do what the
      sweep's own release does, and `Released` prefixes of another release by those. The
      certificate is marked unless its ledger holds that release, as `judge_facts` of its file say.
    - `seeds`: without `select`, every trial is run with so many, from `first_seed` on.
    - `together`: at most so many trials are one program.
    - `select`: None for synthetic experts: nothing is charged for the trials, and the winner's
      certificate says so. `public`: every trial is charged. `private`: their number is geometric
      with mean `mean_trials`, and nothing but the best comes out.
    - `diagnostics_not_private` allows trials without noise, for synthetic experts.
    - `ledger`: that of the experts, with `select`; otherwise a research ledger is made.
    """

    search: Search
    common: Common
    log: Demonstrations
    experts: LoggedExperts | None
    world: str | None
    episodes: int = 100
    judge: Judge = "world"
    judge_facts: Mapping[str, Any] = field(default_factory=dict)
    seeds: int = 3
    first_seed: int = 0
    together: int = 32
    select: Select | None = None
    mean_trials: int = 10
    ledger: Path | None = None
    accepted: Sequence[str] = ()
    diagnostics_not_private: bool = False

    def __post_init__(self) -> None:
        for name in ("episodes", "seeds", "together", "mean_trials"):
            if getattr(self, name) < 1:
                raise QuorumError(f"{name} is {getattr(self, name)}: give at least 1.")
        check_judge(self.judge, self.world, self.select, self.log)
        if self.select is None and self.ledger is not None:
            raise QuorumError(
                "a ledger is charged for a selection that is accounted: add --select public or "
                "--select private, or leave --ledger out for synthetic experts."
            )


@dataclass(frozen=True)
class Swept:
    """How a sweep ended: its winner, and what that cost."""

    folder: Path
    trial: Trial
    judged: Judged
    certificate: Certificate | None
    trials: int | None  # how many there were; with private selection nobody may know


def sweep(
    asked: Sweep,
    folder: Path,
    *,
    spread: Spread = one_by_one,
    report: ReportLine = print,
    progress: Progress | None = None,
    command: str | None = None,
) -> Swept:
    """Run all trials, or those that an interrupted sweep has left, and keep the best.

    In `folder`: `sweep.parquet` and `sweep.png` (without them if the selection is private), and in
    `winner/` the policy with its certificate. `spread` says where programs run.

    Guarantee: a ledger is charged before anything runs, and once, however often this is called;
    a program that is run again draws the same noise.

    Raises:
        QuorumError: if nothing can be run, or the ledger refuses.
        Interrupted: from `progress`; what programs have ended is kept.
    """
    trials = planned(asked.search.all(), asked.common, asked.log.declared)
    settings = [trial.plan.settings for trial in trials if trial.plan is not None]
    check_noisy(settings, asked.diagnostics_not_private or asked.select is not None)
    place = RunFolder(folder)
    winner = place.winner
    if (winner / "policy.safetensors").exists():
        place.finish()  # in case that alone was interrupted
        raise QuorumError(f"{str(folder)!r} holds a finished sweep: choose another folder.")
    book = winner / "ledger.jsonl" if asked.ledger is None else asked.ledger
    with place.unless_refused(book):
        select = asked.select
        if select is not None:
            check_accountable(trials, select)
            asked = _for_all_together(asked, trials, select)
            trials = planned(asked.search.all(), asked.common, asked.log.declared)
            check_accountable(trials, select)
            if asked.judge == "released":
                check_released(trials)
        _settle(place, asked)
        if command is not None:
            place.write("config.toml", command)
        winner.mkdir(exist_ok=True)
        if asked.select is None:
            seeds = range(asked.first_seed, asked.first_seed + asked.seeds)
            inputs = _inputs(asked, seeds)
        else:
            trials, inputs = _paid(asked, trials, place, book, report)
        programs = programs_of(trials, asked.together)
        if not programs:
            raise QuorumError(f"no trial of {len(trials)} can be run: {trials[0].reason}")
    results = results_of(place)
    results.mkdir(exist_ok=True)
    if asked.select != "private":
        report(f"{_counted(trials, 'trial')} in {_counted(programs, 'program')}")
    run_left(inputs, programs, results, spread, progress)
    return _finished(asked, trials, programs, results, place, book)


def _counted(things: Sequence[object], what: str) -> str:
    return f"{len(things)} {what}{'' if len(things) == 1 else 's'}"


def _settle(place: RunFolder, asked: Sweep) -> None:
    """Write down what is swept, or check that it is what was begun here.

    Whoever wanted to judge by the sweep's own release, without a world, may name another judge
    until a trial has run: the release may have given nothing. All that is known by then is what it
    let out, and by what to judge may depend on that.
    """
    wanted, path = _configuration(asked), place.path / "config.json"
    if path.exists() and not results_of(place).exists():
        begun = json.loads(path.read_text())
        judge = {name: begun.get(name) for name in ("judge", "world")}
        if judge == {"judge": "released", "world": None}:
            place.settle(wanted | judge)
            place.write_json("config.json", wanted)
            return
    place.settle(wanted)


def _for_all_together(asked: Sweep, trials: Sequence[Trial], select: Select) -> Sweep:
    """The sweep with a release that does not run out at what all trials cost together."""
    common = asked.common
    events = training_events(trials, select, asked.mean_trials)
    if shared_release(trials) is None or not events:
        return asked
    about = common.epsilon + total_epsilon(events, common.delta)
    return replace(asked, common=replace(common, whole_epsilon=about))


def _inputs(
    asked: Sweep,
    seeds: range,
    keys: tuple[int, ...] | None = None,
    released: Released | None = None,
) -> Inputs:
    return Inputs(
        asked.experts,
        asked.log,
        asked.world,
        asked.common.delta,
        asked.episodes,
        seeds,
        keys,
        released,
        judged_on(asked.judge, asked.world, released),
    )


def _paid(
    asked: Sweep, trials: list[Trial], place: RunFolder, book: Path, report: ReportLine
) -> tuple[list[Trial], Inputs]:
    """Pay for a sweep whose selection is accounted; its trials, each with a key of its own."""
    assert asked.select is not None
    trainings = training_events(trials, asked.select, asked.mean_trials)
    shared, delta = shared_release(trials), asked.common.delta
    events = [*([] if shared is None else [shared.event]), *trainings]
    report(
        f"a trial by itself costs at most epsilon = {asked.common.epsilon:g} at delta = {delta:g}, "
        f"and all with the choice among them {total_epsilon(events, delta):.4g}"
    )
    if asked.ledger is None and not book.exists():
        Budget.create(book, epsilon=None, delta=delta, kind="research")
    entropy = OsEntropy()
    with Ledger.open(book) as opened:
        released = pay(
            trials, trainings, asked.log, asked.experts, place, opened, asked.accepted, entropy
        )
        _mark_judge(asked, opened)
    every, keys = _kept(
        place, lambda: _drawn(asked, entropy) if asked.select == "private" else asked.search.all()
    )
    chosen = planned(every, asked.common, asked.log.declared)
    if released is not None and not len(released):
        report("nothing was released: trials take their private steps alone")
        chosen = [_without_release(trial) for trial in chosen]
    return chosen, _inputs(asked, range(1), keys, released)


def _drawn(asked: Sweep, entropy: Entropy) -> list[Choices]:
    """As many trials as a geometric number of that mean says, each drawn by itself.

    Guarantee: neither how many nor which depends on any data.
    """
    stream = entropy.stream("number of trials")
    source = random.SystemRandom()
    every = [asked.search.one(source)]
    while stream.below(asked.mean_trials) != 0:
        every.append(asked.search.one(source))
    return every


def _kept(
    place: RunFolder, draw: Callable[[], list[Choices]]
) -> tuple[list[Choices], tuple[int, ...]]:
    """The trials and their keys: drawn once, and kept until the sweep is complete."""
    path = place.private / "trials.json"
    if not path.exists():
        every = draw()
        drawn = {"trials": every, "keys": [secrets.randbits(KEY_BITS) for _ in every]}
        with replacing(path) as temporary:
            temporary.write_text(json.dumps(drawn))
    facts = json.loads(path.read_text())
    return facts["trials"], tuple(facts["keys"])


def _without_release(trial: Trial) -> Trial:
    """The trial where nothing came out of the release: private steps alone."""
    plan = trial.plan
    if plan is None:
        return trial
    if plan.private is None:
        raise QuorumError(
            "nothing was released and no private steps were planned, so there is nothing to "
            "learn from: give a larger epsilon, or method dp-sgd, with new demonstrations."
        )
    return replace(trial, plan=replace(plan, plain_steps=0))


def _finished(
    asked: Sweep,
    trials: Sequence[Trial],
    programs: Sequence[Program],
    results: Path,
    place: RunFolder,
    book: Path,
) -> Swept:
    """The table, the picture and the winner; the policy last, for it says that all is there."""
    judged = [Judged(trial.number, reason=trial.reason) for trial in trials]
    within: dict[int, int] = {}
    for program in programs:
        for one in read_judged(judged_file(results, program.number)):
            judged[one.number], within[one.number] = one, program.number
    if asked.select != "private":
        save_table(trials, judged, place.path / "sweep.parquet")
        score = IN_A_WORLD if any(one.returns for one in judged) else ON_RELEASED
        save_picture(trials, judged, place.path / "sweep.png", score)
    best = max(judged, key=lambda one: one.score)
    if not best.scores:
        raise QuorumError(f"no trial has ended well: {best.reason}")
    trial = trials[best.number]
    made = _certified(asked, trial, place, book)
    policy = Policy.load(policy_file(results, within[best.number]))
    write_winner(place.winner, trial, best, policy, made, _own_events(asked, trial))
    place.finish()
    known = None if asked.select == "private" else len(trials)
    return Swept(place.path, trial, best, made, known)


def _own_events(asked: Sweep, trial: Trial) -> list[Event]:
    """What the winner's certificate must name."""
    assert trial.plan is not None
    if asked.select != "private":
        return list(trial.plan.events)
    shared = shared_release([trial])
    trainings = training_events([trial], "private", asked.mean_trials)
    return [*([] if shared is None else [shared.event]), *trainings]


def _mark_judge(asked: Sweep, opened: Ledger) -> None:
    if paid_elsewhere(asked.judge, asked.judge_facts, opened.record):
        opened.mark(PAID_ELSEWHERE)


def _certified(asked: Sweep, trial: Trial, place: RunFolder, book: Path) -> Certificate | None:
    """The winner's certificate; of a selection that is not accounted it says so."""
    assert trial.plan is not None
    if trial.plan.settings.method == "non-private":
        return None
    delta = asked.common.delta
    if asked.select is None:
        if not book.exists():
            Budget.create(book, epsilon=None, delta=delta, kind="research")
        with Ledger.open(book) as opened:
            for event in trial.plan.events:
                if event not in opened.record.events:  # as after an interrupted end
                    pool = {"pool": asked.log.declared.identity}
                    opened.charge(event, run=place.name(), facts=pool)
            opened.mark(NOT_ACCOUNTED)
            opened.mark(REPRODUCIBLE_NOISE)
            _mark_judge(asked, opened)
    return Budget(book).finite_certificate(delta)


def _configuration(asked: Sweep) -> dict[str, Any]:
    """All that decides what a sweep does, as public facts."""
    facts: dict[str, Any] = {
        "search": asdict(asked.search),
        "common": asdict(asked.common),
        # A world's units may be others in another version, and trials must not mix them.
        "learner": learner_to_json(asked.common.usual_learner(asked.log.declared)),
        "declared": asdict(asked.log.declared),
    }
    names = ("world", "episodes", "seeds", "first_seed", "together", "select", "mean_trials")
    return facts | {name: getattr(asked, name) for name in names} | {"judge": named(asked.judge)}
