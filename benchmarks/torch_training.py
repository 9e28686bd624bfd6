"""PyTorch's half of `training.py`: run by the interpreter of d3rlpy's own environment.

Reads lines "NAME STEPS" and answers each with one line of JSON, the seconds that so many gradient
steps took; the first line it writes says which versions answer and what it can measure. It imports
nothing of Quorum.
"""

import json
import os
import sys
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np
import torch
from torch import nn

BATCH = 128
OPACUS_EXPERTS = 256
OBSERVATION_SIZE, ACTION_COUNT, HIDDEN = 4, 2, [256, 256]
Step = Callable[[], Any]


def versions() -> dict[str, str]:
    found = {}
    for name in ("torch", "d3rlpy", "opacus"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def d3rlpy_steps() -> dict[str, Step]:
    """Steps as `fit` takes them, and of CQL and BCQ the update alone on a batch it has already."""
    import d3rlpy

    random = np.random.default_rng(0)
    episodes, length = 50, 200
    steps = episodes * length
    data = d3rlpy.dataset.MDPDataset(
        random.normal(size=(steps, OBSERVATION_SIZE)).astype(np.float32),
        random.integers(ACTION_COUNT, size=(steps, 1)),
        random.normal(size=(steps, 1)).astype(np.float32),
        np.tile(np.arange(length) == length - 1, episodes).astype(np.float32),
        action_space=d3rlpy.ActionSpace.DISCRETE,
        action_size=ACTION_COUNT,
    )
    made: dict[str, Step] = {}
    encoder = d3rlpy.models.VectorEncoderFactory(HIDDEN)
    for name, config in (
        ("cql", d3rlpy.algos.DiscreteCQLConfig(batch_size=BATCH, encoder_factory=encoder)),
        ("bcq", d3rlpy.algos.DiscreteBCQConfig(batch_size=BATCH, encoder_factory=encoder)),
    ):
        learner = config.create(device="cpu:0")
        learner.build_with_dataset(data)
        batch = data.sample_transition_batch(BATCH)
        made[f"d3rlpy-{name}"] = partial(sample_and_update, learner, data)
        made[f"d3rlpy-{name}-update"] = partial(learner.update, batch)
    return made


def sample_and_update(learner: Any, data: Any) -> None:
    learner.update(data.sample_transition_batch(BATCH))


def network() -> nn.Sequential:
    sizes = [OBSERVATION_SIZE, *HIDDEN]
    hidden = [
        layer for a, b in zip(sizes, HIDDEN, strict=False) for layer in (nn.Linear(a, b), nn.ReLU())
    ]
    return nn.Sequential(*hidden, nn.Linear(HIDDEN[-1], ACTION_COUNT))


def opacus_step() -> Step:
    """A private step of CQL, one transition an expert; the draw is fixed, its time not counted."""
    from opacus import GradSampleModule
    from opacus.optimizers import DPOptimizer

    values, target = GradSampleModule(network()), network()
    optimiser = DPOptimizer(
        torch.optim.Adam(values.parameters(), 1e-4),
        noise_multiplier=1.0,
        max_grad_norm=1.0,
        expected_batch_size=OPACUS_EXPERTS,
    )
    states, following = torch.randn(2, OPACUS_EXPERTS, OBSERVATION_SIZE)
    actions = torch.randint(ACTION_COUNT, (OPACUS_EXPERTS, 1))
    rewards = torch.randn(OPACUS_EXPERTS)

    def step() -> None:
        optimiser.zero_grad()
        with torch.no_grad():
            best = values._module(following).argmax(1, keepdim=True)
            goal = rewards + 0.99 * target(following).gather(1, best)[:, 0]
        outputs = values(states)
        taken = outputs.gather(1, actions)[:, 0]
        penalty = outputs.logsumexp(1) - taken
        (nn.functional.huber_loss(taken, goal) + penalty.mean()).backward()
        optimiser.step()
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), values.parameters(), strict=True):
                slow.lerp_(fast, 0.005)

    return step


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(len(os.sched_getaffinity(0)))
    # What the libraries print while they start must not be taken for an answer.
    answers, sys.stdout = sys.stdout, sys.stderr
    found = versions()
    steps = d3rlpy_steps() if "d3rlpy" in found else {}
    if "opacus" in found:
        steps["opacus"] = opacus_step()
    for step in steps.values():
        step()
    print(json.dumps({"versions": found, "measures": list(steps)}), file=answers, flush=True)
    for line in sys.stdin:
        name, count = line.split()
        began = time.perf_counter()
        for _ in range(int(count)):
            steps[name]()
        print(json.dumps(time.perf_counter() - began), file=answers, flush=True)


if __name__ == "__main__":
    main()
