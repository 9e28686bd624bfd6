"""A policy as an ONNX graph."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from quorum_rl.errors import QuorumError
from quorum_rl.files import replacing
from quorum_rl.nets import Network, widths

# Operators of 2020 in a container of 2021: runtimes since onnxruntime 1.10 and its peers read them.
OPERATOR_SET: Final = 13
IR_VERSION: Final = 8


def write_onnx(
    path: str | Path,
    networks: Mapping[str, Network],
    *,
    highest: str,
    among_likely: str | None,
    threshold: float,
    facts: Mapping[str, str],
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
    raw_values = "values" if among_likely is None else "all_values"
    _append_network(onnx, "highest", networks[highest], raw_values, nodes, constants)
    if among_likely is not None:
        _append_network(onnx, "likely", networks[among_likely], "logits", nodes, constants)
        nodes += _masking(helper)
        constants += [
            onnx.numpy_helper.from_array(np.asarray(number, np.float32), name)
            for name, number in (("threshold", threshold), ("never", -np.inf))
        ]
    # Of equal values the first wins, as in NumPy.
    nodes.append(
        helper.make_node("ArgMax", ["values"], ["actions"], axis=1, keepdims=0, select_last_index=0)
    )
    inputs, *_, actions = widths(networks[highest])
    kinds = onnx.TensorProto
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info("observations", kinds.FLOAT, ["batch", inputs])],
        [
            helper.make_tensor_value_info("actions", kinds.INT64, ["batch"]),
            helper.make_tensor_value_info("values", kinds.FLOAT, ["batch", actions]),
        ],
        constants,
    )
    model = helper.make_model(
        graph,
        opset_imports=[helper.make_opsetid("", OPERATOR_SET)],
        ir_version=IR_VERSION,
        producer_name="quorum-rl",
    )
    helper.set_model_props(model, dict(facts))
    onnx.checker.check_model(model, full_check=True)
    with replacing(Path(path)) as temporary:
        temporary.write_bytes(model.SerializeToString(deterministic=True))


def _append_network(
    onnx: Any, name: str, network: Network, output: str, nodes: list[Any], constants: list[Any]
) -> None:
    """Nodes from `observations` to `output`, and the weights they use."""
    flow = "observations"
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


def _masking(helper: Any) -> list[Any]:
    """Nodes that leave of `all_values` those of likely actions, by the `logits`."""
    return [
        helper.make_node("ReduceMax", ["logits"], ["highest_logit"], axes=[1], keepdims=1),
        helper.make_node("Sub", ["logits", "highest_logit"], ["log_ratio"]),
        helper.make_node("Exp", ["log_ratio"], ["ratio"]),
        helper.make_node("Greater", ["ratio", "threshold"], ["likely"]),
        helper.make_node("Where", ["likely", "all_values", "never"], ["values"]),
    ]
