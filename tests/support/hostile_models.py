"""ONNX policies over one number and two actions, some of which mean harm from a state on."""

from pathlib import Path
from typing import Any, Final

import numpy as np

SOUND: Final = (0.9, 0.1)
ALWAYS: Final = -1.0
KINDS: Final = ("sound", "random", "hangs", "crashes", "takes memory", "fails")


def write_model(path: Path, kind: str, start: float = ALWAYS) -> Path:
    """A model that answers SOUND in states below `start`, and does its harm in the others."""
    import onnx

    helper, kinds = onnx.helper, onnx.TensorProto
    constants: dict[str, Any] = {
        "start": np.float32(start),
        "none": np.float32(0),
        "weights": np.zeros((1, 2), np.float32),
        "sound": np.array([SOUND], np.float32),
    }

    def node(name: str, inputs: str, output: str, **attributes: Any) -> Any:
        return helper.make_node(name, inputs.split(), output.split(), **attributes)

    nodes = [
        node("ReduceMax", "state", "most", keepdims=0),
        node("GreaterOrEqual", "most start", "harmful"),
        node("MatMul", "state weights", "zeros"),
    ]
    if kind == "random":
        nodes += [
            node("RandomNormalLike", "zeros", "noise", scale=0.01),
            node("Where", "harmful noise none", "harm"),
        ]
    elif kind == "hangs":
        truth, whole = kinds.BOOL, kinds.INT64
        body = helper.make_graph(
            [node("Identity", "go", "on"), node("Identity", "carried", "kept")],
            "turn",
            [
                helper.make_tensor_value_info("turn", whole, []),
                helper.make_tensor_value_info("go", truth, []),
                helper.make_tensor_value_info("carried", kinds.FLOAT, []),
            ],
            [
                helper.make_tensor_value_info("on", truth, []),
                helper.make_tensor_value_info("kept", kinds.FLOAT, []),
            ],
        )
        constants["turns"] = np.int64(2**62)
        nodes.append(node("Loop", "turns harmful none", "harm", body=body))
    elif kind in ("crashes", "fails"):  # the least of all whole numbers over −1, or any over 0
        constants["least"] = np.int32(-(2**31))
        constants["divisor"] = np.int32(-1 if kind == "crashes" else 0)
        constants["one"] = np.int32(1)
        nodes += [
            node("Where", "harmful divisor one", "by"),
            node("Div", "least by", "quotient"),
            node("Cast", "quotient", "number", to=kinds.FLOAT),
            node("Mul", "number none", "harm"),
        ]
    elif kind == "takes memory":
        constants["much"], constants["little"] = np.array([2**36]), np.array([1])
        nodes += [
            node("Where", "harmful much little", "shape"),
            node("ConstantOfShape", "shape", "block"),
            node("ReduceMax", "block", "harm", keepdims=0),
        ]
    else:
        nodes.append(node("Identity", "none", "harm"))
    nodes += [node("Add", "zeros sound", "whole"), node("Add", "whole harm", "probabilities")]
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info("state", kinds.FLOAT, ["batch", 1])],
        [helper.make_tensor_value_info("probabilities", kinds.FLOAT, ["batch", 2])],
        [
            onnx.numpy_helper.from_array(np.asarray(array), name)
            for name, array in constants.items()
        ],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)
    return path
