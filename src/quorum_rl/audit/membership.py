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
    Progress,
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

    def curve(self, rates: Floats) -> Floats:
        """The share of members found at each of these false positive rates at most."""
        thresholds = np.unique(np.concatenate([self.members, self.others]))[::-1]
        false, true = (
            1 - np.searchsorted(np.sort(scores), thresholds, side="left") / len(scores)
            for scores in (self.others, self.members)
        )
        last = np.searchsorted(false, rates + 1e-12, side="right") - 1
        return np.where(last < 0, 0.0, true[last])

    def to_json(self) -> dict[str, Any]:
        """The headline as plain facts, and the curve at few places: enough to draw it."""
        share, low, high = self.true_positives()
        places = np.geomspace(1 / len(self.others), 1, ROC_PLACES)
        rates = np.unique(np.append(places, FALSE_POSITIVES))
        return {
            "method": self.method,
            "attack": self.name,
            "members": len(self.members),
            "others": len(self.others),
            "false_positives": FALSE_POSITIVES,
            "true_positives": share,
            "interval": [low, high],
            "curve": {
                "false_positives": np.round(rates, 6).tolist(),
                "true_positives": np.round(self.curve(rates), 6).tolist(),
            },
        }


class GameOutput(NamedTuple):
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
    progress: Progress | None = None,
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
    plans = {
        each.method: plan_fit(
            declared,
            learner,
            epsilon=epsilon,
            delta=delta,
            settings=each,
            can_query=experts is not None,
        )
        for each in (settings, replace(settings, method="non-private"))
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
) -> GameOutput:
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
    return GameOutput(params, released)


def attacks_on(
    experts: LoggedExperts | None, log: Demonstrations, learner: DenseLearner, what: GameOutput
) -> dict[str, Floats]:
    """Each attack's score of every expert, from what was published.

    Shapes: (experts,) each.
    """
    every = np.arange(log.transition_count)
    parts = np.split(every, range(AT_ONCE, log.transition_count, AT_ONCE))
    per_transition = [_judged(learner, what.params, log.transitions(part)) for part in parts]
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
        if all(name in game for game in found):
            scores = np.stack([game[name] for game in found])
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
