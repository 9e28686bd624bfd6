"""What tells a private step of the paper's from ours, one thing at a time.

Takes the paper's setting at ε = 10 with every step private, in 20,000 steps with the noise that
ε = 10 allows for them, and changes one thing in turn: what costs privacy to leave out (noise,
clipping), what tells our step from theirs, and what the paper does not say. On experts that are cut
to as many as the paper's, or on a sample of their logs (a proxy, as in `tuning.py`).

    quorum experts train LunarLander --settings 333 --candidates 3 --experts 999 --seed 7 --fast \
      --out lander.safetensors
    python benchmarks/samples.py lander.safetensors --cut 3 --keep 128 --out lander.npz
    python benchmarks/private_step.py lander.npz --learner cql --out results/step
"""

import argparse
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from quorum_rl.distributed import prepare

prepare(fast=True)  # what a step lacks does not hang on the last bits

from long_trainings import watched  # noqa: E402
from quorum_rl.errors import QuorumError  # noqa: E402
from quorum_rl.learners import defaults  # noqa: E402
from quorum_rl.pipeline import FitSettings  # noqa: E402
from quorum_rl.pipeline.plan import rate_for  # noqa: E402
from quorum_rl.privacy.calibration import noise_multiplier_for  # noqa: E402
from quorum_rl.privacy.published_settings import EXPERTS, PublishedSetting  # noqa: E402
from quorum_rl.training.contributions import Gradient  # noqa: E402
from quorum_rl.training.mechanism import PrivateStep, default_chunk  # noqa: E402
from quorum_rl.training.recipe import Recipe  # noqa: E402
from reproduction.columns import (  # noqa: E402
    CLIP_NORM,
    best_settings,
    learner_of,
)
from samples import check_counts  # noqa: E402
from study import NO_NOISE, opened, parser_for_a_study, run  # noqa: E402

EPSILON: Final = 10.0
AVERAGED: Final = 16  # transitions of an expert; 64 take four times as long
NO_CLIPPING: Final = 30.0  # that few gradients reach; the lattice is as coarse as this is wide
AS_IT_IS: Final[Mapping[str, Any]] = MappingProxyType({})
SMALL: Final = MappingProxyType({"hidden_sizes": defaults.HIDDEN_SIZES})
RAW: Final = MappingProxyType({"observation_centre": (), "observation_scale": ()})


class Way(NamedTuple):
    """The paper's private step, or one thing about it changed."""

    name: str
    noise: bool = True
    clip_norm: float = CLIP_NORM
    transitions: int = 1
    drawn: float | None = None  # of the experts, each step; otherwise the paper's
    by_rule: bool = False  # the learning rate that follows from the noise; otherwise the paper's
    learner: Mapping[str, Any] = AS_IT_IS


def ways(learner: str) -> list[Way]:
    """`learner` decides what "more like imitation" is."""
    imitating = {"cql": ("α = 10", {"alpha": 10.0}), "bcq": ("threshold 0.9", {"threshold": 0.9})}
    name, options = imitating[learner]
    ours = FitSettings(method="dp-sgd").filled()
    assert ours.clip_norm is not None
    assert ours.sampling_rate is not None
    everything = Way(
        "all four",
        clip_norm=ours.clip_norm,
        transitions=AVERAGED,
        drawn=ours.sampling_rate,
        by_rule=True,
        learner=SMALL,
    )
    return [
        Way("the paper's step"),
        Way("no noise", noise=False),
        Way("neither noise nor clipping", noise=False, clip_norm=NO_CLIPPING),
        Way(f"the mean of {AVERAGED} transitions", transitions=AVERAGED),
        Way("our networks", learner=SMALL),
        Way("our experts a step and rate", drawn=ours.sampling_rate, by_rule=True),
        everything,
        Way("raw observations", learner=RAW),
        Way("raw rewards", learner={"reward_scale": 1.0}),
        Way(name, learner=options),
    ]


def step_of(way: Way, setting: PublishedSetting, steps: int) -> PrivateStep:
    drawn = way.drawn or setting.batch_size / EXPERTS
    noise = noise_multiplier_for(
        steps=steps, sampling_rate=drawn, epsilon=EPSILON, delta=1 / EXPERTS
    )
    return PrivateStep(
        sampling_rate=drawn,
        clip_norm=way.clip_norm,
        noise_multiplier=noise if way.noise else NO_NOISE / way.clip_norm,
        expected_batch=drawn * EXPERTS,
        chunk=default_chunk(EXPERTS, drawn, way.transitions),
        contribution=Gradient(transitions=way.transitions),
    )


def setting_of(world: str, learner: str) -> PublishedSetting:
    """
    Raises:
        QuorumError: if the paper has none for this world.
    """
    for setting in best_settings(world, learner):
        if setting.epsilon == EPSILON:
            return setting
    raise QuorumError(f"the paper has no setting for {world}: give experts of one of its worlds.")


def measured(given: argparse.Namespace) -> None:
    asked = ("learner", "steps", "seeds", "episodes")
    study = opened(given, "step", *asked, epsilon=EPSILON)
    world = study.source.world
    setting = setting_of(world.name, given.learner)
    data = study.source.standing_for(EXPERTS)
    usual: Any = learner_of(study.source.declared, given.learner)
    found = []
    for way in ways(given.learner):
        print(way.name, flush=True)
        step = step_of(way, setting, given.steps)
        rate = rate_for(step, given.steps) if way.by_rule else setting.learning_rate
        recipe = Recipe(learner=replace(usual, **way.learner), private_shape=step.shape)
        rows = watched(recipe, step, rate, given.steps, world, data, given)
        facts = {"learner": dict(way.learner), "noise_multiplier": step.noise_multiplier}
        found.append(way._asdict() | facts | {"learning_rate": rate, "rows": rows})
    study.save({"experts": data.expert_count, "ways": found})


def main() -> None:
    parser = parser_for_a_study(__doc__ or "")
    parser.add_argument("--steps", type=int, default=20_000)
    given = parser.parse_args()
    check_counts(parser, given, "steps", "seeds", "episodes")
    run(parser, given, measured)


if __name__ == "__main__":
    main()
