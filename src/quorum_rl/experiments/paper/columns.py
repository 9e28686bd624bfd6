"""The columns of the evaluation: what the paper compares, and what we put beside it.

Ours are at a valid (ε, δ), the settings that `quorum fit` has. The paper's method keeps its own
account, whose claim does not hold; what its settings truly cost is in docs/accounting.md.
"""

from dataclasses import replace
from typing import Final

from quorum_rl.experiments.comparison import Method
from quorum_rl.fit import FitSettings
from quorum_rl.learners import Learner, get_learner
from quorum_rl.privacy.published import published_steps
from quorum_rl.privacy.published_settings import EXPERTS, PublishedSetting

EPSILONS: Final = (1.0, 2.5, 5.0, 7.5, 10.0)

NON_PRIVATE: Final = "non-private"
ONE_EACH: Final = "DP-SGD, one transition"
AVERAGED: Final = "DP-SGD, mean of 16"
RELEASE_ONLY: Final = "release only"
BOTH: Final = "both stages"


def learner_of(world: str, name: str, reward_scale: float = 1.0) -> Learner:
    """A learner with the paper's network for a world."""
    hidden = (512,) if world == "HIV" else (256, 256)
    return get_learner(name.lower(), hidden_sizes=hidden, reward_scale=reward_scale)


def main_columns(
    epsilons: tuple[float, ...] = EPSILONS, settings: FitSettings | None = None
) -> list[Method]:
    """The bound without privacy, and at every ε both forms of DP-SGD and our method's two halves.

    `settings` are ours; the form of DP-SGD with one transition differs from them in that alone.
    """
    ours = settings or FitSettings()
    free = replace(ours, method="non-private")
    methods = [Method(name=NON_PRIVATE, settings=free)]
    for epsilon in epsilons:
        alone = replace(ours, method="dp-sgd")
        methods += [
            Method(
                name=ONE_EACH, settings=replace(alone, transitions_per_expert=1), epsilon=epsilon
            ),
            Method(name=AVERAGED, settings=alone, epsilon=epsilon),
            Method(name=RELEASE_ONLY, settings=replace(ours, release_share=1.0), epsilon=epsilon),
            Method(name=BOTH, settings=ours, epsilon=epsilon),
        ]
    return methods


def published_column(setting: PublishedSetting, most_steps: int | None = None) -> Method:
    """The paper's method with one of its best settings, and its own account.

    Training goes on until that account is spent, unless `most_steps` is less: then the noise is
    what the account allows for so many steps, and the name says so.
    """
    steps = published_steps(setting)
    short = most_steps is not None and (steps == 0 or steps > most_steps)
    name = f"as published, {most_steps:,} steps" if short and steps else "as published"
    if short:
        assert most_steps is not None
        steps = most_steps
    settings = FitSettings(
        method="selective" if setting.iterations else "dp-sgd",
        mode="paper",
        release_share=_release_share(setting),
        private_share=setting.private_share or 1.0,
        private_steps=max(1, round(setting.private_share * steps)),
        noise_multiplier=None if short else setting.noise_multiplier,
        transitions_per_expert=1,
        sampling_rate=setting.batch_size / EXPERTS,
        learning_rate=setting.learning_rate,
        private_learning_rate=setting.learning_rate,
        batch_size=setting.batch_size,
        averaging=0.0,
        release_only_steps=max(1, steps),
        iterations=setting.iterations or None,
    )
    return Method(name=name, settings=settings, epsilon=setting.epsilon)


def _release_share(setting: PublishedSetting) -> float:
    if setting.private_share == 0:
        return 1.0
    return 0.75 if setting.iterations else 0.5  # without a release the share does not count
