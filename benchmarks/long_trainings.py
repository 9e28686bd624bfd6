"""Why the paper's long trainings fail with Adam: what noise does to weights, step after step.

Takes the paper's setting at a claimed ε = 5, whose steps are all private, in several ways, on
experts that are cut to as many as the paper's, or a sample of their logs (a proxy, as in
`tuning.py`). After 300, 1000, 3000, … steps it says what the policy earns, and how far weights have
moved from where they began, as a multiple of their size there. With Adam noise moves every weight
by about rate · √steps; plain steps do as much at that rate times batch / (noise multiplier · clip
norm), and are tried with that too.

    quorum experts train CartPole --preset small --seed 1 --out small.safetensors
    python benchmarks/long_trainings.py small.safetensors --learner bcq --out results/long
"""

import argparse
from typing import Any, Final, NamedTuple

from quorum_rl.distributed import prepare

prepare(fast=True)  # what noise does to weights does not hang on the last bits

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

from quorum_rl.budget import SeededEntropy, jax_key_data  # noqa: E402
from quorum_rl.envs import AnyWorld  # noqa: E402
from quorum_rl.errors import QuorumError  # noqa: E402
from quorum_rl.evaluation import returns_of  # noqa: E402
from quorum_rl.learners import Learner  # noqa: E402
from quorum_rl.privacy.published import published_steps  # noqa: E402
from quorum_rl.privacy.published_settings import EXPERTS, PublishedSetting  # noqa: E402
from quorum_rl.training.contributions import Gradient  # noqa: E402
from quorum_rl.training.data import ExpertData  # noqa: E402
from quorum_rl.training.loop import begin, train  # noqa: E402
from quorum_rl.training.mechanism import PrivateStep, default_chunk  # noqa: E402
from quorum_rl.training.recipe import (  # noqa: E402
    Recipe,
    StepKind,
    TrainState,
    new_run,
    optimiser_of,
)
from reproduction.columns import (  # noqa: E402
    CLIP_NORM,
    best_settings,
    learner_of,
)
from samples import check_counts  # noqa: E402
from study import NO_NOISE, opened, parser_for_a_study, run  # noqa: E402
from tuning import EPISODES_KEY  # noqa: E402

CLAIMED: Final = 5.0
LOOKED_AT: Final = (300, 1000, 3000, 10_000, 30_000, 100_000, 300_000, 1_000_000)
AT_ONCE: Final = 100


class Way(NamedTuple):
    """The paper's setting, or one thing about it changed."""

    name: str
    optimiser: str
    rate_factor: float = 1.0
    noise: bool = True


def ways(setting: PublishedSetting) -> list[Way]:
    assert setting.noise_multiplier is not None  # every step is private
    as_far = setting.batch_size / (setting.noise_multiplier * CLIP_NORM)
    return [
        Way("Adam", "adam"),
        Way("plain steps, as far", "sgd", as_far),
        Way("plain steps", "sgd"),
        Way("Adam, a tenth of the rate", "adam", 0.1),
        Way("Adam, no noise", "adam", noise=False),
    ]


def step_of(setting: PublishedSetting, way: Way) -> PrivateStep:
    drawn = setting.batch_size / EXPERTS
    assert setting.noise_multiplier is not None  # every step is private
    return PrivateStep(
        sampling_rate=drawn,
        clip_norm=CLIP_NORM,
        noise_multiplier=setting.noise_multiplier if way.noise else NO_NOISE / CLIP_NORM,
        expected_batch=setting.batch_size,
        chunk=default_chunk(EXPERTS, drawn, 1),
        contribution=Gradient(transitions=1),
    )


def moved(first: Any, now: Any) -> list[float]:
    """How far each run's weights are from where they began, for the size that they had there."""
    pairs = list(zip(jax.tree.leaves(first), jax.tree.leaves(now), strict=True))

    def squares(arrays: list[Any]) -> Any:
        return sum(np.square(one).reshape(len(one), -1).sum(axis=1) for one in arrays)

    far = squares([np.asarray(b) - np.asarray(a) for a, b in pairs])
    return np.sqrt(far / squares([np.asarray(a) for a, _ in pairs])).tolist()  # type: ignore[no-any-return]


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
    train(
        recipe,
        stacked,
        start,
        schedule,
        private=data,
        plain=None,
        after_chunk=look,
        steps_at_once=AT_ONCE,
    )
    return rows


def followed(
    way: Way,
    setting: PublishedSetting,
    learner: Learner,
    world: AnyWorld,
    data: ExpertData,
    given: argparse.Namespace,
) -> dict[str, Any]:
    """What one way earns, and how far it goes."""
    print(way.name, flush=True)
    step, steps = step_of(setting, way), given.steps or published_steps(setting)
    recipe = Recipe(
        learner=learner, private_shape=step.shape, optimiser=optimiser_of(way.optimiser)
    )
    rate = way.rate_factor * setting.learning_rate
    rows = watched(recipe, step, rate, steps, world, data, given)
    return {**way._asdict(), "learning_rate": rate, "rows": rows}


def setting_of(world: str, learner: str) -> PublishedSetting:
    """
    Raises:
        QuorumError: if the paper has none whose steps are all private.
    """
    for setting in best_settings(world, learner):
        if setting.epsilon == CLAIMED and setting.private_share == 1:
            return setting
    raise QuorumError(
        f"the paper has no setting for {world} at ε = {CLAIMED:g} whose steps are all private: "
        "give experts of CartPole, LunarLander or HIV."
    )


def measured(given: argparse.Namespace) -> None:
    asked = ("learner", "steps", "seeds", "episodes")
    study = opened(given, "long", *asked, claimed=CLAIMED)
    world = study.source.world
    setting = setting_of(world.name, given.learner)
    data = study.source.standing_for(EXPERTS)
    learner = learner_of(study.source.declared, given.learner)
    found = [followed(way, setting, learner, world, data, given) for way in ways(setting)]
    study.save({"experts": data.expert_count, "ways": found})


def main() -> None:
    parser = parser_for_a_study(__doc__ or "")
    parser.add_argument("--steps", type=int, help="otherwise to the end of the paper's budget")
    given = parser.parse_args()
    check_counts(parser, given, "steps", "seeds", "episodes")
    run(parser, given, measured)


if __name__ == "__main__":
    main()
