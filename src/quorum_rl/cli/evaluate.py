"""`quorum evaluate`: how good a finished policy is, which costs no privacy."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import quorum_rl
from quorum_rl import evaluation
from quorum_rl.cli.flags import POLICY, GymnasiumFlags, given, learner_called, world_to_use
from quorum_rl.cli.output import check_new_file, show_facts, start_jax
from quorum_rl.cli.parser import RUNS_CODE, Positional
from quorum_rl.errors import QuorumError, at_least, require
from quorum_rl.files import write_json


@dataclass(frozen=True, kw_only=True)
class Evaluate(GymnasiumFlags):
    """Play greedy episodes of a finished policy.

    Returns are also put on the scale 0 (random policy) to 1 (the world's reference policy). The 95%
    interval is over episodes: it says nothing of what another training would give. A run's folder
    gets the result as evaluation.json. Without a simulator, judges of the fit say what it earns.

    Example: quorum evaluate runs/cartpole --episodes 100
    """

    policy: Annotated[Path, Positional("RUN")]
    """The folder of a finished run, or a policy.safetensors."""
    world: Annotated[str | None, RUNS_CODE] = None
    """A world's name, or path/to/file.py:NAME for your own; that of the logs unless given."""
    learner: Annotated[str | None, RUNS_CODE] = None
    """Of a policy that acts by code: the learner of its fit, path/to/file.py:NAME."""
    episodes: int = 100
    """How many to play."""
    seed: int = 0
    """Another number, other episodes."""
    out: Path | None = None
    """Write the result to this file instead."""
    json: bool = False
    """Print one JSON object."""

    def run(self) -> None:
        if self.world is not None and self.gymnasium is not None:
            raise QuorumError("--world and --gymnasium exclude each other: give one.")
        self.check_gymnasium()
        require("--episodes", self.episodes, at_least(1))
        if self.out is not None:
            check_new_file(self.out, overwrite=True)
        file = self.policy / POLICY if self.policy.is_dir() else self.policy
        if self.policy.is_dir() and not file.exists():
            raise QuorumError(f"{str(self.policy)!r} holds no finished run: there is no {POLICY}.")
        learner = None if self.learner is None else learner_called(self.learner)
        policy = quorum_rl.Policy.load(file, learner=learner)
        facts = self._measured(policy)
        path = self.out
        if path is None and (self.policy / "config.json").exists():
            path = self.policy / "evaluation.json"  # of other policies, only what was asked for
        if path is not None:
            write_json(path, facts)
        said = _in_words(facts) + (f": {path}" if path else "")
        show_facts(facts, said, as_json=self.json)

    def _measured(self, policy: "quorum_rl.Policy") -> dict[str, Any]:
        if self.gymnasium is not None:
            return self._measured_in(self.gymnasium, policy)
        start_jax()
        import jax

        if self.world is None and policy.world is None:
            raise QuorumError(
                "these logs name no world, so there is nothing to play in: name a simulator with "
                "--world path/to/file.py:NAME or --gymnasium, or let judges say what it earns "
                "('quorum fit --judges')."
            )
        world = world_to_use(self.world, policy.world, "the policy")
        key = jax.random.key(self.seed)
        found = evaluation.policy_returns(policy, world, key, self.episodes)
        return _measured_facts(world.name, found, world.facts.normalised)

    def _measured_in(self, environment: str, policy: "quorum_rl.Policy") -> dict[str, Any]:
        params = self.gymnasium_param
        options = given(self, "episodes seed")
        returns = evaluation.gymnasium_returns(
            policy.action_numbers, environment, params, **options
        )
        world = evaluation.same_world(environment, params)
        normalised = None if world is None else world.facts.normalised
        return _measured_facts(environment, returns, normalised) | {"gymnasium_params": params}


def _measured_facts(world: str, returns: Any, normalised: Any) -> dict[str, Any]:
    """What was found; `normalised` puts a return on the common scale, where there is one."""
    summary, scored = evaluation.summarise(returns), normalised is not None
    mean, spread = summary.mean, summary.mean_interval
    interval = None if spread is None else [spread.low, spread.high]
    return {
        "world": world,
        "episodes": len(returns),
        "returns": [float(value) for value in returns],
        "mean": mean,
        "interval": interval,
        "score": normalised(mean) if scored else None,
        "score_interval": sorted(map(normalised, interval)) if scored and interval else None,
        "protocol": "final",
    }


def _in_words(facts: dict[str, Any]) -> str:
    said = f"{facts['episodes']} episodes of {facts['world']}: mean return {facts['mean']:.4g}"
    if facts["interval"] is not None:
        said += " (95% {:.4g} to {:.4g})".format(*facts["interval"])
    if facts["score"] is not None:
        said += f", normalised {facts['score']:.3f}"
    if facts["score_interval"] is not None:
        said += " ({:.3f} to {:.3f})".format(*facts["score_interval"])
    return said
