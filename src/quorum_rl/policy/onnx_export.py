"""A policy as an ONNX graph."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from quorum_rl.dictionary import Dictionary
from quorum_rl.errors import QuorumError
from quorum_rl.files import replacing
from quorum_rl.nets import Network, widths

# Operators of 2020 in a container of 2021: runtimes since onnxruntime 1.10 and its peers read them.
OPERATOR_SET: Final = 13
IR_VERSION: Final = 8


class _Graph(NamedTuple):
    """A model under way: the package that makes it, its nodes, and the weights that they use."""

    onnx: Any
    nodes: list[Any]
    constants: list[Any]


def write_onnx(
    path: str | Path,
    networks: Mapping[str, Network],
    *,
    decision: Mapping[str, Any],
    facts: Mapping[str, str],
    dictionary: Dictionary,
) -> None:
    """Write the ONNX model of a policy; it appears under its name only when it is complete.

    Raises:
        QuorumError: without the package onnx, or if the file cannot be written.
    """
    try:
        import onnx
    except ImportError as error:
        raise QuorumError(
            "the export needs the package onnx: install it with pip install 'quorum-rl[onnx]'."
        ) from error
    helper = onnx.helper
    nodes: list[Any] = []
    constants: list[Any] = []
    seen = "observations"
    if dictionary.constants is not None:
        nodes += _preparing(helper)
        parts = zip(("fill", "least", "most"), dictionary.constants, strict=True)
        constants += _floats(onnx, parts)
        seen = "prepared"
    answer = _choose_by_tanh if "squashed" in decision else _choose_highest
    outputs = answer(_Graph(onnx, nodes, constants), networks, decision, dictionary, seen)
    kinds, inputs = onnx.TensorProto, widths(next(iter(networks.values())))[0]
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info("observations", kinds.FLOAT, ["batch", inputs])],
        outputs,
        constants,
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPERATOR_SET)],
        ir_version=IR_VERSION,
        producer_name="quorum-rl",
    )
    named = {
        name: json.dumps(said, ensure_ascii=False)
        for name, said in asdict(dictionary).items()
        if said
    }
    helper.set_model_props(model, {**facts, **named})
    onnx.checker.check_model(model, full_check=True)
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(model.SerializeToString(deterministic=True))


def _choose_highest(
    graph: _Graph,
    networks: Mapping[str, Network],
    decision: Mapping[str, Any],
    dictionary: Dictionary,
    seen: str,
) -> list[Any]:
    """Finite actions: the nodes after `seen`, their weights, and what they answer."""
    onnx, nodes, constants = graph
    helper, kinds = onnx.helper, onnx.TensorProto
    highest, among_likely = networks[decision["highest"]], decision["among_likely"]
    raw_values = "values" if among_likely is None else "all_values"
    _append_network(graph, "highest", highest, seen, raw_values)
    if among_likely is not None:
        _append_network(graph, "likely", networks[among_likely], seen, "logits")
        nodes += _masking(helper)
        constants += _floats(onnx, (("threshold", decision["threshold"]), ("never", -np.inf)))
    # Of equal values the first wins, as in NumPy.
    nodes.append(
        helper.make_node("ArgMax", ["values"], ["actions"], axis=1, keepdims=0, select_last_index=0)
    )
    outputs = [
        helper.make_tensor_value_info("actions", kinds.INT64, ["batch"]),
        helper.make_tensor_value_info("values", kinds.FLOAT, ["batch", widths(highest)[-1]]),
    ]
    if dictionary.action_labels:
        texts = np.array(dictionary.action_labels, object)
        constants.append(onnx.numpy_helper.from_array(texts, "action_labels"))
        nodes.append(helper.make_node("Gather", ["action_labels", "actions"], ["labels"]))
        outputs.append(helper.make_tensor_value_info("labels", kinds.STRING, ["batch"]))
    return outputs


def _choose_by_tanh(
    graph: _Graph,
    networks: Mapping[str, Network],
    decision: Mapping[str, Any],
    dictionary: Dictionary,
    seen: str,
) -> list[Any]:
    """Continuous actions, likewise."""
    onnx, nodes, constants = graph
    helper = onnx.helper
    network = networks[decision["squashed"]]
    _append_network(graph, "squashed", network, seen, "outputs")
    low, high = np.asarray(dictionary.action_bounds, np.float32).T
    half = np.float32(2)
    numbers = {
        "centre": (low + high) / half,
        "reach": (high - low) / half,
        "low": low,
        "high": high,
    }
    constants += _floats(onnx, numbers.items())
    nodes += [
        helper.make_node("Tanh", ["outputs"], ["tanh"]),
        helper.make_node("Mul", ["reach", "tanh"], ["off_centre"]),
        helper.make_node("Add", ["centre", "off_centre"], ["placed"]),
        helper.make_node("Max", ["placed", "low"], ["at_least_low"]),
        helper.make_node("Min", ["at_least_low", "high"], ["actions"]),
    ]
    wide = ["batch", widths(network)[-1]]
    return [helper.make_tensor_value_info("actions", onnx.TensorProto.FLOAT, wide)]


def _append_network(graph: _Graph, name: str, network: Network, flow: str, output: str) -> None:
    """Nodes from `flow` to `output`, and the weights they use."""
    onnx, nodes, constants = graph
    for number, layer in enumerate(network):
        last = number == len(network) - 1
        weight, bias, made = (f"{name}.{number}.{part}" for part in ("weight", "bias", "linear"))
        constants += [
            onnx.numpy_helper.from_array(layer.weight, weight),
            onnx.numpy_helper.from_array(layer.bias, bias),
        ]
        target = output if last else made
        nodes.append(onnx.helper.make_node("Gemm", [flow, weight, bias], [target]))
        flow = target
        if not last:
            flow = f"{name}.{number}.relu"
            nodes.append(onnx.helper.make_node("Relu", [target], [flow]))


def _floats(onnx: Any, named: Iterable[tuple[str, Any]]) -> list[Any]:
    return [
        onnx.numpy_helper.from_array(np.asarray(numbers, np.float32), name)
        for name, numbers in named
    ]


def _preparing(helper: Any) -> list[Any]:
    """Nodes that fill in what is missing of `observations`, and cut off what is out of range."""
    return [
        helper.make_node("IsNaN", ["observations"], ["missing"]),
        helper.make_node("Where", ["missing", "fill", "observations"], ["filled"]),
        helper.make_node("Max", ["filled", "least"], ["raised"]),
        helper.make_node("Min", ["raised", "most"], ["prepared"]),
    ]


def _masking(helper: Any) -> list[Any]:
    """Nodes that leave of `all_values` those of likely actions, by the `logits`."""
    return [
        helper.make_node("ReduceMax", ["logits"], ["highest_logit"], axes=[1], keepdims=1),
        helper.make_node("Sub", ["logits", "highest_logit"], ["log_ratio"]),
        helper.make_node("Exp", ["log_ratio"], ["ratio"]),
        helper.make_node("Greater", ["ratio", "threshold"], ["likely"]),
        helper.make_node("Where", ["likely", "all_values", "never"], ["values"]),
    ]
