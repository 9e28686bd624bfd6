"""The membership game: who took part, told from the published policy alone?

Half of the experts, drawn at random, take part in a training; the adversary, who knows everybody's
log, gives each expert a score. Over several games every score of somebody who took part stands
against those of people who did not. NOT PRIVATE: it is for synthetic experts, or for the eyes of
their owner.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

from quorum_rl.audit.bounds import Floats, proportion_bounds
from quorum_rl.audit.trainings import noise_keys, public_order, same_public
from quorum_rl.budget import SeededEntropy
from quorum_rl.errors import QuorumError
from quorum_rl.experts import LoggedExperts
from quorum_rl.learners import DenseLearner, outputs_of
from quorum_rl.logs import Demonstrations
from quorum_rl.pipeline import (
    FitPlan,
    FitSettings,
    fresh,
    plan_fit,
    research_ledger,
    runs_of,
    steps_of,
    train_runs,
    with_room,
)
from quorum_rl.release import release_and_keep
from quorum_rl.training import expert_data, result_of
from quorum_rl.types import Released, Transition

FALSE_POSITIVES: Final = 0.001
ROC_PLACES: Final = 80
LIKELIHOOD, LOSS = "likelihood of its actions", "loss"
LEAST_GAMES: Final = 6  # for the shadow attack, which needs some games of either kind
AT_ONCE: Final = 65536  # transitions that are scored together

Flags = npt.NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Attack:
    """The scores that one attack gave, to those who took part and to the others."""

    method: str
    name: str
    members: Floats
    others: Floats

    def true_positives(self, rate: float = FALSE_POSITIVES) -> tuple[float, float, float]:
        """The share of members found at a false positive rate of at most `rate`, and its interval.

        The interval is Clopper and Pearson's, of 95%, at the threshold that the others' scores
        give; that this threshold is itself an estimate is left out.
        """
        allowed = int(rate * len(self.others))
        threshold = np.sort(self.others)[::-1][allowed]
        found = int((self.members > threshold).sum())
        low, high = proportion_bounds(found, len(self.members), 0.025)
        return found / len(self.members), float(low), float(high)

    def curve(self) -> tuple[Floats, Floats]:
        """False and true positive rates at every threshold, from the highest down."""
        every = np.unique(np.concatenate([self.members, self.others]))[::-1]
        rates = [
            1 - np.searchsorted(np.sort(scores), every, side="left") / len(scores)
            for scores in (self.others, self.members)
        ]
        return rates[0], rates[1]

    @property
    def roc(self) -> "Roc":
        """The curve at few places, as many for each factor of ten: enough to draw it."""
        false, true = self.curve()
        least = 1 / len(self.others)
        rates = np.unique(np.append(np.geomspace(least, 1, ROC_PLACES), FALSE_POSITIVES))
        last = np.searchsorted(false, rates + 1e-12, side="right") - 1  # at most this many false
        return Roc(self.method, self.name, rates, np.where(last < 0, 0.0, true[last]))

    def to_json(self) -> dict[str, Any]:
        """The headline and the curve as plain facts."""
        share, low, high = self.true_positives()
        return {
            "method": self.method,
            "attack": self.name,
            "members": len(self.members),
            "others": len(self.others),
            "false_positives": FALSE_POSITIVES,
            "true_positives": share,
            "interval": [low, high],
            "curve": {
                name: np.round(one, 6).tolist()
                for name, one in zip(
                    ("false_positives", "true_positives"), self.roc[2:], strict=True
                )
            },
        }


class Roc(NamedTuple):
    """How many members an attack finds at each rate of false positives."""

    method: str
    name: str
    false: Floats
    true: Floats

    @classmethod
    def from_json(cls, facts: dict[str, Any]) -> "Roc":
        """The curve of an attack with these facts, as `Attack.to_json` has them."""
        rates = facts["curve"]
        return cls(
            facts["method"],
            facts["attack"],
            np.array(rates["false_positives"]),
            np.array(rates["true_positives"]),
        )


class Published(NamedTuple):
    """What the adversary gets of one game: parameters, and prefixes if any were released."""

    params: Any
    released: Released | None


def membership_game(
    experts: LoggedExperts | None,
    log: Demonstrations,
    learner: DenseLearner,
    *,
    epsilon: float,
    delta: float,
    settings: FitSettings,
    games: int,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> list[Attack]:
    """Every attack against the private method of `settings` and against none at all.

    Raises:
        QuorumError: for fewer than four experts or no game.
    """
    if log.expert_count < 4 or games < 1:
        raise QuorumError("a membership game needs at least four experts and one game.")
    half = log.expert_count // 2
    declared = replace(log.declared, minimum_experts=half)
    log = replace(log, declared=declared)
    query = experts is not None
    plans = {
        settings.method: plan_fit(
            declared, learner, epsilon=epsilon, delta=delta, settings=settings, can_query=query
        ),
        "non-private": plan_fit(
            declared,
            learner,
            epsilon=epsilon,
            delta=delta,
            settings=replace(settings, method="non-private"),
        ),
    }
    rng = np.random.default_rng(seed)
    taking_part = np.zeros((games, log.expert_count), bool)
    scores: dict[str, list[dict[str, Floats]]] = {name: [] for name in plans}
    for game in range(games):
        taking_part[game, rng.permutation(log.expert_count)[:half]] = True
        for name, plan in plans.items():
            published = play(experts, log, plan, taking_part[game], game)
            scores[name].append(attacks_on(experts, log, learner, published))
        if progress is not None:
            progress(game + 1, games)
    return [
        attack
        for method, found in scores.items()
        for attack in _attacks(method, found, taking_part)
    ]


def play(
    experts: LoggedExperts | None,
    log: Demonstrations,
    plan: FitPlan,
    taking_part: Flags,
    seed: int,
) -> Published:
    """One game: release and train as a fit does, on the log of those who take part."""
    own = log.select(np.repeat(taking_part, np.diff(log.expert_episode_offsets)))
    released = None
    if plan.release is not None and experts is not None:
        with research_ledger() as ledger:
            entropy = SeededEntropy(seed)
            outcome = release_and_keep(experts, own, plan.release, ledger, entropy=entropy)
        own, released = outcome.remaining, outcome.released
    private = with_room(expert_data(own), log.transition_count)
    publicly = [] if released is None else [released]
    steps = steps_of(plan, 1, public_order(seed), publicly, private.transitions)
    if plan.settings.method == "non-private":  # what is behind is no data
        steps = steps._replace(parts=[(0, own.transition_count)])
    runs = runs_of([plan], same_public(noise_keys([seed]), seed), steps)
    sizes = log.declared.observation_size, log.declared.action_count
    last = train_runs(plan, runs, steps, fresh(plan, runs, sizes), private)
    params = jax.tree.map(lambda leaf: leaf[0], result_of(plan.recipe, last))
    return Published(params, released)


def attacks_on(
    experts: LoggedExperts | None, log: Demonstrations, learner: DenseLearner, what: Published
) -> dict[str, Floats]:
    """Each attack's score of every expert, from what was published.

    Shapes: (experts,) each.
    """
    per_transition = [
        _judged(learner, what.params, log.transitions(np.arange(first, last)))
        for first, last in _chunks(log.transition_count)
    ]
    columns = np.concatenate(per_transition, axis=1)
    offsets = log.expert_transition_offsets
    means = np.add.reduceat(columns, offsets[:-1], axis=1) / np.diff(offsets)
    # Odds of the usual probability: the same order, and nearer to normal.
    means[0] -= np.log(np.maximum(-np.expm1(means[0]), 1e-12))
    found = dict(zip((LIKELIHOOD, LOSS, "agreement"), means, strict=True))
    if experts is not None and what.released is not None and len(what.released):
        steps = what.released.transitions
        taken = experts.taken_probabilities(
            slice(None), np.asarray(steps.observation), np.asarray(steps.action)
        )
        found["released prefixes"] = np.log(np.maximum(taken, 1e-12)).mean(axis=1)[log.experts]
    return found


def _judged(learner: DenseLearner, params: Any, steps: Transition) -> Floats:
    """For each transition how likely, how well predicted and whether chosen: higher is closer."""
    likely, loss, same = _judge(learner)(params, Transition(*map(jnp.asarray, steps)))
    return np.stack([np.asarray(likely), -np.asarray(loss), np.asarray(same)]).astype(np.float64)


@lru_cache(maxsize=4)
def _judge(learner: DenseLearner) -> Callable[..., tuple[jax.Array, jax.Array, jax.Array]]:
    def judge(params: Any, steps: Transition) -> tuple[jax.Array, jax.Array, jax.Array]:
        target = learner.init_target(params)
        keys = jax.random.split(jax.random.key(0), len(steps.reward))
        loss = jax.vmap(learner.loss, (None, None, 0, 0))(params, target, steps, keys)
        seen = learner.standardised(steps.observation)
        scores = learner.scores(outputs_of(params, seen))
        likely = jnp.take_along_axis(
            jax.nn.log_softmax(scores), steps.action[:, None].astype(jnp.int32), axis=1
        )[:, 0]
        return likely, loss, scores.argmax(axis=-1) == steps.action

    return jax.jit(judge)


def _attacks(method: str, found: Sequence[dict[str, Floats]], part: Flags) -> list[Attack]:
    """What each attack scored in all games; the first two once more against their shadows."""
    made = []
    for name in found[0]:
        if all(name in one for one in found):
            scores = np.stack([one[name] for one in found])
            made.append(Attack(method, name, scores[part], scores[~part]))
            if len(found) >= LEAST_GAMES and name in (LIKELIHOOD, LOSS):
                ratio, known = _against_shadows(scores, part)
                here, away = ratio[part & known], ratio[~part & known]
                made.append(Attack(method, f"{name}, against shadows", here, away))
    return made


def _against_shadows(scores: Floats, part: Flags) -> tuple[Floats, Flags]:
    """How much likelier a score is among that expert's scores in other games with it than without.

    The attack of Carlini et al. (2022): normal distributions with a mean for every expert and a
    spread for all. Known where an expert has other games of both kinds. Shapes: (games, experts).
    """
    known, ratio = np.ones_like(part), np.zeros_like(scores)
    for kind, sign in ((part, 1.0), (~part, -1.0)):
        kept = np.where(kind, scores, 0.0)
        count = kind.sum(axis=0) - kind  # without the game that is judged
        mean = (kept.sum(axis=0) - kept) / np.maximum(count, 1)
        known &= count > 0
        usable = kind & (count > 0)
        spread = max(float(np.std((scores - mean)[usable])), 1e-6) if usable.any() else 1.0
        ratio += sign * (-(((scores - mean) / spread) ** 2) / 2 - np.log(spread))
    return ratio, known


def _chunks(count: int) -> list[tuple[int, int]]:
    return [(first, min(first + AT_ONCE, count)) for first in range(0, count, AT_ONCE)]
