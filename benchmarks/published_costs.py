"""What the 24 best settings of the paper claim and what they cost, as a Markdown table.

    python benchmarks/published_costs.py

And how long calibrations take, the first time, in seconds of one core.
"""

import time
from collections.abc import Callable, Iterable
from functools import partial

from quorum_rl.privacy import TrainingEvent, plan_release, total_epsilon
from quorum_rl.privacy.calibration import noise_multiplier_for, steps_for
from quorum_rl.privacy.published import (
    advanced_composition,
    exact_composition,
    published_cost,
    true_cost,
)
from quorum_rl.privacy.published_settings import (
    BEST_SETTINGS,
    DELTA,
    PublishedSetting,
    published_split,
)

COLUMNS = (
    "setting",
    "p, b, s, T",
    "claimed ε1 + ε2",
    "steps",
    "ε1 exact",
    "ε2 true",
    "true/claimed ε2",
    "true total",
    "true/claimed total",
)


def cost_row(setting: PublishedSetting) -> tuple[str, ...]:
    split, cost = published_split(setting), true_cost(setting)
    noise = "–" if setting.noise_multiplier is None else f"{setting.noise_multiplier:g}"
    share = f"{setting.private_share:g}"
    return (
        f"{setting.world} {setting.learner} {setting.epsilon:g}",
        f"{share}, {setting.batch_size}, {noise}, {setting.iterations or '–'}",
        f"{split.release_epsilon:g} + {split.training_epsilon:g}",
        f"{cost.steps:,}" if cost.steps else "–",
        f"{cost.release_epsilon:.2f}" if setting.iterations else "–",
        f"{cost.training_epsilon:.2f}" if cost.steps else "–",
        "–" if cost.training_ratio is None else f"{cost.training_ratio:.2f}",
        f"{cost.total_epsilon:.2f}",
        f"{cost.total_epsilon / published_cost(setting).epsilon:.2f}",
    )


def print_table(header: Iterable[str], rows: Iterable[Iterable[str]]) -> None:
    names = tuple(header)
    print("| " + " | ".join(names) + " |")
    print("|" + "---|" * len(names))
    for row in rows:
        print("| " + " | ".join(row) + " |", flush=True)


def timed(name: str, task: Callable[[], float]) -> tuple[str, str, str]:
    started = time.process_time()
    found = task()
    shown = f"{found:,}" if isinstance(found, int) else f"{found:.4g}"
    return name, shown, f"{time.process_time() - started:.2f}"


def timed_rows() -> Iterable[tuple[str, str, str]]:
    for share, batch, noise, epsilon, delta in (
        (0.5, 128, 20.0, 2.5, DELTA / 10),
        (0.8, 128, 80.0, 2.5, DELTA / 10),
        (1.0, 256, 80.0, 5.0, DELTA),
    ):
        steps = partial(steps_for, epsilon=epsilon, delta=delta, noise_multiplier=noise)
        yield timed(
            f"steps at q = {share:g}·{batch}/3000, noise {noise:g}, ε = {epsilon:g}",
            partial(steps, sampling_rate=share * batch / 3000),
        )
    noise_for = partial(noise_multiplier_for, sampling_rate=128 / 3000)
    for count in (20_000, 2_000_000):
        yield timed(
            f"noise for {count:,} steps at q = 128/3000, ε = 2.5",
            partial(noise_for, steps=count, epsilon=2.5, delta=DELTA / 10),
        )
    planned = partial(plan_release, experts=3000, actions=2, p_min=0.02, horizon=200)
    release = planned(epsilon=5.0, delta=2e-4, iterations=25, overflow_epsilon=7.5).event
    yield timed(
        "noise for 20,000 steps beside a release of ε = 5, all within 7.5",
        partial(noise_for, steps=20_000, epsilon=7.5, delta=3e-4, beside=[release]),
    )
    yield timed(
        "transitions of a release of ε = 7.5, everything chosen",
        lambda: planned(epsilon=7.5, delta=3e-4).expected_transitions,
    )
    event = TrainingEvent(sampling_rate=64 / 3000, noise_multiplier=15.0, steps=250_000)
    yield timed(
        "ε of 250,000 steps at q = 64/3000, noise 15",
        lambda: total_epsilon([event], DELTA / 10),
    )


def main() -> None:
    print_table(("what", "answer", "seconds of a core"), timed_rows())
    print()
    started = time.process_time()
    print_table(COLUMNS, map(cost_row, BEST_SETTINGS))
    print(f"\nThe table above took {time.process_time() - started:.1f} seconds of a core.")
    for epsilon in (7.5, 10.0):
        exact = exact_composition(advanced_composition(epsilon, DELTA, 50), 50, DELTA)
        print(
            f"HIV CQL {epsilon:g} with all of ε in the release, as the main text says: {exact:.2f}"
        )


if __name__ == "__main__":
    main()
