"""A trained policy: what it is, how it acts, and how it is kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from quorum_rl.dictionary import Bounds, Dictionary, dictionary_of, dictionary_to_json, names_of
from quorum_rl.errors import QuorumError
from quorum_rl.nets import Layer, Network, apply, widths
from quorum_rl.policy.by_code import ByCode, code_in_file
from quorum_rl.policy.file import Floats, read_policy, write_parameters, write_policy
from quorum_rl.policy.onnx_export import write_onnx


@dataclass(frozen=True, eq=False, kw_only=True)
class Policy:
    """One trained policy: dense ReLU networks and how they decide. It acts in NumPy, without JAX.
    Or `by_code`: parameters of other networks, which act by their learner's code.

    Of finite actions it takes the one for which the network `highest` has the highest output; of
    several, the first. With `among_likely` only actions count that the softmax G of that network's
    outputs makes likely: G(b|s) / max G(·|s) > `threshold`. A continuous action is what the network
    `squashed` says, tanh of which lies between -1 and 1: these stand for the dictionary's bounds.

    With a `dictionary` it takes observations by the names of their columns too, fills in what is
    missing and cuts off what is out of range as its training did, and answers with action labels.

    Guarantee: a policy is computed from trained parameters and public facts alone, so it tells no
    more about an expert than the certificate of its training says.

    Raises:
        QuorumError: if the networks do not fit each other, or a number is not finite.
    """

    networks: Mapping[str, Network] = field(  # those that decide, by what they answer
        default_factory=dict, repr=False
    )
    by_code: ByCode | None = None
    highest: str | None = None
    among_likely: str | None = None
    threshold: float = 0.0
    squashed: str | None = None
    learner: str  # the name of what trained it
    world: str | None = None  # where it is at home, if that has a name
    certificate: str | None = None  # a digest of the certificate that goes with it
    dictionary: Dictionary | None = None  # what observations and actions are called

    def __post_init__(self) -> None:
        networks = {name: _checked_network(name, layers) for name, layers in self.networks.items()}
        object.__setattr__(self, "networks", MappingProxyType(networks))
        _check_facts(self)
        if self.by_code is None:
            self._check_networks()
        elif networks:
            raise QuorumError("the policy acts by networks or by code: give one of them.")
        if self.dictionary is not None:
            self.dictionary.check_sizes(self.observation_size, self.action_count)
        if bool(self.action_bounds) != self.continuous:
            raise QuorumError(
                "the policy's actions are continuous where its dictionary has action_bounds, and "
                "only there: give both or neither."
            )

    def _check_networks(self) -> None:
        networks = self.networks
        if (self.highest is None) == (self.squashed is None):
            raise QuorumError(
                "the policy decides by the highest output or by squashed ones: name one network."
            )
        deciding = [
            name for name in (self.highest, self.among_likely, self.squashed) if name is not None
        ]
        if set(deciding) != networks.keys():
            raise QuorumError(
                f"the policy decides by {_listed(deciding)} but has {_listed(networks)}: give the "
                "networks that decide, and only those."
            )
        ends = {(sizes[0], sizes[-1]) for sizes in map(widths, networks.values())}
        if len(ends) > 1:
            raise QuorumError(
                f"the networks {_listed(networks)} have different numbers of inputs or of outputs: "
                "give networks for the same observations and actions."
            )
        # As a float32, because that is what it is compared as.
        if self.among_likely is not None and not (
            0 < self.threshold < 1 and 0 < np.float32(self.threshold) < 1
        ):
            raise QuorumError(
                f"the threshold is {self.threshold}: give a number above 0 and below 1."
            )

    @property
    def observation_size(self) -> int:
        """How many numbers one observation has."""
        return self._widths[0] if self.by_code is None else self.by_code.observation_size

    @property
    def action_count(self) -> int:
        """How many actions there are; of continuous ones, how many numbers one has."""
        return self._widths[-1] if self.by_code is None else self.by_code.action_count

    @property
    def _widths(self) -> tuple[int, ...]:
        return widths(self.networks[self.highest or self.squashed or ""])

    @property
    def continuous(self) -> bool:
        return self.squashed is not None if self.by_code is None else bool(self.action_bounds)

    @property
    def action_bounds(self) -> Bounds:
        return () if self.dictionary is None else self.dictionary.action_bounds

    def act(self, observations: Any) -> npt.NDArray[Any]:
        """The actions for one observation or many: their labels, or numbers where they have none.
        Continuous ones are arrays of float32 within their bounds.

        Observations are an array or, by the names of their columns, a mapping or a data frame. One
        observation gets a NumPy scalar, as NumPy's own functions return one.

        Shapes: `(…, observation_size) -> (…)`; columns `(…) -> (…)`; of continuous actions with an
            axis of `action_count` more.

        Raises:
            QuorumError: if the observations have another width or lack a column, if a value is not
                finite, or missing without a declared fill, or so large that the outputs are not.
        """
        numbers = self.action_numbers(observations)
        named = None if self.continuous else self.dictionary
        labels = () if named is None else named.action_labels
        chosen: npt.NDArray[Any] = np.array(labels)[numbers] if labels else numbers
        return chosen

    def action_numbers(self, observations: Any) -> npt.NDArray[Any]:
        """The actions as a world takes them, whatever they are called: numbers from 0, or the
        numbers of continuous ones.

        Shapes: `(…, observation_size) -> (…)`, or `(…, action_count)`.

        Raises:
            QuorumError: as for `act`.
        """
        if self.by_code is not None:
            return self.by_code.act(self._seen(observations), self.action_bounds)
        if self.continuous:
            return self._bounded(observations)
        chosen: npt.NDArray[np.int64] = self.values(observations).argmax(axis=-1).astype(np.int64)
        return chosen

    def values(self, observations: Any) -> Floats:
        """What decides between finite actions: the highest number is that of the action it takes.

        These are action values, or log-likelihoods up to a constant where the policy imitates; −∞
        stands for actions that are not likely enough.

        Shapes: `(…, observation_size) -> (…, action_count)`.

        Raises:
            QuorumError: as for `act`, and if actions are continuous, or chosen by code.
        """
        if self.by_code is not None:
            raise QuorumError("the policy acts by code, which gives no values: ask act.")
        if self.highest is None:
            raise QuorumError("the policy's actions are continuous and have no numbers: ask act.")
        outputs = self._outputs(observations)
        with np.errstate(under="ignore"):
            values: Floats = outputs[self.highest]
            if self.among_likely is None:
                return values
            logits = outputs[self.among_likely]
            ratio = np.exp(logits - logits.max(axis=-1, keepdims=True))
            return np.where(ratio > np.float32(self.threshold), values, np.float32(-np.inf))

    def _bounded(self, observations: Any) -> Floats:
        """Continuous actions."""
        assert self.squashed is not None
        with np.errstate(under="ignore"):
            squashed = np.tanh(self._outputs(observations)[self.squashed])
        low, high = np.asarray(self.action_bounds, np.float32).T
        half = np.float32(2)
        chosen: Floats = np.clip((low + high) / half + (high - low) / half * squashed, low, high)
        return chosen

    def _seen(self, observations: Any) -> Floats:
        return _checked_observations(observations, self.observation_size, self.dictionary)

    def _outputs(self, observations: Any) -> dict[str, Floats]:
        """What the networks say of observations that were checked and prepared."""
        seen = self._seen(observations)
        with np.errstate(over="ignore", invalid="ignore", under="ignore"):
            outputs = {name: apply(network, seen, _relu) for name, network in self.networks.items()}
        if not all(np.isfinite(output).all() for output in outputs.values()):
            raise QuorumError(
                "an observation is so large that the policy's values are not finite: give "
                "observations on the scale it was trained with."
            )
        return outputs

    def save(self, path: str | Path) -> None:
        """Write the policy as a safetensors file; the same policy gives the same bytes.

        Raises:
            QuorumError: if the file cannot be written.
        """
        facts: dict[str, Any] = {
            "learner": self.learner,
            "world": self.world,
            "certificate": self.certificate,
        }
        if self.dictionary is not None:
            facts["dictionary"] = dictionary_to_json(self.dictionary)
        if (own := self.by_code) is not None:
            write_parameters(path, own.parameters, {"code": own.said, **facts})
            return
        said = {name: list(widths(layers)) for name, layers in self.networks.items()}
        write_policy(path, self.networks, {"networks": said, "decision": self._decision, **facts})

    @classmethod
    def load(cls, path: str | Path, *, learner: Any = None) -> "Policy":
        """The policy in a file that `save` wrote.

        One that acts by code needs the `learner` that it was fitted with, an instance; without, it
        says what it is, and can be saved again.

        Raises:
            QuorumError: if the file is not there, holds no policy, is damaged, or was written by a
                newer version of Quorum; or the learner is another than it acts by.
        """
        networks, parameters, description = read_policy(path)
        facts: dict[str, Any] = {
            name: description.get(name) for name in ("learner", "world", "certificate")
        }
        try:
            facts["dictionary"] = dictionary_of(description.get("dictionary"))
            if networks:
                if learner is not None:
                    raise QuorumError("it acts without its learner: leave the learner out.")
                return cls(networks=networks, **description["decision"], **facts)
            own = code_in_file(parameters, description["code"])
            if learner is not None:
                own = own.with_learner(learner, facts["learner"])
            return cls(by_code=own, **facts)
        except QuorumError as error:
            raise QuorumError(f"policy {str(path)!r}: {error}") from error
        except (KeyError, ValueError, TypeError, ArithmeticError) as error:
            raise QuorumError(
                f"policy {str(path)!r} is damaged in what it calls observations and actions: get "
                "it anew."
            ) from error

    @property
    def _decision(self) -> dict[str, Any]:
        """How it decides, as its file says it."""
        if self.continuous:
            return {"squashed": self.squashed}
        return {
            "highest": self.highest,
            "among_likely": self.among_likely,
            "threshold": float(self.threshold),
        }

    def to_onnx(self, path: str | Path) -> None:
        """Write the policy as an ONNX model, for any runtime.

        Shapes: input `observations` float32 `(batch, observation_size)`; outputs `actions` int64
            `(batch,)`, `values` float32 `(batch, action_count)` and, of actions with labels,
            `labels` string `(batch,)`; of continuous actions `actions` float32
            `(batch, action_count)` alone; the batch is dynamic.

        Raises:
            QuorumError: without the package onnx, if the file cannot be written, or for a policy
                that acts by code.
        """
        if self.by_code is not None:
            raise QuorumError(
                f"the policy acts by the code of {self.learner}, which ONNX cannot hold: keep its "
                "policy.safetensors, or learn by a DenseLearner that says its decision."
            )
        facts = {"learner": self.learner, "world": self.world, "certificate": self.certificate}
        write_onnx(
            path,
            self.networks,
            decision=self._decision,
            facts={name: fact for name, fact in facts.items() if fact is not None},
            dictionary=self.dictionary or Dictionary(),
        )


def _check_facts(policy: Policy) -> None:
    for name in ("highest", "among_likely", "squashed", "learner", "world", "certificate"):
        fact: Any = getattr(policy, name)
        optional = name != "learner"
        if not (isinstance(fact, str) and fact) and not (optional and fact is None):
            raise QuorumError(f"the policy's {name} is {fact!r}: give a text.")
    if type(policy.threshold) not in (int, float):
        raise QuorumError(f"the policy's threshold is {policy.threshold!r}: give a number.")


def _checked_observations(observations: Any, width: int, named: Dictionary | None) -> Floats:
    """The observations as float32, prepared as the dictionary says.

    Raises:
        QuorumError: if they are not numbers, `width` of them in a row, or after that not finite.
    """
    named = named or Dictionary()
    given = _array_of(observations, width, named)
    with np.errstate(over="ignore"):
        seen = named.prepared(given.astype(np.float32))
    if not np.isfinite(seen).all():
        if not named.columns:
            raise QuorumError("an observation is not finite in float32: give finite numbers.")
        number = int(np.argwhere(~np.isfinite(seen))[0, -1])
        name = named.name_at(number)
        raise QuorumError(
            f"the {name!r} of an observation is missing or not finite in float32: give a number; "
            "the logs declared no value to stand for it."
            if np.isnan(seen[..., number]).any()
            else f"the {name!r} of an observation is not finite in float32: give finite numbers."
        )
    return seen


def _array_of(observations: Any, width: int, named: Dictionary) -> npt.NDArray[Any]:
    """Observations as an array of rows, whatever they came in."""
    if names_of(observations) is not None:
        return named.vectors_of(observations)
    try:
        given = np.asarray(observations)
    except ValueError as error:  # rows of different lengths
        raise QuorumError(f"the observations are no array: give rows of {width}.") from error
    if given.dtype.kind not in "fiub":
        raise QuorumError(f"the observations are of type {given.dtype}: give numbers.")
    shape = named.columns[0].shape if len(named.columns) == 1 else ()
    if len(shape) > 1 and given.shape[-len(shape) :] == shape:
        given = given.reshape(*given.shape[: -len(shape)], width)
    if given.ndim == 0 or given.shape[-1] != width:
        raise QuorumError(
            f"the observations have shape {given.shape}: give ({width},) for one, or (n, {width})."
        )
    return given


def _listed(names: Any) -> str:
    return ", ".join(map(repr, names)) or "none"


def _relu(values: Any) -> Any:
    """The activation of every hidden layer, in float32."""
    return np.maximum(values, np.float32(0))


def _checked_network(name: str, layers: Sequence[Any]) -> Network:
    """The layers as float32 arrays of their own that nobody can change.

    Raises:
        QuorumError: if they do not follow each other, or a number is not finite.
    """
    if not layers:
        raise QuorumError(f"network {name!r} has no layers: give at least one.")
    network = tuple(Layer(_fixed(weight), _fixed(bias)) for weight, bias in layers)
    width = network[0].weight.shape[:1]
    for number, (weight, bias) in enumerate(network):
        if weight.ndim != 2 or weight.size == 0 or (*width, *bias.shape) != weight.shape:
            raise QuorumError(
                f"layer {number} of network {name!r} has a weight {weight.shape} and a bias "
                f"{bias.shape}: give (inputs, outputs) and (outputs,), with as many inputs as the "
                "layer before has outputs."
            )
        if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
            raise QuorumError(
                f"layer {number} of network {name!r} has a number that is not finite, so the "
                "training diverged: train again with a smaller learning rate."
            )
        width = bias.shape
    return network


def _fixed(numbers: Any) -> Floats:
    with np.errstate(over="ignore"):  # what float32 cannot hold is refused as not finite
        made = np.array(numbers, np.float32, order="C")
    made.flags.writeable = False
    return made
