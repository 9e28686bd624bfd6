"""What the numbers of private training earn, on few experts that stand for many.

The defaults of a fit were chosen in this way (docs/reproduction.md). The transitions of each expert
are cut into several runs, in order, each of which counts as an expert, and the noise is that for
the number of experts asked for. So it is a proxy, and no private training: parts of one expert are
more alike than experts are, and somebody is in several of them. Choose on other experts than those
that a result is reported for.

    quorum experts train LunarLander --settings 333 --candidates 3 --count 999 --seed 7 --fast \
      --out lander.safetensors
    python -m reproduction.studies.tuning lander.safetensors --cut 3 --experts 3000 --keep 128 \
      --options '{"reward_scale": 0.1}' --epsilons 1 5 --rates rule 9e-3 --clip-norms 1 0.1

All runs that differ in ε, rate, clip norm and seed are one program.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from quorum_rl.budget import SeededEntropy, jax_key_data
from quorum_rl.distributed import prepare
from quorum_rl.envs import AnyWorld
from quorum_rl.errors import QuorumError
from quorum_rl.evaluation import returns_of
from quorum_rl.learners import Learner, defaults
from quorum_rl.pipeline import FitSettings, Result, learner_for
from quorum_rl.pipeline.plan import rate_for
from quorum_rl.privacy import noise_multiplier_for
from quorum_rl.training import (
    ExpertData,
    Gradient,
    PrivateStep,
    Recipe,
    Run,
    StepKind,
    begin,
    default_chunk,
    new_run,
    optimiser_of,
    result_of,
    train,
)
from reproduction.population import FLOOR, TRAJECTORIES
from reproduction.results import add, read
from reproduction.studies.samples import Source, check_counts, check_folder, sampled, source_of
from reproduction.studies.study import NO_NOISE

EPISODES_KEY: Final = 7
STEPS_AT_ONCE: Final = 250
USUAL: Final = FitSettings(method="dp-sgd").filled()
RULE: Final = "rule"


class Trial(NamedTuple):
    """What runs of one program may differ in, their seeds aside; without privacy or noise no ε."""

    epsilon: float | None
    rate: float
    step: PrivateStep | None

    def to_json(self) -> dict[str, Any]:
        return {
            "epsilon": self.epsilon,
            "noise_multiplier": self.step and self.step.noise_multiplier,
            "rate": self.rate,
            "clip_norm": self.step and self.step.clip_norm,
        }


def trials(given: argparse.Namespace, found: int) -> list[Trial]:
    """Every ε with every rate and clip norm, for `found` experts that stand for those asked for."""
    if given.without_privacy:
        return [Trial(None, rate, None) for rate in given.rates]
    experts, drawn = given.experts or found, given.sampling_rate
    made = []
    for epsilon in [None] if given.no_noise else given.epsilons:
        noise = None if epsilon is None else _noise(given, epsilon, experts)
        for clip_norm in given.clip_norms:
            step = PrivateStep(
                sampling_rate=min(1.0, drawn * experts / found),  # as many as of those asked for
                clip_norm=clip_norm,
                noise_multiplier=NO_NOISE / clip_norm if noise is None else noise,
                expected_batch=drawn * experts,
                chunk=default_chunk(experts, drawn, given.transitions),
                contribution=Gradient(transitions=given.transitions),
                normalised=given.normalised,
            )
            rates = [rate_for(step, given.steps) if rate == RULE else rate for rate in given.rates]
            made += [Trial(epsilon, rate, step) for rate in rates]
    return made


def _noise(given: argparse.Namespace, epsilon: float, experts: int) -> float:
    return noise_multiplier_for(
        steps=given.steps, sampling_rate=given.sampling_rate, epsilon=epsilon, delta=1 / experts
    )


def run_of(trial: Trial, seed: int, steps: int) -> Run:
    entropy = SeededEntropy(seed)
    return new_run(
        noise_key=jax_key_data(entropy, "noise"),
        public_key=jax_key_data(entropy, "public"),
        learning_rate=trial.rate,
        rates_end=steps,
        private=trial.step,
    )


def returns(
    tried: list[Trial],
    learner: Learner,
    world: AnyWorld,
    data: ExpertData,
    given: argparse.Namespace,
) -> Any:
    """Train all, act with all. Shapes: (trials, seeds), mean returns."""
    first = tried[0].step
    recipe = Recipe(
        learner=learner,
        private_shape=None if first is None else first.shape,
        averaging=given.averaging,
        batch_size=FitSettings.batch_size,
        optimiser=optimiser_of(given.optimiser),
    )
    runs = [run_of(trial, seed, given.steps) for trial in tried for seed in range(given.seeds)]
    stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *runs)
    spaces = world.spaces
    kind = StepKind.PLAIN if first is None else StepKind.PRIVATE
    standing = train(
        recipe,
        stacked,
        begin(recipe, stacked, spaces.observation_size, spaces.action_count),
        np.full(given.steps, kind, np.int8),
        private=None if first is None else data,
        plain=data.transitions if first is None else None,
        steps_at_once=STEPS_AT_ONCE,
    )
    numbers = np.tile(np.arange(given.seeds, dtype=np.int32), len(tried))
    key = jax.random.key(EPISODES_KEY)
    params = result_of(recipe, standing)
    each = returns_of(learner, params, world, None, key, given.episodes, numbers)
    return each.mean(1).reshape(len(tried), given.seeds)


def data_of(source: Source, given: argparse.Namespace) -> ExpertData:
    """What is trained on: a sample as it is, or experts cut and sampled as asked.

    Raises:
        QuorumError: if a sample is to be made in another way than it was.
    """
    if source.sample is not None:
        if any(getattr(given, name) != made for name, made in source.made.items()):
            how = " ".join(f"--{name} {made}" for name, made in source.made.items())
            raise QuorumError(f"this sample was made with {how}: say so.")
        return source.sample
    return sampled(source, given.cut, given.keep, given.trajectories)


def options(text: str) -> dict[str, Any]:
    """A learner's, as JSON. Empty observation_centre and observation_scale are for a raw world."""
    try:
        found = json.loads(text).items()
    except (ValueError, AttributeError) as error:
        raise argparse.ArgumentTypeError(f"{text!r} is no JSON object") from error
    made = {key: tuple(value) if isinstance(value, list) else value for key, value in found}
    for key, value in made.items():
        numbers = value if type(value) is tuple else [value]
        if not all(isinstance(number, int | float) for number in numbers):
            raise argparse.ArgumentTypeError(
                f"{key} is {value!r}: give a number, or a list of them"
            )
    return made


def positive(text: str) -> float:
    number = float(text)
    if not 0 < number < math.inf:
        raise argparse.ArgumentTypeError(f"{text} is no positive number")
    return number


def at_most_one(text: str) -> float:
    number = positive(text)
    if number > 1:
        raise argparse.ArgumentTypeError(f"{text} is more than 1")
    return number


def rate(text: str) -> float | str:
    """A number, or the rule's."""
    return text if text == RULE else positive(text)


def arguments() -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("population", type=Path, help="experts, or a sample of their logs")
    parser.add_argument("--cut", type=int, default=1, help="into how many each expert is cut")
    parser.add_argument("--experts", type=int, help="for how many the noise is; otherwise all")
    parser.add_argument("--keep", type=int, help="random transitions of each; otherwise all")
    parser.add_argument("--trajectories", type=int, default=TRAJECTORIES)
    parser.add_argument("--learner", default="cql")
    parser.add_argument("--options", type=options, default={}, help="the learner's, as JSON")
    parser.add_argument("--hidden", type=int, nargs="+", default=list(defaults.HIDDEN_SIZES))
    parser.add_argument("--transitions", type=int, default=USUAL.transitions_per_expert)
    parser.add_argument("--sampling-rate", type=at_most_one, default=USUAL.sampling_rate)
    parser.add_argument("--normalised", action="store_true")
    parser.add_argument("--optimiser", default=USUAL.optimiser)
    parser.add_argument("--averaging", type=float, default=USUAL.averaging)
    parser.add_argument("--steps", type=int, default=USUAL.private_steps)
    parser.add_argument("--epsilons", type=positive, nargs="+", help="otherwise 1 and 5")
    parser.add_argument("--rates", nargs="+", type=rate, default=[RULE], help=f"numbers, or {RULE}")
    parser.add_argument("--clip-norms", type=positive, nargs="+", default=[USUAL.clip_norm])
    less = parser.add_mutually_exclusive_group()
    less.add_argument("--without-privacy", action="store_true", help="plain steps; give --rates")
    less.add_argument(
        "--no-noise", action="store_true", help="clipped steps without it; give --rates"
    )
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--episodes", type=int, default=100)
    parser.add_argument("--round", default="", help="what to call these runs")
    parser.add_argument("--out", type=Path, help="the Parquet file to add them to")
    given = parser.parse_args()
    if given.without_privacy or given.no_noise:
        asked = "--without-privacy" if given.without_privacy else "--no-noise"
        if RULE in given.rates:
            parser.error(f"the rule is for noise: give --rates with {asked}")
        if given.epsilons:
            parser.error(f"{asked} has no ε: leave out --epsilons")
    if RULE in given.rates and given.optimiser != USUAL.optimiser:
        parser.error(f"the rule is for {USUAL.optimiser}: give --rates with --optimiser")
    given.epsilons = given.epsilons or [1.0, 5.0]
    if given.experts is not None and given.experts < 2:
        parser.error(f"--experts is {given.experts}: give at least 2")
    if not 0 <= given.averaging < 1:
        parser.error(f"--averaging is {given.averaging:g}: give a decay from 0 to below 1")
    counted = ("cut", "keep", "trajectories", "transitions", "steps", "seeds", "episodes")
    check_counts(parser, given, *counted)
    if given.out is not None:
        check_folder(parser, given.out)
    return parser, given


def main() -> None:
    parser, given = arguments()
    prepare(fast=True)  # which numbers are better does not hang on the last bits
    begun, hidden = time.monotonic(), tuple(given.hidden)
    try:
        source = source_of(given.population)
        learner = learner_for(source.declared, given.learner, hidden_sizes=hidden, **given.options)
        world, data = source.world, data_of(source, given)
        tried = trials(given, data.expert_count)
    except (QuorumError, OSError) as error:
        parser.error(str(error))
    earned = returns(tried, learner, world, data, given)
    rows = [
        trial.to_json() | {"returns": each.tolist()}
        for trial, each in zip(tried, earned, strict=True)
    ]
    for row in rows:
        print(json.dumps(row), flush=True)
    if given.out is not None:
        rest = {"population", "out", "epsilons", "rates", "clip_norms"}
        chosen = {name: value for name, value in vars(given).items() if name not in rest}
        keep(given.out, Result(world.name, "tuning", chosen | {"floor": FLOOR}, begun=begun), rows)


def keep(file: Path, result: Result, rows: list[dict[str, Any]]) -> None:
    """Add rows, with their settings, to what was tried in the world before."""
    facts = result.facts({})
    settings = facts.pop("configuration") | {
        name: facts.pop(name) for name in ("commit", "machine", "seconds")
    }
    name = result.world.lower()
    before = read(file).get(name, facts | {"rows": []})
    more = [settings | row for row in rows]
    add(file, name, before | {"rows": before["rows"] + more})


if __name__ == "__main__":
    main()
