r"""What becomes of the paper's private steps, with one thing about them changed at a time.

On experts that are cut to as many as the paper's, or on a sample of their logs (a proxy, as in
`tuning.py`). After 300, 1000, 3000, … steps it says what the policy earns, and how far weights have
moved from where they began, as a multiple of their size there. Two studies:

long    Why long trainings fail with Adam: the paper's setting at a claimed ε = 5, whose steps are
        all private. With Adam noise moves every weight by about rate · √steps; plain steps do as
        much at that rate times batch / (noise multiplier · clip norm).
step    What tells the paper's step from ours: its setting at ε = 10 with every step private, in
        20,000 steps with the noise that ε = 10 allows for them. Changed in turn: what costs
        privacy to leave out (noise, clipping), what tells our step from theirs, and what the paper
        does not say.

    quorum experts train CartPole --preset small --seed 1 --out small.safetensors
    python -m reproduction.studies.private_steps small.safetensors long --out results/long.parquet
    quorum experts train LunarLander --settings 333 --candidates 3 --count 999 --seed 7 --fast \
      --out lander.safetensors
    python -m reproduction.studies.samples lander.safetensors --cut 3 --keep 128 --out lander.npz
    python -m reproduction.studies.private_steps lander.npz step --out results/step.parquet
"""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.budget import SeededEntropy, jax_key_data
from quorum_rl.envs import AnyWorld
from quorum_rl.errors import QuorumError
from quorum_rl.evaluation import returns_of
from quorum_rl.learners import defaults
from quorum_rl.pipeline import FitSettings
from quorum_rl.pipeline.plan import rate_for
from quorum_rl.privacy import noise_multiplier_for
from quorum_rl.training import (
    ExpertData,
    Gradient,
    PrivateStep,
    Recipe,
    StepKind,
    TrainState,
    begin,
    default_chunk,
    new_run,
    optimiser_of,
    train,
)
from reproduction.columns import CLIP_NORM, best_settings, learner_of
from reproduction.published import published_steps
from reproduction.published_settings import EXPERTS, PublishedSetting
from reproduction.studies.samples import check_counts
from reproduction.studies.study import NO_NOISE, opened, parser_for_a_study, run
from reproduction.studies.tuning import EPISODES_KEY

EPSILONS: Final = {"long": 5.0, "step": 10.0}
SHORT: Final = 20_000
LOOKED_AT: Final = (300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
AT_ONCE: Final = 100
AVERAGED: Final = 16  # transitions of an expert; 64 take four times as long
NO_CLIPPING: Final = 30.0  # that few gradients reach; the lattice is as coarse as this is wide
AS_IT_IS: Final[Mapping[str, Any]] = MappingProxyType({})
SMALL: Final = MappingProxyType({"hidden_sizes": defaults.HIDDEN_SIZES})
RAW: Final = MappingProxyType({"observation_centre": (), "observation_scale": ()})


class Way(NamedTuple):
    """The paper's private step, or one thing about it changed."""

    name: str
    noise: bool = True
    optimiser: str = "adam"
    rate_factor: float = 1.0
    clip_norm: float = CLIP_NORM
    transitions: int = 1
    drawn: float | None = None  # of the experts, each step; otherwise the paper's
    by_rule: bool = False  # the learning rate that follows from the noise; otherwise the paper's
    learner: Mapping[str, Any] = AS_IT_IS


def long_ways(setting: PublishedSetting) -> list[Way]:
    assert setting.noise_multiplier is not None  # every step is private
    as_far = setting.batch_size / (setting.noise_multiplier * CLIP_NORM)
    return [
        Way("Adam"),
        Way("plain steps, as far", optimiser="sgd", rate_factor=as_far),
        Way("plain steps", optimiser="sgd"),
        Way("Adam, a tenth of the rate", rate_factor=0.1),
        Way("Adam, no noise", noise=False),
    ]


def step_ways(learner: str) -> list[Way]:
    """`learner` decides what "more like imitation" is."""
    imitating = {"cql": ("α = 10", {"alpha": 10.0}), "bcq": ("threshold 0.9", {"threshold": 0.9})}
    name, options = imitating[learner]
    ours = FitSettings(method="dp-sgd").filled()
    drawn = Way("our experts a step and rate", drawn=ours.sampling_rate, by_rule=True)
    return [
        Way("the paper's step"),
        Way("no noise", noise=False),
        Way("neither noise nor clipping", noise=False, clip_norm=NO_CLIPPING),
        Way(f"the mean of {AVERAGED} transitions", transitions=AVERAGED),
        Way("our networks", learner=SMALL),
        drawn,
        drawn._replace(
            name="all four",
            clip_norm=ours.clip_norm or CLIP_NORM,
            transitions=AVERAGED,
            learner=SMALL,
        ),
        Way("raw observations", learner=RAW),
        Way("raw rewards", learner={"reward_scale": 1.0}),
        Way(name, learner=options),
    ]


def step_of(way: Way, setting: PublishedSetting, noise: float | None, steps: int) -> PrivateStep:
    """`noise` is the paper's multiplier; None for what `setting.epsilon` allows for the steps."""
    drawn = way.drawn or setting.batch_size / EXPERTS
    if noise is None:
        noise = noise_multiplier_for(
            steps=steps, sampling_rate=drawn, epsilon=setting.epsilon, delta=1 / EXPERTS
        )
    return PrivateStep(
        sampling_rate=drawn,
        clip_norm=way.clip_norm,
        noise_multiplier=noise if way.noise else NO_NOISE / way.clip_norm,
        expected_batch=drawn * EXPERTS,
        chunk=default_chunk(EXPERTS, drawn, way.transitions),
        contribution=Gradient(transitions=way.transitions),
    )


def moved(first: Any, now: Any) -> list[float]:
    """How far each run's weights are from where they began, for the size that they had there."""
    pairs = list(zip(jax.tree.leaves(first), jax.tree.leaves(now), strict=True))

    def squares(arrays: list[Any]) -> Any:
        return sum(np.square(leaf).reshape(len(leaf), -1).sum(axis=1) for leaf in arrays)

    far = squares([np.asarray(after) - np.asarray(before) for before, after in pairs])
    size = squares([np.asarray(before) for before, _ in pairs])
    return np.sqrt(far / size).tolist()  # type: ignore[no-any-return]


def watched(
    recipe: Recipe,
    step: PrivateStep,
    learning_rate: float,
    steps: int,
    world: AnyWorld,
    data: ExpertData,
    given: argparse.Namespace,
) -> list[dict[str, Any]]:
    """What so many private steps earn, and how far they go, whenever they are looked at."""
    runs = [
        new_run(
            noise_key=jax_key_data(SeededEntropy(seed), "noise"),
            public_key=jax_key_data(SeededEntropy(seed), "public"),
            learning_rate=learning_rate,
            private=step,
        )
        for seed in range(given.seeds)
    ]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *runs)
    spaces = world.spaces
    start = begin(recipe, stacked, spaces.observation_size, spaces.action_count)
    first = jax.tree.map(np.array, start.params)
    rows: list[dict[str, Any]] = []

    def look(standing: TrainState, done: int) -> None:
        if done not in LOOKED_AT and done != steps:
            return
        key = jax.random.key(EPISODES_KEY)
        returns = returns_of(recipe.learner, standing.params, world, None, key, given.episodes)
        earned = np.asarray(returns, np.float64).mean(axis=1).tolist()
        rows.append({"steps": done, "returns": earned, "moved": moved(first, standing.params)})
        print(rows[-1], flush=True)

    schedule = np.full(steps, StepKind.PRIVATE, np.int8)
    options: dict[str, Any] = {"after_chunk": look, "steps_at_once": AT_ONCE}
    train(recipe, stacked, start, schedule, private=data, plain=None, **options)
    return rows


def setting_of(study: str, world: str, learner: str) -> PublishedSetting:
    """
    Raises:
        QuorumError: if the paper has none for this world that the study could be of.
    """
    for setting in best_settings(world, learner):
        private = study == "step" or setting.private_share == 1
        if setting.epsilon == EPSILONS[study] and private:
            return setting
    raise QuorumError(
        f"the paper has no such setting for {world}: give experts of CartPole or HIV."
    )


def measured(given: argparse.Namespace) -> None:
    asked = ("learner", "steps", "seeds", "episodes")
    study = opened(given, given.study, *asked, epsilon=EPSILONS[given.study])
    world, is_long = study.source.world, given.study == "long"
    setting = setting_of(given.study, world.name, given.learner)
    data = study.source.standing_for(EXPERTS)
    usual: Any = learner_of(study.source.declared, given.learner)
    steps = given.steps or (published_steps(setting) if is_long else SHORT)
    found = []
    for way in long_ways(setting) if is_long else step_ways(given.learner):
        print(way.name, flush=True)
        step = step_of(way, setting, setting.noise_multiplier if is_long else None, steps)
        rate = rate_for(step, steps) if way.by_rule else way.rate_factor * setting.learning_rate
        recipe = Recipe(
            learner=replace(usual, **way.learner),
            private_shape=step.shape,
            optimiser=optimiser_of(way.optimiser),
        )
        rows = watched(recipe, step, rate, steps, world, data, given)
        facts = {"learner": dict(way.learner), "noise_multiplier": step.noise_multiplier}
        found.append(way._asdict() | facts | {"learning_rate": rate, "rows": rows})
    study.save({"experts": data.expert_count, "ways": found})


def main() -> None:
    parser = parser_for_a_study(__doc__ or "")
    parser.add_argument("study", choices=list(EPSILONS))
    parser.add_argument("--steps", type=int, help="otherwise the paper's budget, or 20,000")
    given = parser.parse_args()
    check_counts(parser, given, "steps", "seeds", "episodes")
    run(parser, given, measured)


if __name__ == "__main__":
    main()
