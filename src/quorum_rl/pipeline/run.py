"""From the logs of many experts to one policy that may be published: both stages, one ledger."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Unpack

import jax
import numpy as np
import numpy.typing as npt

from quorum_rl.budget import (
    Budget,
    Certificate,
    Entropy,
    Ledger,
    OsEntropy,
    SeededEntropy,
)
from quorum_rl.distributed import is_single_process
from quorum_rl.errors import QuorumError
from quorum_rl.experts import LoggedExperts, UnloggedExperts
from quorum_rl.logs import Declared, Demonstrations, split_release_pool
from quorum_rl.pipeline.charging import charge_training
from quorum_rl.pipeline.distributed import check_first, helped
from quorum_rl.pipeline.export import policy_of
from quorum_rl.pipeline.folder import RunFolder
from quorum_rl.pipeline.options import (
    FitOptions,
    configuration,
    learner_of,
    planned,
    said_by_all,
    settings_of,
)
from quorum_rl.pipeline.plan import FitPlan, plan_training, published_budget
from quorum_rl.pipeline.prior_release import PriorRelease, prior_release
from quorum_rl.pipeline.steps import Work, take_steps
from quorum_rl.policy import Policy
from quorum_rl.privacy import Event, ReleaseEvent, ReleasePlan, event_to_json
from quorum_rl.release import (
    REPRODUCIBLE_NOISE,
    read_released,
    release_and_keep,
    save_released,
)
from quorum_rl.training import result_of
from quorum_rl.types import Released

LOOKED: Final = "diagnostics: the logs were looked at without noise, which no certificate covers"


@dataclass(frozen=True, eq=False)
class Fitted:
    """A trained policy and what it cost. `certificate` is None only for the non-private method.

    Guarantee: `policy` and `released` together are what `certificate` says; everything in `folder`
    but the ledger's own secrets may be shown under it.
    """

    plan: FitPlan
    params: Any
    policy: Policy
    released: Released | None
    certificate: Certificate | None
    folder: Path

    def act(self, observations: npt.ArrayLike) -> npt.NDArray[np.integer[Any]]:
        """The greedy actions. Shapes: `(n, observation_size) -> (n,)`."""
        return self.policy.act(observations)


def fit(
    demonstrations: Demonstrations,
    experts: LoggedExperts | UnloggedExperts | None = None,
    *,
    epsilon: float,
    delta: float,
    budget: Budget | None = None,
    **options: Unpack[FitOptions],
) -> Fitted:
    """Learn one policy from logged decisions, at a cost of at most (epsilon, delta).

    Prints its plan before it spends. `budget` is that of the experts; without, a new ledger is made
    in `folder` ("runs/fit") with this epsilon and delta. Without `experts` to query nothing is
    released, and every step is private; experts as they were before they acted are taken to have
    acted as the demonstrations say (`release.experts_who_acted`).

    The same call goes on where an interrupted one stopped: with the same noise, and without paying
    again. If it was interrupted while releasing, what that would have released is lost.

    Options: `minimum_experts` declares how many experts there are at least, where the
    demonstrations do not; `learner` ("auto") and `settings` say how to learn, and a learner by name
    has `learner_settings` (see `learner_for`); `accepted` names the assumptions that you answer for
    (`budget.ASSUMPTIONS`); a `seed` is for reproduction and marks the certificate;
    `diagnostics_not_private` allows the non-private method. `report` and `progress` (steps done, of
    how many; true to stop) hear nothing private. `command` is kept as config.toml.

    Guarantee: under the assumptions `accepted`, for sets of experts that differ by one and both
    have at least the declared number, the policy, the released prefixes and every intermediate
    parameter together are (epsilon, delta)-indistinguishable.

    Raises:
        QuorumError: if the budget or a declared fact does not suffice, or training diverges.
    """
    check_first("fits", "help_fit")
    plan, demonstrations, experts = planned(demonstrations, experts, epsilon, delta, options)

    def first_stage(
        work: Work, opened: Ledger, entropy: Entropy
    ) -> tuple[Released | None, Demonstrations]:
        accepted = options.get("accepted", ())
        return _released(work, demonstrations, experts, opened, accepted, entropy)

    with helped(lambda: said_by_all(plan, demonstrations, experts, options.get("seed"))):
        return _run(plan, demonstrations, first_stage, budget, options)


def fit_after_release(
    demonstrations: Demonstrations,
    released: str | Path,
    *,
    epsilon: float,
    delta: float,
    budget: Budget,
    **options: Unpack[FitOptions],
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
    settings = settings_of(options)
    if settings.method == "local":  # as it is unless somebody says otherwise
        options["settings"] = settings = replace(settings, method="selective")
    if settings.method != "selective":
        raise QuorumError(
            f"the method {settings.method} does not learn from released data: leave the release "
            "out, or take the method selective."
        )
    demonstrations = demonstrations.of_at_least(options.get("minimum_experts"))
    earlier = prior_release(released, demonstrations, budget)
    plan = plan_training(
        demonstrations.declared,
        learner_of(options, demonstrations.declared, (epsilon, delta)),
        ReleasePlan(earlier.event, epsilon, delta, settings.agreement),
        epsilon=epsilon,
        delta=delta,
        settings=settings,
    )

    def first_stage(
        work: Work, opened: Ledger, entropy: Entropy
    ) -> tuple[Released | None, Demonstrations]:
        del opened, entropy
        _keep_earlier(work, earlier)
        return earlier.released, earlier.remaining

    return _run(plan, demonstrations, first_stage, budget, options, paid=[earlier.event])


FirstStage = Callable[[Work, Ledger, Entropy], tuple[Released | None, Demonstrations]]


def _run(
    plan: FitPlan,
    demonstrations: Demonstrations,
    first_stage: FirstStage,
    budget: Budget | None,
    options: FitOptions,
    paid: Sequence[Event] = (),
) -> Fitted:
    """What every run has in common: its folder, its ledger, its two stages.

    Events that are `paid` were charged by another run.
    """
    report, seed = options.get("report", print), options.get("seed")
    report(plan.describe())
    _check_useful(plan)
    _check_policy(plan, demonstrations.declared)
    place = RunFolder(Path(options.get("folder", "runs/fit")))
    with place.unless_refused(place.ledger if budget is None else budget.ledger):
        if place.policy.exists():
            place.finish()  # in case that alone was interrupted
            raise QuorumError(f"{str(place.path)!r} holds a finished run: choose another folder.")
        place.settle(configuration(plan, demonstrations, seed))
        command = options.get("command")
        if command is not None:
            place.write("config.toml", command)
        place.check_room(_bytes_to_write(plan, demonstrations))
        entropy = OsEntropy() if seed is None else SeededEntropy(seed)
        work = Work(place, plan, place.keys(entropy), report, options.get("progress"))
        if plan.settings.method == "non-private":
            if budget is not None:
                with Ledger.open(budget.ledger) as opened:
                    opened.mark(LOOKED)
            return _finished(work, demonstrations, None, None)
        if budget is None:
            budget = _own_budget(work)
        with Ledger.open(budget.ledger) as opened:
            # Both stages or none: a release whose training cannot be paid would use up its pool.
            opened.check_affordable(
                [one for one in plan.events if one not in paid and not work.charged(opened, one)]
            )
            released, remaining = first_stage(work, opened, entropy)
            accepted = options.get("accepted", ())
            _charge_training(work, demonstrations, opened, accepted, entropy)
            return _finished(work, remaining, released, budget)


def _check_useful(plan: FitPlan) -> None:
    """Noise is not paid for unless somebody insists."""
    if plan.mostly_noise is not None and not plan.settings.allow_noise:
        raise QuorumError(
            f"{plan.mostly_noise}, and nothing would be learned: give a larger epsilon, more "
            "experts or smaller networks, or say allow_noise (--allow-noise); nothing was charged."
        )


def _check_policy(plan: FitPlan, declared: Declared) -> None:
    """A learner whose policy could not be written is refused before anything is spent."""
    shapes = jax.eval_shape(
        lambda: plan.learner.init(
            jax.random.key(0), declared.observation_size, declared.action_count
        )
    )
    policy_of(plan.learner, jax.tree.map(lambda leaf: np.zeros(leaf.shape, leaf.dtype), shapes))


def _bytes_to_write(plan: FitPlan, demonstrations: Demonstrations) -> int:
    """At most how large the files of both stages are that grow with what is learned from."""
    remaining = sum(column.nbytes for column in demonstrations.episodes)
    if plan.release is None:
        return remaining
    event, width = plan.release.event, demonstrations.declared.observation_size
    return remaining + event.iterations * event.prefix_cap * (8 * width + 32)


def _own_budget(work: Work) -> Budget:
    """The budget of a run that nobody gave one."""
    path = work.place.ledger
    if path.exists():
        return Budget.open(path)
    work.report(
        f"a new ledger for these experts: {path}; whatever is learned from them later must be "
        "charged to the same one"
    )
    return Budget.create(path, epsilon=work.plan.epsilon, delta=work.plan.delta)


def _released(
    work: Work,
    demonstrations: Demonstrations,
    experts: LoggedExperts | None,
    opened: Ledger,
    accepted: Sequence[str],
    entropy: Entropy,
) -> tuple[Released | None, Demonstrations]:
    """Stage 1, or what it gave before the run was interrupted."""
    if work.plan.release is None or experts is None:
        return None, demonstrations
    place, event = work.place, work.plan.release.event
    if not work.charged(opened, event):
        outcome = release_and_keep(
            experts,
            demonstrations,
            work.plan.release,
            opened,
            run=work.name,
            accepted=accepted,
            entropy=entropy,
        )
        place.save_remaining(outcome.remaining.episodes)
        facts = {"ledger": opened.record.identity, **event_to_json(event)}
        save_released(outcome.released, place.released, facts)
    if not (place.remaining.exists() and place.released.exists()):
        work.report(
            "the release was interrupted; it is paid for, and what it would have given is lost"
        )
        return None, _kept_for_training(event, demonstrations)
    released = read_released(place.released)
    work.report(f"released: {len(released)} prefixes, {int(released.offsets[-1])} transitions")
    return released, replace(demonstrations, episodes=place.read_remaining())


def _kept_for_training(event: ReleaseEvent, demonstrations: Demonstrations) -> Demonstrations:
    """What a release that gave nothing leaves."""
    if event.mode == "paper":
        return demonstrations
    split = split_release_pool(demonstrations, per_expert=event.pool_size, training_minimum=1)
    return split.training


def _keep_earlier(work: Work, earlier: PriorRelease) -> None:
    """The run's folder has the released prefixes, whoever made the release."""
    if not work.place.released.exists():
        save_released(earlier.released, work.place.released, earlier.facts)


def _charge_training(
    work: Work,
    demonstrations: Demonstrations,
    opened: Ledger,
    accepted: Sequence[str],
    entropy: Entropy,
) -> None:
    """Pay for all private steps before the first, unless this run has."""
    plan = work.plan
    if plan.private is None:
        return
    event = plan.private.event(plan.private_steps)
    if not work.charged(opened, event):
        facts: dict[str, Any] = {}
        if plan.settings.mode == "paper":
            epsilon, delta = published_budget(plan)
            facts["published"] = {"epsilon": epsilon, "delta": delta}
        charge_training(
            opened,
            event,
            demonstrations,
            run=work.name,
            accepted=accepted,
            whole_log=plan.release is None,
            facts=facts,
        )
    if entropy.reproducible:  # also if the run was interrupted before it could say so
        opened.mark(REPRODUCIBLE_NOISE)


def _finished(
    work: Work, remaining: Demonstrations, released: Released | None, budget: Budget | None
) -> Fitted:
    """Stage 2, and the run's results written down; the policy last, for it says that all is."""
    place, plan = work.place, work.plan
    standing = take_steps(work, remaining, released)
    params = jax.tree.map(lambda leaf: leaf[0], result_of(plan.recipe, standing))
    made = digest = None
    if budget is not None:
        made = budget.finite_certificate(plan.delta)
        place.write_json("certificate.json", json.loads(made.to_json()))
        digest = hashlib.sha256((place.path / "certificate.json").read_bytes()).hexdigest()
    policy = policy_of(plan.learner, params, world=remaining.declared.world, certificate=digest)
    if find_spec("onnx") is not None:
        policy.to_onnx(place.path / "policy.onnx")
    (place.path / "report.html").unlink(missing_ok=True)  # of the run while it was unfinished
    policy.save(place.policy)
    place.finish()
    return Fitted(plan, params, policy, released, made, place.path)
