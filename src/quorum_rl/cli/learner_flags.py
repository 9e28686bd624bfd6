"""What the commands that train are told about their learner."""

from dataclasses import dataclass
from typing import Any, Literal


@dataclass(frozen=True, kw_only=True)
class LearnerFlags:
    """Who learns, with which networks, from numbers of which size."""

    learner: Literal["auto", "bc", "cql", "bcq", "double-dqn"] = "auto"
    """How to learn from transitions; auto imitates (bc), but in the paper's own methods (cql)."""
    hidden: tuple[int, ...] | None = None
    """Sizes of the policy's hidden layers; chosen for the noise unless given."""
    reward_scale: float | None = None
    """What rewards are multiplied by, where not by a world's units; choose it from what is public,
    never from the logs."""
    observation_centre: tuple[float, ...] | None = None
    """What is subtracted from observations, a number for each of theirs, before they are divided by
    --observation-scale: public numbers, never from the logs. Our own worlds have units, which are
    taken unless given here; without numbers, observations stay as they are."""
    observation_scale: tuple[float, ...] | None = None
    """What observations are divided by; see --observation-centre."""

    def learner_settings(self) -> dict[str, Any]:
        """What was given, by the learners' own names; the rest is as they have it."""
        asked = {
            "hidden_sizes": self.hidden,
            "reward_scale": self.reward_scale,
            "observation_centre": self.observation_centre,
            "observation_scale": self.observation_scale,
        }
        return {name: value for name, value in asked.items() if value is not None}
