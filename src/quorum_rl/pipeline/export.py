"""From a learner and its trained parameters to a policy, which needs neither of them if it can."""

from dataclasses import replace
from typing import Any, TypeGuard

import numpy as np

from quorum_rl.dictionary import Dictionary
from quorum_rl.errors import QuorumError
from quorum_rl.learners import DenseLearner, Learner
from quorum_rl.nets import Layer, Network
from quorum_rl.policy import Policy, acting_by_code, learner_name


def policy_of(
    learner: Learner,
    params: Any,
    *,
    world: str | None = None,
    certificate: str | None = None,
    dictionary: Dictionary | None = None,
    sizes: tuple[int, int] | None = None,
) -> Policy:
    """The policy that acts as `learner.act(params, ·)` does.

    Of dense networks that say how they decide it acts without JAX. It keeps only the networks that
    decide, and these see observations as they are: what the learner standardises by is folded into
    their first layers. Of any other learner it acts by code, for observations and actions of these
    `sizes`. `certificate` is a digest of the certificate that goes with the parameters;
    `dictionary` is that of the demonstrations.

    Guarantee: a function of `params` and public facts, so it costs nothing beyond them.

    Raises:
        QuorumError: if the learner's policy could not be kept, or the parameters are not finite.
    """
    kind = type(learner).__name__
    named: dict[str, Any] = {
        "learner": learner_name(learner),
        "world": world,
        "certificate": certificate,
    }
    if acts_by_data(learner):
        return Policy(
            networks=_deciding_networks(learner, params),
            **learner.decision()._asdict(),
            **named,
            dictionary=_bounding(learner, dictionary),
        )
    if sizes is None:
        raise QuorumError(
            f"policies of {kind} act by code: give sizes=(observation_size, action_count)."
        )
    bounds = () if dictionary is None else dictionary.action_bounds
    code = acting_by_code(learner, params, sizes, continuous=bool(bounds))
    return Policy(by_code=code, dictionary=dictionary, **named)


def acts_by_data(learner: Learner) -> TypeGuard[DenseLearner]:
    """Whether the learner's policies are data: it has dense networks, and says how they decide."""
    return isinstance(learner, DenseLearner) and type(learner).scores is DenseLearner.scores


def _deciding_networks(learner: DenseLearner, params: Any) -> dict[str, Network]:
    """The networks by which the learner decides, on observations as they are."""
    decision = learner.decision()
    deciding = [
        name for name in (decision.highest, decision.among_likely, decision.squashed) if name
    ]
    for name in deciding:
        if name not in params:
            raise QuorumError(
                f"{type(learner).__name__} decides by {name!r}, which is none of its networks: "
                f"name in its decision one of {', '.join(params)}."
            )
    return {
        name: _on_observations(
            learner, tuple(Layer(np.asarray(w), np.asarray(b)) for w, b in params[name])
        )
        for name in deciding
    }


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
