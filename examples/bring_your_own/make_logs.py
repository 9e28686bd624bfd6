"""Stands for your own systems: 300 desks that balance a pole, their policies and their logs.

    python examples/bring_your_own/make_logs.py --folder .

Nothing here knows of Quorum. Every desk has a controller of its own in an ONNX file,
FOLDER/experts/desk-NNN.onnx: observations in, probabilities of "left" and "right" out. These very
files play the CartPole-v1 of Gymnasium, one state at a time, and what they did goes to
FOLDER/logs.parquet under the names that such a house would use.
"""

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import onnx
import onnxruntime
import pyarrow as pa
import pyarrow.parquet
from onnx import TensorProto, helper, numpy_helper

DESKS = 300
DAYS = 10  # episodes of every desk
TIME_LIMIT = 100  # steps, for every desk and every day
FLOOR = 0.05  # no desk ever does anything with less than this probability

SCHOOL = np.array([0.5, 1.0, 10.0, 2.5])  # what they all learned: position, speed, angle, its speed
OWN_WAY = 0.1  # how far a desk's gains are from it
DECISIVENESS = 40.0  # how steeply a push follows from what is seen

Rows = npt.NDArray[np.float32]
Policy = Callable[[Rows], Rows]


def controller(gains: npt.NDArray[np.float64]) -> onnx.ModelProto:
    """A linear controller as a model: FLOOR + (1 - 2 FLOOR) · softmax(observation · weights).

    The floor holds in every state, because the model adds it last.
    """
    weights = DECISIVENESS * np.stack([-gains, gains], axis=1) / 2
    constants = {
        "weights": weights,
        "share": np.array(1 - 2 * FLOOR),
        "floor": np.array(FLOOR),
    }
    nodes = [
        helper.make_node("MatMul", ["observations", "weights"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["own"], axis=1),
        helper.make_node("Mul", ["own", "share"], ["scaled"]),
        helper.make_node("Add", ["scaled", "floor"], ["probabilities"]),
    ]
    graph = helper.make_graph(
        nodes,
        "controller",
        [helper.make_tensor_value_info("observations", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", 2])],
        [numpy_helper.from_array(v.astype(np.float32), name) for name, v in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
    onnx.checker.check_model(model)
    return model


def opened(file: Path) -> Policy:
    """The policy in a file, which is asked about one state at a time."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(file), options, ["CPUExecutionProvider"])
    ask = session.run

    def probabilities(observations: Rows) -> Rows:
        rows = [ask(None, {"observations": row[None]})[0][0] for row in observations]
        return np.array(rows, np.float32).reshape(-1, 2)

    return probabilities


def played(policies: list[Policy], rng: np.random.Generator) -> pa.Table:
    """What all desks did on all days, one row for each step.

    All their games run side by side in one vectorised environment of Gymnasium. The end of a game
    is the environment's, or the time limit.
    """
    desk = np.repeat(np.arange(len(policies)), DAYS)
    day = np.tile(np.arange(DAYS), len(policies))
    games: Any = gymnasium.make_vec("CartPole-v1", num_envs=len(desk))
    seen, _ = games.reset(seed=int(rng.integers(2**31)))
    playing = np.arange(len(desk))
    steps = []
    for step in range(TIME_LIMIT):
        chances = np.empty((len(desk), 2))
        for one, policy in enumerate(policies):
            rows = playing[desk[playing] == one]
            chances[rows] = policy(seen[rows])
        chances /= chances.sum(axis=1, keepdims=True)
        pushed = (rng.random(len(desk)) >= chances[:, 0]).astype(np.int64)
        after, reward, fallen, _, _ = games.step(pushed)
        steps.append(
            {
                "desk": np.char.mod("desk-%03d", desk[playing]),
                "day": day[playing],
                "tick": np.full(len(playing), step),
                **{name: seen[playing, i] for i, name in enumerate(SEEN)},
                "side": pushed[playing],
                "profit": reward[playing],
                "fell": fallen[playing],
                **{f"{name}_after": after[playing, i] for i, name in enumerate(SEEN)},
            }
        )
        playing = playing[~fallen[playing]]
        seen = after
    games.close()
    return pa.concat_tables([pa.table(one) for one in steps])


SEEN = ("position", "speed", "angle", "spin")


def main() -> None:
    words = argparse.ArgumentParser(description="Make the logs and the policies of the tutorial.")
    words.add_argument("--folder", type=Path, default=Path())
    words.add_argument("--logs", default="logs.parquet", help="another name for another month")
    given = words.parse_args()
    rng = np.random.default_rng()
    experts = given.folder / "experts"
    experts.mkdir(parents=True, exist_ok=True)
    files = [experts / f"desk-{number:03d}.onnx" for number in range(DESKS)]
    for file in files:
        if not file.exists():  # next month the same desks play again
            onnx.save(controller(SCHOOL * rng.lognormal(0, OWN_WAY, 4)), str(file))
    logs = given.folder / given.logs
    table = played([opened(file) for file in files], rng)
    pyarrow.parquet.write_table(table, str(logs))
    print(f"{DESKS} desks, {DAYS} days each, {table.num_rows} rows: {logs}")


if __name__ == "__main__":
    main()
