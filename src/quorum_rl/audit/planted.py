"""Bugs planted on purpose, so that everybody can see that an audit finds them. NEVER private.

Each replaces one name of the product while it is open, and changes nothing else.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any, Final

from quorum_rl.budget import Entropy
from quorum_rl.errors import unknown_name
from quorum_rl.privacy.events import ReleaseEvent, TrainingEvent
from quorum_rl.release.mechanism import released_lengths
from quorum_rl.release.noise import Noise
from quorum_rl.training.mechanism import PrivateStep, StepNumbers

_RELEASE: Final = import_module("quorum_rl.release.release")  # the room has a function of that name
_NUMBERS: Final[Any] = PrivateStep.numbers


@dataclass(frozen=True)
class Bug:
    """What is wrong, and where it is planted."""

    said: str
    owner: Any = field(repr=False)
    name: str = field(repr=False)
    in_its_place: Any = field(repr=False)


def _less_noise(step: PrivateStep) -> StepNumbers:
    found: StepNumbers = _NUMBERS.fget(step)
    return found._replace(noise_multiplier=found.noise_multiplier / 2)


def _no_clipping(step: PrivateStep) -> StepNumbers:
    """A bound that no gradient reaches, and the noise that it was."""
    found: StepNumbers = _NUMBERS.fget(step)
    bound = 1e12 * found.clip_norm
    return found._replace(clip_norm=bound, noise_multiplier=found.noise_multiplier / 1e12)


def _coin_taken_for_hidden(step: PrivateStep, steps: int) -> TrainingEvent:
    """All steps, of which half are private, as if each were private by a coin that nobody sees."""
    return TrainingEvent(
        sampling_rate=step.sampling_rate / 2,
        noise_multiplier=step.noise_multiplier,
        steps=2 * steps,
    )


def _half_the_offset(event: ReleaseEvent, *rest: Any) -> Any:
    return released_lengths(replace(event, threshold=(event.theta + event.threshold) / 2), *rest)


def _less_query_noise(entropy: Entropy, event: ReleaseEvent) -> Noise:
    return Noise(entropy, replace(event, query_epsilon=2 * event.query_epsilon))


BUGS: Final[dict[str, Bug]] = {
    "noise-halved": Bug(
        "private steps add half of the noise",
        PrivateStep,
        "numbers",
        property(_less_noise),
    ),
    "clipping-off": Bug(
        "gradients are not clipped",
        PrivateStep,
        "numbers",
        property(_no_clipping),
    ),
    "coin-accounting": Bug(
        "training is accounted with q = p·b/m at p = 0.5, as if nobody saw which steps are private",
        PrivateStep,
        "event",
        _coin_taken_for_hidden,
    ),
    "offset-halved": Bug(
        "the threshold lies half as far above theta",
        _RELEASE,
        "released_lengths",
        _half_the_offset,
    ),
    "query-noise-halved": Bug(
        "queries get half of the noise",
        _RELEASE,
        "Noise",
        _less_query_noise,
    ),
}


def bug_named(name: str) -> Bug:
    """A bug that can be planted.

    Raises:
        QuorumError: if there is none of that name.
    """
    if name not in BUGS:
        raise unknown_name("planted bug", name, BUGS)
    return BUGS[name]


@contextmanager
def planted(name: str) -> Iterator[Bug]:
    """Plant a bug while the block runs.

    Raises:
        QuorumError: as `bug_named`.
    """
    bug = bug_named(name)
    before = vars(bug.owner)[bug.name]
    setattr(bug.owner, bug.name, bug.in_its_place)
    try:
        yield bug
    finally:
        setattr(bug.owner, bug.name, before)
