"""From the logs of many experts to one policy that may be published: both stages, one ledger."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import jax
import numpy as np
import numpy.typing as npt

from quorum_rl.budget import (
    Certificate,
    Entropy,
    Ledger,
    OsEntropy,
    SeededEntropy,
    certificate,
    read_ledger,
)
from quorum_rl.errors import QuorumError
from quorum_rl.evaluation import GreedyPolicy, greedy_policy
from quorum_rl.experts import LoggedExperts
from quorum_rl.experts.storage import numbered_leaves, write_tensors
from quorum_rl.fit.folder import RunFolder, one_run
from quorum_rl.fit.plan import FitPlan, plan_fit, published_budget
from quorum_rl.fit.settings import FitSettings
from quorum_rl.learners import Learner, get_learner
from quorum_rl.logs import Declared, Demonstrations, split_release_pool
from quorum_rl.privacy import Event, ReleaseEvent, event_to_json
from quorum_rl.release import read_released, release_and_keep, save_released
from quorum_rl.release.release import REPRODUCIBLE_NOISE, accepted_assumptions
from quorum_rl.training.expert_data import expert_data, flat_transitions
from quorum_rl.training.loop import Standing, begin, result_of, train
from quorum_rl.training.schedule import shuffled_schedule
from quorum_rl.types import Released

SECONDS_BETWEEN_SAVES: Final = 10.0
LOOKED: Final = "diagnostics: the logs were looked at without noise, which no certificate covers"


@dataclass(frozen=True, eq=False)
class Fitted:
    """A trained policy and what it cost. `certificate` is None only for the non-private method."""

    plan: FitPlan
    params: Any
    released: Released | None
    certificate: Certificate | None
    folder: Path

    @cached_property
    def _policy(self) -> GreedyPolicy:
        return greedy_policy(self.plan.learner, self.params)

    def act(self, observations: npt.NDArray[np.float32]) -> npt.NDArray[np.integer[Any]]:
        """The greedy actions. Shapes: `(n, observation_size) -> (n,)`."""
        return self._policy(observations)


def fit(
    demonstrations: Demonstrations,
    experts: LoggedExperts | None,
    *,
    epsilon: float,
    delta: float,
    minimum_experts: int | None = None,
    learner: str | Learner = "cql",
    settings: FitSettings | None = None,
    folder: str | Path = "runs/fit",
    ledger: str | Path | None = None,
    accepted: Sequence[str] = (),
    seed: int | None = None,
    diagnostics_not_private: bool = False,
    report: Callable[[str], None] = print,
    progress: Callable[[int, int], None] | None = None,
) -> Fitted:
    """Learn one policy from logged decisions, at a cost of at most (epsilon, delta).

    `minimum_experts` declares how many experts there are at least, where the demonstrations do not.
    Prints its plan before it spends. The ledger is that of the experts (`ledger`), or a new one in
    `folder` with this budget. Without `experts` to query nothing is released, and every step is
    private. The same call goes on where an interrupted one stopped: with the same noise, and
    without paying again. If it was interrupted while releasing, what that would have released is
    lost. A `seed` is for reproduction and marks the certificate; `report` and `progress` (steps
    done, of how many) hear nothing private.

    Guarantee: under the assumptions `accepted` (see `budget.ASSUMPTIONS`), for sets of experts that
    differ by one and both have at least the declared number, the policy, the released prefixes and
    every intermediate parameter together are (epsilon, delta)-indistinguishable.

    Raises:
        QuorumError: if the budget or a declared fact does not suffice, or training diverges.
    """
    chosen = settings or FitSettings()
    if chosen.method == "non-private" and not diagnostics_not_private:
        raise QuorumError(
            "the non-private method looks at the logs without noise: for synthetic experts say "
            "diagnostics_not_private=True."
        )
    made = get_learner(learner) if isinstance(learner, str) else learner
    if minimum_experts is not None:
        declared = replace(demonstrations.declared, minimum_experts=minimum_experts)
        demonstrations = replace(demonstrations, declared=declared)
    plan = plan_fit(
        demonstrations.declared,
        made,
        epsilon=epsilon,
        delta=delta,
        settings=chosen,
        can_query=experts is not None,
    )
    report(plan.describe())
    place = RunFolder(Path(folder))
    if place.policy.exists():
        place.finish()  # in case that alone was interrupted
        raise QuorumError(f"{str(folder)!r} holds a finished run: choose another folder.")
    place.settle(_configuration(plan, demonstrations, seed))
    entropy = OsEntropy() if seed is None else SeededEntropy(seed)
    keys = place.keys(entropy)
    if plan.settings.method == "non-private":
        if ledger is not None:
            with Ledger.open(ledger) as opened:
                opened.mark(LOOKED)
        return _finished(_Work(place, plan, keys, progress), demonstrations, None, None, report)
    book = Path(ledger) if ledger is not None else place.ledger
    if ledger is None and not book.exists():
        Ledger.create(book, epsilon=epsilon, delta=delta)
    with Ledger.open(book) as opened:
        work = _Work(place, plan, keys, progress)
        released, remaining = _released(
            work, demonstrations, experts, opened, accepted, entropy, report
        )
        _charge_training(work, demonstrations, opened, accepted, entropy)
        return _finished(work, remaining, released, book, report)


@dataclass(frozen=True)
class _Work:
    """What the stages of one run share."""

    place: RunFolder
    plan: FitPlan
    keys: dict[str, list[int]]
    progress: Callable[[int, int], None] | None

    @property
    def name(self) -> str:
        """What the ledger calls this run."""
        return self.place.name()

    def charged(self, opened: Ledger, event: Event) -> bool:
        """Whether this run has paid for this stage already."""
        return any(
            charge.run == self.name and charge.event == event for charge in opened.record.charges
        )


def _released(
    work: _Work,
    demonstrations: Demonstrations,
    experts: LoggedExperts | None,
    opened: Ledger,
    accepted: Sequence[str],
    entropy: Entropy,
    report: Callable[[str], None],
) -> tuple[Released | None, Demonstrations]:
    """Stage 1, or what it gave before the run was interrupted."""
    if work.plan.release is None or experts is None:
        return None, demonstrations
    place = work.place
    if not work.charged(opened, work.plan.release.event):
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
        save_released(outcome.released, place.released, event_to_json(work.plan.release.event))
    if not (place.remaining.exists() and place.released.exists()):
        report("the release was interrupted; it is paid for, and what it would have given is lost")
        return None, _kept_for_training(work.plan.release.event, demonstrations)
    released = read_released(place.released)
    report(f"released: {len(released)} prefixes, {int(released.offsets[-1])} transitions")
    return released, replace(demonstrations, episodes=place.read_remaining())


def _kept_for_training(event: ReleaseEvent, demonstrations: Demonstrations) -> Demonstrations:
    """What a release that gave nothing leaves."""
    if event.mode == "paper":
        return demonstrations
    split = split_release_pool(demonstrations, per_expert=event.pool_size, training_minimum=1)
    return split.training


def _charge_training(
    work: _Work,
    demonstrations: Demonstrations,
    opened: Ledger,
    accepted: Sequence[str],
    entropy: Entropy,
) -> None:
    """Pay for all private steps before the first, unless this run has."""
    plan, declared = work.plan, demonstrations.declared
    if plan.private is None:
        return
    event = plan.private.event(plan.private_steps)
    if not work.charged(opened, event):
        _charge(work, declared, event, opened, accepted)
    if entropy.reproducible:  # also if the run was interrupted before it could say so
        opened.mark(REPRODUCIBLE_NOISE)


def _charge(
    work: _Work, declared: Declared, event: Event, opened: Ledger, accepted: Sequence[str]
) -> None:
    plan = work.plan
    held = accepted_assumptions(event, accepted, opened.record.kind, by_making=False)
    facts: dict[str, Any] = {"accepted": list(held)}
    if plan.release is None:
        facts["whole_log"] = declared.identity
    if plan.settings.mode == "paper":
        epsilon, delta = published_budget(plan)
        facts["published"] = {"epsilon": epsilon, "delta": delta}
    opened.charge(event, run=work.name, facts=facts)


def _finished(
    work: _Work,
    remaining: Demonstrations,
    released: Released | None,
    book: Path | None,
    report: Callable[[str], None],
) -> Fitted:
    """Stage 2, and the run's results written down."""
    place, plan = work.place, work.plan
    standing = _trained(work, remaining, released, report)
    recipe = plan.recipe
    params = jax.tree.map(lambda leaf: leaf[0], result_of(recipe, standing))
    made = None if book is None else certificate(read_ledger(book), delta=plan.delta)
    if made is not None:
        place.write_json("certificate.json", json.loads(made.to_json()))
    write_tensors(
        numbered_leaves(params), place.policy, {"quorum_rl.policy": type(plan.learner).__name__}
    )
    place.finish()
    return Fitted(plan, params, released, made, place.path)


def _trained(
    work: _Work,
    remaining: Demonstrations,
    released: Released | None,
    report: Callable[[str], None],
) -> Standing:
    place, plan, declared = work.place, work.plan, remaining.declared
    private = None if plan.private is None else expert_data(remaining)
    plain_steps = plan.plain_steps
    if plan.settings.method == "non-private":
        plain = expert_data(remaining).transitions
    elif released is not None and len(released):
        plain = flat_transitions(released)
    else:
        plain = None
        if plan.private is None:
            raise QuorumError(
                "nothing was released and no private steps were planned, so there is nothing to "
                "learn from: give a larger epsilon, or method dp-sgd, with new demonstrations."
            )
        if plain_steps:
            report("nothing was released, so only the private steps are taken")
            plain_steps = 0
    schedule = shuffled_schedule(plan.private_steps, plain_steps, work.keys["public"][0])
    runs = one_run(
        work.keys,
        learning_rate=plan.settings.learning_rate,
        private_learning_rate=plan.settings.private_learning_rate,
        private=plan.private,
    )
    fresh = begin(plan.recipe, runs, declared.observation_size, declared.action_count)
    saved = time.monotonic()

    def after_chunk(standing: Standing, done: int) -> None:
        nonlocal saved
        if time.monotonic() - saved > SECONDS_BETWEEN_SAVES:
            place.save(standing)
            saved = time.monotonic()
        if work.progress is not None:
            work.progress(done, len(schedule))

    return train(
        plan.recipe,
        runs,
        place.resumed(fresh),
        schedule,
        private=private,
        plain=plain,
        after_chunk=after_chunk,
    )


def _configuration(
    plan: FitPlan, demonstrations: Demonstrations, seed: int | None
) -> dict[str, Any]:
    """All that decides what a run does, as public facts."""
    return {
        "epsilon": plan.epsilon,
        "delta": plan.delta,
        "settings": asdict(plan.settings),
        "learner": repr(plan.learner),
        "declared": asdict(demonstrations.declared),
        "events": [event_to_json(event) for event in plan.events],
        "reproducible": seed is not None,
    }
