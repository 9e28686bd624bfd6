"""From a learner and its trained parameters to a policy that needs neither of them."""

from dataclasses import replace
from typing import Any

import numpy as np

from quorum_rl.dictionary import Dictionary
from quorum_rl.errors import QuorumError
from quorum_rl.learners import DenseLearner, Learner
from quorum_rl.nets import Layer, Network
from quorum_rl.policy import Policy


def policy_of(
    learner: Learner,
    params: Any,
    *,
    world: str | None = None,
    certificate: str | None = None,
    dictionary: Dictionary | None = None,
) -> Policy:
    """The policy that acts as `learner.act(params, ·)` does, without JAX.

    It keeps only the networks that decide, and these see observations as they are: what the
    learner standardises by is folded into their first layers. `certificate` is a digest of the
    certificate that goes with the parameters; `dictionary` is that of the demonstrations.

    Guarantee: a function of `params` and public facts, so it costs nothing beyond them.

    Raises:
        QuorumError: if the learner is not a `DenseLearner` that says how it decides, or the
            parameters are not finite.
    """
    kind = type(learner).__name__
    if not isinstance(learner, DenseLearner):
        raise QuorumError(
            f"policies of {kind} cannot be exported, because it is not made of dense networks: "
            "derive it from quorum_rl.learners.DenseLearner."
        )
    if type(learner).scores is not DenseLearner.scores:
        raise QuorumError(
            f"policies of {kind} cannot be exported, because its scores are code: define its "
            "method decision instead of scores."
        )
    decision = learner.decision()
    deciding = [
        name for name in (decision.highest, decision.among_likely, decision.squashed) if name
    ]
    for name in deciding:
        if name not in params:
            raise QuorumError(
                f"{kind} decides by {name!r}, which is none of its networks: name in its decision "
                f"one of {', '.join(params)}."
            )
    networks = {
        name: _on_observations(
            learner, tuple(Layer(np.asarray(w), np.asarray(b)) for w, b in params[name])
        )
        for name in deciding
    }
    return Policy(
        networks=networks,
        **decision._asdict(),
        learner=getattr(learner, "name", kind),
        world=world,
        certificate=certificate,
        dictionary=_bounding(learner, dictionary),
    )


def _bounding(learner: DenseLearner, dictionary: Dictionary | None) -> Dictionary | None:
    """The dictionary, with the bounds of continuous actions that the learner was made for."""
    if not learner.action_bounds:
        return dictionary
    return replace(dictionary or Dictionary(), action_bounds=learner.action_bounds)


def _on_observations(learner: DenseLearner, network: Network) -> Network:
    """The network with its learner's standardising folded into the first layer.

    ((x − c) / s) W + b = x (W / s) + (b − c (W / s)), in double precision until the end.
    """
    if not learner.observation_centre:
        return network
    first, *others = network
    scale = np.asarray(learner.observation_scale, np.float64)
    weight = first.weight.astype(np.float64) / scale[:, None]
    bias = first.bias - np.asarray(learner.observation_centre, np.float64) @ weight
    return (Layer(weight.astype(np.float32), bias.astype(np.float32)), *others)
