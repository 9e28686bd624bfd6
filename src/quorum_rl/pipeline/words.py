"""What a plan says of its learner and of what experts contribute, in words."""

from quorum_rl.learners import DenseLearner, Learner
from quorum_rl.training import Contribution, Gradient, Local


def in_words(contribution: Contribution) -> str:
    """What an expert contributes to a private step."""
    if isinstance(contribution, Local):
        return (
            f"{contribution.steps} steps of its own on {contribution.batch_size} transitions each "
            f"at rate {contribution.rate:g}"
        )
    if isinstance(contribution, Gradient):
        return f"mean gradient of {contribution.transitions} transitions"
    return f"{type(contribution).__name__.lower()} on {contribution.transitions} transitions"


def learner_in_words(learner: Learner) -> str:
    name = getattr(learner, "name", type(learner).__name__)
    sizes = getattr(learner, "hidden_sizes", None)
    if sizes is None:
        return f"learner: {name}"
    layers = " and ".join(map(str, sizes))
    return f"learner: {name}, {f'hidden layers of {layers}' if sizes else 'a linear policy'}"


def units_in_words(learner: Learner) -> list[str]:
    """What a learner makes of numbers before it sees them, which may be by default."""
    said = []
    if isinstance(learner, DenseLearner) and learner.observation_centre:
        centre, scale = (
            " ".join(f"{one:g}" for one in each)
            for each in (learner.observation_centre, learner.observation_scale)
        )
        said.append(f"observations are seen less ({centre}) and divided by ({scale})")
    reward_scale = getattr(learner, "reward_scale", 1.0)
    if reward_scale != 1:
        said.append(f"rewards are multiplied by {reward_scale:g}")
    return said
