"""Experts in ONNX files, against the same networks computed in NumPy."""

import shutil
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import softmax

from quorum_rl.errors import QuorumError
from quorum_rl.experts import LoggedExperts, OnnxExperts
from quorum_rl.experts.checks import check_batch_independence

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

OBSERVATIONS = np.random.default_rng(0).normal(size=(9, 4)).astype(np.float32)
Layers = list[tuple[npt.NDArray[Any], npt.NDArray[Any]]]


def layers_of(seed: int, sizes: Sequence[int], dtype: type = np.float32) -> Layers:
    draw = np.random.default_rng(seed)
    return [
        (draw.normal(size=(a, b)).astype(dtype), draw.normal(size=b).astype(dtype))
        for a, b in pairwise(sizes)
    ]


def logits_in_numpy(layers: Layers, observations: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    values = observations.astype(np.float64)
    for number, (weights, bias) in enumerate(layers):
        values = values @ weights.astype(np.float64) + bias
        if number < len(layers) - 1:
            values = np.tanh(values)
    return values


def save(path: Path, layers: Layers, *, batch: int | str = "batch", double: bool = False) -> None:
    """Write an MLP with two outputs: `logits` and, first, `probabilities`."""
    helper, kind = onnx.helper, onnx.TensorProto.DOUBLE if double else onnx.TensorProto.FLOAT
    nodes, values = [], "observation"
    for number in range(len(layers)):
        last = number == len(layers) - 1
        made = "logits" if last else f"sum{number}"
        nodes.append(helper.make_node("Gemm", [values, f"w{number}", f"b{number}"], [made]))
        if not last:
            nodes.append(helper.make_node("Tanh", [made], [f"hidden{number}"]))
            values = f"hidden{number}"
    nodes.append(helper.make_node("Softmax", ["logits"], ["probabilities"], axis=1))
    width = layers[-1][1].shape[0]
    graph = helper.make_graph(
        nodes,
        "policy",
        [helper.make_tensor_value_info("observation", kind, [batch, layers[0][0].shape[0]])],
        [
            helper.make_tensor_value_info(name, kind, [batch, width])
            for name in ("probabilities", "logits")
        ],
        [
            onnx.numpy_helper.from_array(array, f"{name}{number}")
            for number, pair in enumerate(layers)
            for name, array in zip("wb", pair, strict=True)
        ],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), path)


def experts_in(folder: Path, **changed: Any) -> OnnxExperts:
    facts: dict[str, Any] = {
        "observation_size": 4,
        "action_count": 3,
        "output_name": "probabilities",
    }
    return OnnxExperts.from_folder(folder, **(facts | changed))


@pytest.fixture(scope="module")
def networks() -> list[Layers]:
    return [layers_of(seed, (4, 16, 8, 3)) for seed in range(4)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, networks: list[Layers]) -> Path:
    made = tmp_path_factory.mktemp("experts")
    for number in (2, 0, 3, 1):  # written out of order: names decide
        save(made / f"expert{number}.onnx", networks[number])
    (made / "README.txt").write_text("not an expert")
    return made


@pytest.fixture(scope="module")
def in_numpy(networks: list[Layers]) -> npt.NDArray[np.float64]:
    return np.stack([softmax(logits_in_numpy(layers, OBSERVATIONS), axis=1) for layers in networks])


def test_a_digest_is_of_the_files(folder: Path, tmp_path: Path) -> None:
    digests = [LoggedExperts(experts_in(folder)).digest() for _ in range(2)]
    shutil.copytree(folder, tmp_path / "copy")
    shutil.copy(folder / "expert0.onnx", tmp_path / "copy" / "expert3.onnx")
    assert digests[0] == digests[1] != LoggedExperts(experts_in(tmp_path / "copy")).digest()


@pytest.mark.parametrize("row_by_row", [True, False])
@pytest.mark.parametrize("output", ["probabilities", "logits"])
def test_onnx_experts_agree_with_numpy_in_the_order_of_their_names(
    folder: Path, in_numpy: npt.NDArray[np.float64], output: str, row_by_row: bool
) -> None:
    experts = experts_in(folder, output=output, output_name=output, row_by_row=row_by_row)
    assert len(experts) == 4
    np.testing.assert_allclose(experts.probabilities(OBSERVATIONS), in_numpy, rtol=0, atol=1e-6)
    found = experts.probabilities_of(slice(1, 3), OBSERVATIONS)
    np.testing.assert_allclose(found, in_numpy[1:3], rtol=0, atol=1e-6)


def test_row_by_row_answers_do_not_depend_on_the_batch(folder: Path) -> None:
    check_batch_independence(experts_in(folder), OBSERVATIONS)


def test_a_model_with_a_batch_of_one_is_asked_row_by_row_even_when_batches_are_allowed(
    tmp_path: Path, networks: list[Layers], in_numpy: npt.NDArray[np.float64]
) -> None:
    save(tmp_path / "one.onnx", networks[0], batch=1)
    experts = experts_in(tmp_path, row_by_row=False)
    found = experts.probabilities(OBSERVATIONS)
    np.testing.assert_allclose(found, in_numpy[:1], rtol=0, atol=1e-6)


def test_a_model_in_double_precision_is_given_doubles(tmp_path: Path) -> None:
    layers = layers_of(7, (4, 8, 3), np.float64)
    save(tmp_path / "double.onnx", layers, double=True)
    (found,) = experts_in(tmp_path).probabilities(OBSERVATIONS)
    expected = softmax(logits_in_numpy(layers, OBSERVATIONS), axis=1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-13)


@pytest.mark.parametrize("open_at_once", [4, 2, 0])
def test_the_number_of_models_kept_open_is_bounded_and_the_answers_are_the_same(
    folder: Path, in_numpy: npt.NDArray[np.float64], tmp_path: Path, open_at_once: int
) -> None:
    """Files that are gone are missed by those who would have to open them again."""
    gone = Path(shutil.copytree(folder, tmp_path / "gone"))
    experts = experts_in(gone, open_at_once=open_at_once)
    np.testing.assert_allclose(experts.probabilities(OBSERVATIONS), in_numpy, rtol=0, atol=1e-6)
    shutil.rmtree(gone)
    actions = np.zeros(len(OBSERVATIONS), np.int64)
    found = experts.taken_probabilities(slice(None), OBSERVATIONS, actions)
    np.testing.assert_allclose(found[:open_at_once], in_numpy[:open_at_once, :, 0], atol=1e-6)
    assert np.isnan(found[open_at_once:]).all()


def test_onnx_experts_can_be_smoothed_before_they_act(folder: Path) -> None:
    found = experts_in(folder).smoothed(0.05).probabilities(OBSERVATIONS)
    assert found.min() == 0.05


def test_a_missing_or_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(QuorumError, match=r"no folder .*nowhere"):
        experts_in(tmp_path / "nowhere")
    with pytest.raises(QuorumError, match=r"has no \.onnx files"):
        experts_in(tmp_path)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"observation_size": 5}, r"bad\.onnx: the input has shape \('batch', 4\).*\(batch, 5\)"),
        ({"action_count": 2}, r"bad\.onnx: the output has shape \('batch', 3\).*\(batch, 2\)"),
        ({"output_name": None}, r"bad\.onnx: choose with output_name .* probabilities, logits"),
        ({"output_name": "value"}, r"bad\.onnx: choose with output_name .* not 'value'"),
        ({"output": "actions"}, "output is 'actions'"),
    ],
)
def test_a_model_of_another_form_than_declared_is_refused_by_name(
    tmp_path: Path, networks: list[Layers], changed: dict[str, Any], message: str
) -> None:
    save(tmp_path / "bad.onnx", networks[0])
    with pytest.raises(QuorumError, match=message):
        experts_in(tmp_path, **changed)


def test_a_fixed_batch_of_several_rows_is_refused_by_name(
    tmp_path: Path, networks: list[Layers]
) -> None:
    save(tmp_path / "eight.onnx", networks[0], batch=8)
    with pytest.raises(QuorumError, match=r"eight\.onnx: the batch is fixed at 8"):
        experts_in(tmp_path)


def test_a_file_that_is_no_model_is_refused_by_name_when_the_folder_is_opened(
    tmp_path: Path, networks: list[Layers]
) -> None:
    save(tmp_path / "a.onnx", networks[0])
    (tmp_path / "b.onnx").write_bytes(b"not a model")
    with pytest.raises(QuorumError, match=r"b\.onnx: this is not a model"):
        experts_in(tmp_path)


@pytest.mark.parametrize("output", ["probabilities", "logits"])
def test_broken_weights_are_reported_with_index_and_file(
    tmp_path: Path, networks: list[Layers], output: str
) -> None:
    broken = [(weights.copy(), bias.copy()) for weights, bias in networks[1]]
    broken[-1][1][0] = np.nan
    save(tmp_path / "a.onnx", networks[0])
    save(tmp_path / "b.onnx", broken)
    experts = experts_in(tmp_path, output=output, output_name=output)
    with pytest.raises(QuorumError, match=r"expert 1 \(b\.onnx\) in state 0, action \d .*nan"):
        experts.probabilities(OBSERVATIONS)


def test_logits_declared_as_probabilities_are_caught(folder: Path) -> None:
    experts = experts_in(folder, output="probabilities", output_name="logits")
    with pytest.raises(QuorumError, match=r"expert \d \(expert\d\.onnx\) .*softmax"):
        experts.probabilities(OBSERVATIONS)


def test_without_onnxruntime_the_error_says_what_to_install(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    with pytest.raises(QuorumError, match=r"pip install 'quorum-rl\[onnx\]'"):
        experts_in(folder)


def test_a_model_that_fails_in_a_query_has_no_answer_in_a_release(tmp_path: Path) -> None:
    """Nor does it keep others from answering."""
    for number in range(3):
        save(tmp_path / f"{number}.onnx", layers_of(number, (4, 5, 3)))
    experts = experts_in(tmp_path, open_at_once=0)
    actions = np.zeros(len(OBSERVATIONS), np.int64)
    before = experts.taken_probabilities(slice(None), OBSERVATIONS, actions)
    (tmp_path / "1.onnx").write_bytes(b"no model any more")
    found = experts.taken_probabilities(slice(None), OBSERVATIONS, actions)
    np.testing.assert_array_equal(found[[0, 2]], before[[0, 2]])
    assert np.isnan(found[1]).all()
