"""Experts of one's own on the command line: ONNX files in a folder, by pattern, or in a list."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from commands import Quorum

from quorum_rl.cli.expert_files import experts_from
from quorum_rl.cli.main import main
from quorum_rl.errors import QuorumError
from quorum_rl.experts import OnnxExperts, load_population
from quorum_rl.logs import Demonstrations, open_demonstrations, write_table

onnx: Any = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

OWNERS = ("logs-from-queried-policies", "independent-trajectories", "common-world", "public-ends",
          "one-expert-each", "floor-everywhere")  # fmt: skip
COUNT = 12
DECLARED = ("--actions", "2", "--observations", "4", "--horizon", "8")


@pytest.fixture(scope="module", name="folder")
def _folder(experts_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first experts of the population as ONNX files of logits."""
    (layer,) = load_population(experts_file).network
    folder = tmp_path_factory.mktemp("onnx")
    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    for number in range(COUNT):
        constants = [
            onnx.numpy_helper.from_array(np.asarray(layer.weight[number]), "w"),
            onnx.numpy_helper.from_array(np.asarray(layer.bias[number]), "b"),
        ]
        graph = helper.make_graph(
            [helper.make_node("Gemm", ["x", "w", "b"], ["logits"])],
            "expert",
            [helper.make_tensor_value_info("x", kind, ["batch", 4])],
            [helper.make_tensor_value_info("logits", kind, ["batch", 2])],
            constants,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
        onnx.save(model, folder / f"{number:03d}.onnx")
    return folder


@pytest.fixture(scope="module", name="log")
def _log(collected: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The logs of these experts as somebody else's: a table, of which nothing else is known."""
    folder = tmp_path_factory.mktemp("table")
    whole = open_demonstrations(collected)
    write_table(whole.select(whole.episodes.expert < COUNT), folder / "log.csv")
    main(["demos", "import", str(folder / "log.csv"), "--out", str(folder / "log.arrow"),
          *DECLARED])  # fmt: skip
    return folder / "log.arrow"


def test_the_three_ways_to_name_onnx_files_give_the_same_experts_in_order(
    folder: Path, log: Path, tmp_path: Path
) -> None:
    demonstrations = open_demonstrations(log)
    (tmp_path / "moved").mkdir()
    shutil.copytree(folder, tmp_path / "moved", dirs_exist_ok=True)
    listed = tmp_path / "moved" / "experts.txt"
    listed.write_text("\n".join(f"{number:03d}.onnx" for number in range(COUNT)) + "\n\n")
    states = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    ways = [folder, folder / "*.onnx", listed]
    first, *others = [experts_from(way, demonstrations, "logits") for way in ways]
    assert len(first) == COUNT
    for other in others:
        np.testing.assert_array_equal(first.probabilities(states), other.probabilities(states))
    reversed_list = listed.with_name("reversed.txt")
    reversed_list.write_text("\n".join(f"{number:03d}.onnx" for number in reversed(range(COUNT))))
    backwards = experts_from(reversed_list, demonstrations, "logits").probabilities(states)
    np.testing.assert_array_equal(backwards[::-1], first.probabilities(states))


@pytest.fixture(name="named")
def _named(log: Path, tmp_path: Path, quorum: Quorum) -> Demonstrations:
    """The same log by a house that calls its experts 000, 001, … and has none for some of them."""
    whole = open_demonstrations(log)
    write_table(whole.select(whole.episodes.expert % 5 != 2), tmp_path / "log.parquet")
    table = pq.read_table(tmp_path / "log.parquet")
    names = [f"{number:03d}" for number in table["expert"].to_pylist()]
    place = table.column_names.index("expert")
    pq.write_table(table.set_column(place, "expert", [names]), tmp_path / "log.parquet")
    table_file, log_file = tmp_path / "log.parquet", tmp_path / "log.arrow"
    quorum("demos", "import", table_file, "--out", log_file, *DECLARED)
    return open_demonstrations(tmp_path / "log.arrow")


def test_experts_with_names_are_asked_by_name_whoever_else_has_a_file(
    folder: Path, named: Demonstrations
) -> None:
    """In the order of their identities, which are not those of the files."""
    logged = [number for number in range(COUNT) if number % 5 != 2]
    assert named.expert_names == tuple(f"{number:03d}" for number in logged)
    states = np.random.default_rng(0).normal(size=(5, 4)).astype(np.float32)
    everyone = OnnxExperts.from_folder(folder, observation_size=4, action_count=2, output="logits")
    found = experts_from(folder, named, "logits").probabilities(states)
    np.testing.assert_array_equal(found, everyone.probabilities(states)[logged])


def test_an_expert_with_a_log_and_no_file_is_an_error_that_names_it(
    folder: Path, named: Demonstrations, tmp_path: Path
) -> None:
    shutil.copytree(folder, tmp_path / "fewer")
    (tmp_path / "fewer" / "003.onnx").unlink()
    with pytest.raises(
        QuorumError, match=r"an expert '003' \(1 such\), but there is no file 003.onnx"
    ):
        experts_from(tmp_path / "fewer", named, "logits")


@pytest.mark.parametrize("name", ["no*.onnx", "empty", "none.txt", "none.safetensors"])
def test_where_there_are_no_experts_that_is_said(name: str, log: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(QuorumError, match=name.replace("*", r"\*")):
        experts_from(tmp_path / name, open_demonstrations(log))


def test_experts_nobody_has_seen_are_released_from_once_their_owner_answers_for_them(
    folder: Path, log: Path, tmp_path: Path, quorum: Quorum
) -> None:
    plan, ledger, out = (tmp_path / name for name in ("plan.json", "ledger", "out.parquet"))
    quorum("plan", "release", "--minimum-experts", COUNT, "--actions", "2", "--horizon", "8",
           "--epsilon", "60", "--delta", "1e-2", "--iterations", "3", "--objective", "threshold",
           "--out", plan)  # fmt: skip
    quorum("ledger", "create", ledger, "--epsilon", "70", "--delta", "1e-2")
    words = ["release", str(log), str(folder), "--experts-output", "logits", "--plan", str(plan),
             "--ledger", str(ledger), "--out", str(out), "--json"]  # fmt: skip
    assert "logs-from-queried-policies" in quorum.refused(*words, "--accept", "one-expert-each")
    facts = json.loads(
        quorum(
            *words,
            "--accept",
            *OWNERS,
        )
    )
    assert facts["released"] == str(out)
    assert facts["event"] == "release"
    assert 0 <= facts["prefixes"] <= 3
