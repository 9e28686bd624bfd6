"""From the logs of many experts to one policy that may be published: both stages, one ledger."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, TypeAlias

import jax
import numpy as np
import numpy.typing as npt

from quorum_rl.budget import Budget, Certificate, Ledger, OsEntropy, SeededEntropy
from quorum_rl.distributed import is_single_process
from quorum_rl.errors import QuorumError
from quorum_rl.experts import LoggedExperts, UnloggedExperts
from quorum_rl.judging import Verdict, parted
from quorum_rl.learners import DenseLearner, Learner, shapes_of
from quorum_rl.logs import Declared, Demonstrations
from quorum_rl.pipeline.asked import check_kinds
from quorum_rl.pipeline.context import (
    ReportLine,
    RunContext,
    RunOptions,
    StepProgress,
    configuration,
    planned,
    said_by_all,
)
from quorum_rl.pipeline.distributed import helped
from quorum_rl.pipeline.expectation import expected, refusal_of
from quorum_rl.pipeline.export import policy_of
from quorum_rl.pipeline.folder import RunFolder, write_certificate
from quorum_rl.pipeline.judging_stage import Judged, Parts, judged, split_in_run
from quorum_rl.pipeline.learner_rule import Named, asked_learner
from quorum_rl.pipeline.metrics import Track
from quorum_rl.pipeline.plan import FitPlan, learner_in_words
from quorum_rl.pipeline.planning import plan_training
from quorum_rl.pipeline.release_stage import prior_release, released_in_run
from quorum_rl.pipeline.settings import FitSettings, UnitsName
from quorum_rl.pipeline.training_stage import learned, pay_for_steps
from quorum_rl.pipeline.units_stage import with_units
from quorum_rl.policy import Policy
from quorum_rl.privacy import Event, ReleasePlan
from quorum_rl.release import check_are_those, check_belongs, recall
from quorum_rl.types import Released

LOOKED: Final = "diagnostics: the logs were looked at without noise, which no certificate covers"

FirstStage: TypeAlias = Callable[[RunContext, Ledger], tuple[Released | None, Demonstrations]]


@dataclass(frozen=True, eq=False, repr=False)
class Fitted:
    """A trained policy and what it cost. `certificate` is None only for the non-private method.

    `judging` is what the judges say, where there are some.

    Guarantee: `policy`, `released` and `judging` together are what `certificate` says; everything
    in `folder` but the ledger's own secrets may be shown under it.
    """

    plan: FitPlan
    params: Any
    policy: Policy
    released: Released | None
    certificate: Certificate | None
    folder: Path
    judging: Verdict | None = None

    def __repr__(self) -> str:
        cost = "no privacy" if self.certificate is None else repr(self.certificate)
        return f"Fitted({str(self.folder)!r}, {learner_in_words(self.plan.learner)}, {cost})"

    def _repr_html_(self) -> str:
        """What a notebook shows: the certificate's sentence, and where things are."""
        said = "no privacy" if self.certificate is None else self.certificate.statement
        rows = {
            "what": learner_in_words(self.plan.learner),
            "guarantee": said,
            "private steps": self.plan.private_steps,
            "released": "nothing" if self.released is None else repr(self.released),
            "folder": self.folder,
        }
        if self.judging is not None:
            named = self.policy.dictionary
            labels = () if named is None else named.action_labels
            rows["what the judges say"] = self.judging.describe(labels)
        cells = (f"<tr><th>{name}</th><td>{escape(str(value))}</td></tr>"
                 for name, value in rows.items())  # fmt: skip
        return f"<table>{''.join(cells)}</table>"

    def act(self, observations: Any) -> npt.NDArray[Any]:
        """The greedy actions, as `Policy.act`. Shapes: `(n, observation_size) -> (n, …)`."""
        return self.policy.act(observations)


def fit(
    demonstrations: Demonstrations,
    experts: LoggedExperts | UnloggedExperts | None = None,
    *,
    epsilon: float,
    delta: float,
    budget: Budget | None = None,
    minimum_experts: int | None = None,
    minimum_trajectories: int | None = None,
    learner: str | type[DenseLearner] | Learner = "auto",
    learner_settings: Mapping[str, Any] | None = None,
    settings: FitSettings | None = None,
    judges: float | None = None,
    return_bounds: Sequence[float] | None = None,
    choose: Sequence[Named] = (),
    units: UnitsName = "auto",
    folder: str | Path = "runs/fit",
    accepted: Sequence[str] = (),
    accepted_by: str | None = None,
    seed: int | None = None,
    diagnostics_not_private: bool = False,
    report: ReportLine = print,
    progress: StepProgress | None = None,
    track: Track | None = None,
    command: str | None = None,
) -> Fitted:
    """Learn one policy from logged decisions, at a cost of at most (epsilon, delta).

    Prints its plan before it spends. `budget` is that of the experts; without, a new ledger is made
    in `folder` with this epsilon and delta. Without `experts` to query nothing is
    released, and every step is private; experts as they were before they acted are taken to have
    acted as the demonstrations say (`release.experts_who_acted`).

    The same call goes on where an interrupted one stopped: with the same noise, and without paying
    again, whatever it was killed at.

    - `minimum_experts`: how many experts there are at least, where the demonstrations do not say.
    - `minimum_trajectories`: how many trajectories each of them has at least, likewise; a release
      reserves some, and who has fewer than that and one more is left out and does not count.
    - `learner` and `settings`: how to learn. A learner by name has `learner_settings`
      (see `learner_for`).
    - `judges`: the share of the experts who judge the policy instead of being learned from, each by
      a secret coin that is thrown once for their ledger; at no further cost (docs/judging.md).
    - `return_bounds`: public numbers between which an expert's mean return lies; without them the
      judges are not asked what they earn, nor what the policy does.
    - `choose`: learners by name or class, of which the judges choose one, in the place of
      `learner`: each is trained, and all of them together pay what one would.
    - `units`: what observations and rewards are measured by where no public numbers say so: private
      ones if so many experts are declared (`auto`), always (`private`) or never (`public`).
    - `folder`: where everything is written.
    - `accepted`: the names of the assumptions that you answer for (`budget.ASSUMPTIONS`).
    - `accepted_by`: who answers for them; the ledger, the certificate and the report name them.
    - `seed`: for reproduction; it marks the certificate.
    - `diagnostics_not_private`: allows the non-private method.
    - `report` hears every line of what happens, `progress` the steps done and how many there are;
      it returns true to stop. Neither hears anything private, but that a log has no more experts
      than were declared.
    - `track` hears metrics that may be shown, after every chunk of steps: `step`, `epsilon` so far,
      `noise_over_signal`, `loss_on_released` (`pipeline.tracker` sends them to a dashboard).
    - `command`: kept as config.toml.

    Guarantee: under the assumptions `accepted`, for sets of experts that differ by one and both
    have at least the declared number who are not left out, the policy, the released prefixes, what
    the judges say and every intermediate parameter together are
    (epsilon, delta)-indistinguishable.

    Raises:
        QuorumError: if the budget or a declared fact does not suffice, or training diverges.
    """
    check_kinds(
        demonstrations=demonstrations, experts=experts, epsilon=epsilon, delta=delta,
        budget=budget, learner=learner, learner_settings=learner_settings, settings=settings,
        choose=choose, folder=folder, accepted=accepted, accepted_by=accepted_by, seed=seed,
        minimum_experts=minimum_experts, minimum_trajectories=minimum_trajectories,
        report=report, progress=progress, track=track, command=command,
    )  # fmt: skip
    plan, log, logged = planned(
        demonstrations,
        experts,
        epsilon=epsilon,
        delta=delta,
        minimum_experts=minimum_experts,
        minimum_trajectories=minimum_trajectories,
        learner=learner,
        learner_settings=learner_settings,
        settings=settings,
        judges=judges,
        return_bounds=return_bounds,
        choose=choose,
        units=units,
        diagnostics_not_private=diagnostics_not_private,
    )
    if logged is not None:  # also where nothing is released, so that nobody believes it was
        check_are_those(logged, log.declared, accepted)

    def first_stage(run: RunContext, ledger: Ledger) -> tuple[Released | None, Demonstrations]:
        return released_in_run(run, log, logged, ledger)

    options = RunOptions(folder, accepted, accepted_by, seed, report, progress, track, command)
    with helped(lambda: said_by_all(plan, log, logged, seed)):
        return carried_out(plan, log, first_stage, budget, options)


def fit_after_release(
    demonstrations: Demonstrations,
    released: str | Path,
    *,
    epsilon: float,
    delta: float,
    budget: Budget,
    minimum_experts: int | None = None,
    learner: str | type[DenseLearner] | Learner = "auto",
    learner_settings: Mapping[str, Any] | None = None,
    settings: FitSettings | None = None,
    folder: str | Path = "runs/fit",
    accepted: Sequence[str] = (),
    accepted_by: str | None = None,
    seed: int | None = None,
    report: ReportLine = print,
    progress: StepProgress | None = None,
    track: Track | None = None,
    command: str | None = None,
) -> Fitted:
    """Stage 2 alone, after a release from these demonstrations that `budget` has paid for.

    `released` is the file that the release wrote. Training sees only the trajectories that the
    release left. The method is `selective`, which learns from both. For the options see `fit`.

    Guarantee: the release, which the ledger holds, and this training together are (epsilon,
    delta)-indistinguishable, as `fit` says.

    Raises:
        QuorumError: if the ledger does not hold that release, or as `fit`.
    """
    if not is_single_process():
        raise QuorumError("training after a release is for one process: start it by itself.")
    check_kinds(
        demonstrations=demonstrations, epsilon=epsilon, delta=delta, budget=budget,
        learner=learner, learner_settings=learner_settings, settings=settings, folder=folder,
        accepted=accepted, accepted_by=accepted_by, seed=seed, minimum_experts=minimum_experts,
        report=report, progress=progress, track=track, command=command,
    )  # fmt: skip
    settings = settings or FitSettings()
    if settings.method == "local":  # the default, so nobody chose it
        settings = replace(settings, method="selective")
    if settings.method != "selective":
        raise QuorumError(
            f"the method {settings.method} does not learn from released data: leave the release "
            "out, or take the method selective."
        )
    demonstrations = demonstrations.of_at_least(minimum_experts)
    declared = demonstrations.declared
    prior = prior_release(released, demonstrations, budget)
    plan = plan_training(
        declared,
        asked_learner(declared, settings, (epsilon, delta), learner, learner_settings),
        ReleasePlan(prior.event, epsilon, delta, settings.agreement),
        epsilon=epsilon,
        delta=delta,
        settings=settings,
    )
    prior.remaining.check_usable(declared.minimum_experts)

    def first_stage(run: RunContext, _: Ledger) -> tuple[Released | None, Demonstrations]:
        prior.keep(run.folder.released)
        return prior.released, prior.remaining

    options = RunOptions(folder, accepted, accepted_by, seed, report, progress, track, command)
    return carried_out(plan, demonstrations, first_stage, budget, options, paid=[prior.event])


def carried_out(
    plan: FitPlan,
    demonstrations: Demonstrations,
    first_stage: FirstStage,
    budget: Budget | None,
    options: RunOptions,
    paid: Sequence[Event] = (),
) -> Fitted:
    """What every run has in common: its folder, its ledger, its two stages.

    Events that are `paid` were charged by another run.
    """
    options.report(plan.describe())
    if (hope := expected(plan)) is not None:
        options.report(hope)
    declared = demonstrations.declared
    least = demonstrations.declared.minimum_experts
    if options.elsewhere is None and plan.events:
        removal = demonstrations.said_of_removal(least, plan.trajectories_needed)
        if removal is not None:
            options.report(removal)
    if (refused := refusal_of(plan)) is not None:
        raise QuorumError(refused)
    _check_policy(plan, demonstrations.declared)
    folder = RunFolder(Path(options.folder))
    with folder.unless_refused(folder.ledger if budget is None else budget.ledger):
        run = _opened(folder, plan, demonstrations, options)
        if plan.settings.method == "non-private":
            folder.keep_keys(run.keys)
            if budget is not None:
                with Ledger.open(budget.ledger) as ledger:
                    ledger.mark(LOOKED)
            return _finished(run, declared, learned(run, demonstrations, None), None, None)
        if budget is None:
            budget = _own_budget(run, demonstrations)
        with Ledger.open(budget.ledger) as ledger:
            run.check_and_keep_keys(ledger, demonstrations)
            recall(ledger, demonstrations, options.accepted)
            # Both stages or none: a release whose training cannot be paid would use up its pool.
            ledger.check_affordable(
                [
                    event
                    for stage, event in plan.stages.items()
                    if event not in paid and not run.charged(ledger, stage)
                ]
            )
            key = split_in_run(run, ledger)
            released, remaining = first_stage(run, ledger)
            if released is not None:
                run.check_and_keep_released(ledger, released)
            parts = None if key is None else Parts(*parted(remaining, key))
            others = remaining if parts is None else parts.others
            run = with_units(run, demonstrations, others, ledger)
            pay_for_steps(run, demonstrations, ledger)
            learnt, found = learned(run, others, released), None
            if parts is not None:
                found = judged(run, parts, learnt, ledger)
            return _finished(run, declared, learnt, released, budget, found)


def _opened(
    folder: RunFolder, plan: FitPlan, demonstrations: Demonstrations, options: RunOptions
) -> RunContext:
    """The run in its folder: a new one, or the one that was interrupted there."""
    if folder.policy.exists():
        folder.finish()  # in case that alone was interrupted
        raise QuorumError(f"{str(folder.path)!r} holds a finished run: choose another folder.")
    folder.settle(configuration(plan, demonstrations, options.seed) | options.at_sites)
    if options.command is not None:
        folder.write("config.toml", options.command)
    folder.check_room(_bytes_to_write(plan, demonstrations))
    entropy = OsEntropy() if options.seed is None else SeededEntropy(options.seed)
    return RunContext(folder, plan, options, entropy, folder.keys(entropy))


def _check_policy(plan: FitPlan, declared: Declared) -> None:
    """A learner whose policy could not be written is refused before anything is spent."""
    sizes = declared.observation_size, declared.action_count
    learner: Any
    for learner in plan.candidates:
        shapes = shapes_of(learner, *sizes)
        blank = jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes)
        policy_of(learner, blank, dictionary=declared.dictionary, sizes=sizes)


def _bytes_to_write(plan: FitPlan, demonstrations: Demonstrations) -> int:
    """At most how large the files of both stages are that grow with what is learned from."""
    remaining = sum(column.nbytes for column in demonstrations.episodes)
    if plan.release is None:
        return remaining
    event, width = plan.release.event, demonstrations.declared.observation_size
    return remaining + event.iterations * event.prefix_cap * (8 * width + 32)


def _own_budget(run: RunContext, demonstrations: Demonstrations) -> Budget:
    """The budget of a run that nobody gave one."""
    path = run.folder.ledger
    if path.exists():
        return Budget.open(path)
    check_belongs(demonstrations, None, path, run.options.accepted)
    run.report(
        f"a new ledger for these experts: {path}; whatever is learned from them later must be "
        "charged to the same one"
    )
    return Budget.create(path, epsilon=run.plan.epsilon, delta=run.plan.delta)


def _finished(
    run: RunContext,
    declared: Declared,
    learnt: Sequence[Any],
    released: Released | None,
    budget: Budget | None,
    found: Judged | None = None,
) -> Fitted:
    """The run's results written down; the policy last, for it says that all is."""
    folder, verdict = run.folder, None
    plan, params = run.plan, learnt[0]
    if found is not None:
        plan, params, verdict = found.plan, learnt[found.chosen], found.verdict
    made = None if budget is None else budget.finite_certificate(plan.delta)
    digest = write_certificate(folder.path, made)
    policy = policy_of(
        plan.learner,
        params,
        world=declared.world,
        certificate=digest,
        dictionary=declared.dictionary,
        sizes=(declared.observation_size, declared.action_count),
    )
    if find_spec("onnx") is not None and policy.by_code is None:
        policy.to_onnx(folder.path / "policy.onnx")
    (folder.path / "report.html").unlink(missing_ok=True)  # of the run while it was unfinished
    policy.save(folder.policy)
    folder.finish()
    return Fitted(plan, params, policy, released, made, folder.path, verdict)
