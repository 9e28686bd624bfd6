"""Models that mean harm: refused when they are opened, and without an answer in a release."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hostile_models import ALWAYS, SOUND, write_model

from quorum_rl.errors import QuorumError
from quorum_rl.experts import OnnxExperts
from quorum_rl.experts.onnx_process import OnnxProcess

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

SECONDS = 0.8
HARM = 20.0  # the state from which on a model does its harm
STATES = np.array([[0], [HARM], [3], [HARM + 1], [7]], np.float32)
ACTIONS = np.zeros(len(STATES), np.int64)


def opened(folder: Path, *kinds: str, start: float = HARM, **changed: Any) -> OnnxExperts:
    files = [
        write_model(folder / f"{number}-{kind}.onnx", kind, start)
        for number, kind in enumerate(kinds)
    ]
    options: Any = {"observation_size": 1, "action_count": 2, "p_min": 0.1} | changed
    return OnnxExperts.from_files(files, **({"answer_seconds": SECONDS} | options))


# --- when files are opened ---

REFUSALS = {
    "random": r"1-random\.onnx: the model answers the same state differently",
    "hangs": r"1-hangs\.onnx: the model did not answer in 0\.8 seconds.*QUORUM_ANSWER_SECONDS",
    "crashes": r"1-crashes\.onnx: the process that ran the model died \(exit status -8\)",
    "takes memory": r"1-takes memory\.onnx: the model fails to run",
    "fails": r"1-fails\.onnx: the model fails to run",
}


@pytest.mark.parametrize("kind", REFUSALS)
def test_a_model_that_means_harm_is_refused_when_it_is_opened(tmp_path: Path, kind: str) -> None:
    with pytest.raises(QuorumError, match=REFUSALS[kind]):
        opened(tmp_path, "sound", kind, "sound", start=ALWAYS)


def test_a_model_that_answers_with_anothers_weights_is_refused(tmp_path: Path) -> None:
    """One file is one expert: else nobody could leave without changing what another answers."""
    import onnx
    import onnxruntime

    own = write_model(tmp_path / "0.onnx", "sound")
    other = write_model(tmp_path / "1.onnx", "sound")
    model = onnx.load(own)
    (stolen,) = (tensor for tensor in model.graph.initializer if tensor.name == "sound")
    place = other.read_bytes().index(stolen.raw_data)
    onnx.external_data_helper.set_external_data(stolen, other.name, place, 8)
    stolen.ClearField("raw_data")
    own.write_bytes(model.SerializeToString())
    (answer,) = onnxruntime.InferenceSession(str(own)).run(None, {"state": STATES})
    assert np.allclose(answer, SOUND)  # where nobody minds, it can
    with pytest.raises(QuorumError, match=r"^0\.onnx: .*export it as one file that holds its w"):
        OnnxExperts.from_files([own, other], observation_size=1, action_count=2, p_min=0.1)


def test_in_batches_a_model_that_answers_twice_differently_is_refused_too(tmp_path: Path) -> None:
    with pytest.raises(QuorumError, match=r"0-random\.onnx: the model answers the same state"):
        opened(tmp_path, "random", start=ALWAYS, row_by_row=False)
    with pytest.raises(QuorumError, match=r"0-random\.onnx: the model answers the same state"):
        opened(tmp_path, "random", start=0.999, row_by_row=False)  # it depends on its batch


def test_a_model_that_is_asked_only_once_hides_its_random_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OnnxExperts, "_check_repeats", lambda self, n: self._answer(n, STATES))
    assert len(opened(tmp_path, "random", start=ALWAYS)) == 1


def test_a_model_that_is_random_elsewhere_is_not_found(tmp_path: Path) -> None:
    """As docs/limits.md says: it is asked in eight states."""
    assert len(opened(tmp_path, "random")) == 1


class WaitedError(Exception):
    """The wait was longer than a test allows."""


@contextmanager
def bounded_wait(seconds: float) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise WaitedError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_without_a_time_limit_a_model_that_hangs_is_never_refused(tmp_path: Path) -> None:
    with bounded_wait(2.0), pytest.raises(WaitedError):
        opened(tmp_path, "hangs", start=ALWAYS, answer_seconds=1e6)


def test_the_time_limit_is_the_users_and_public(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts: Any = {"observation_size": 1, "action_count": 2}
    files = [write_model(tmp_path / "a.onnx", "hangs")]
    monkeypatch.setenv("QUORUM_ANSWER_SECONDS", "0.2")
    with pytest.raises(QuorumError, match=r"a\.onnx: the model did not answer in 0\.2 seconds"):
        OnnxExperts.from_files(files, **facts)
    for word in ("soon", "0", "nan"):
        monkeypatch.setenv("QUORUM_ANSWER_SECONDS", word)
        with pytest.raises(QuorumError, match=f"SECONDS is '{word}': give a number of seconds"):
            OnnxExperts.from_files(files, **facts)


# --- in a release ---


@pytest.mark.parametrize("kind", ["hangs", "crashes", "takes memory", "fails"])
def test_a_model_has_no_answer_where_it_does_harm_and_everybody_else_has(
    tmp_path: Path, kind: str
) -> None:
    """Just there: an answer must not depend on what was asked before it."""
    experts = opened(tmp_path, "sound", kind, "sound")
    found = experts.taken_probabilities(slice(None), STATES, ACTIONS)
    np.testing.assert_allclose(found[[0, 2]], SOUND[0], rtol=1e-6)
    np.testing.assert_array_equal(np.isnan(found[1]), STATES[:, 0] >= HARM)
    np.testing.assert_array_equal(found[1][STATES[:, 0] < HARM], found[0][:3])


def test_other_queries_of_such_a_model_say_what_is_wrong(tmp_path: Path) -> None:
    experts = opened(tmp_path, "sound", "crashes")
    with pytest.raises(QuorumError, match=r"1-crashes\.onnx: the process .* died"):
        experts.probabilities(STATES)
    assert experts.probabilities(STATES[:1]).shape == (2, 1, 2)


def test_outside_a_process_of_its_own_such_a_model_ends_everything(tmp_path: Path) -> None:
    program = (
        "import sys, numpy as np\n"
        "from quorum_rl.experts.onnx_worker import ModelQuestion, _answered\n"
        "asked = ModelQuestion(sys.argv[1], 1, 2, False, None, True, True, 1.0)\n"
        "_answered(asked, np.array([[20]], np.float32), {})\n"
    )
    file = write_model(tmp_path / "a.onnx", "crashes", HARM)
    ended = subprocess.run([sys.executable, "-c", program, str(file)], check=False)
    assert ended.returncode == -signal.SIGFPE


def test_a_model_that_ruins_its_process_later_takes_no_answer_from_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failure counts only in a process that has opened no other model."""
    experts = opened(tmp_path, "sound", "sound")
    asked, failed = OnnxProcess._asked, []

    def ruined(self: OnnxProcess, question: Any, states: Any) -> Any:
        if len(self._used | {question.file}) > 1:
            failed.append(question.file)
            raise QuorumError("there is no memory left by another model.")
        return asked(self, question, states)

    monkeypatch.setattr(OnnxProcess, "_asked", ruined)
    found = experts.taken_probabilities(slice(None), STATES, ACTIONS)
    assert len(failed) == 2
    np.testing.assert_allclose(found, SOUND[0], rtol=1e-6)


# --- the process ---


def test_the_process_starts_without_jax() -> None:
    program = (
        "import sys, quorum_rl.experts.onnx_worker, onnxruntime\n"
        "sys.exit('jax' in sys.modules or 'pyarrow' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_process_ends_with_the_set_and_a_set_without_questions_has_none(tmp_path: Path) -> None:
    experts = opened(tmp_path, "sound")
    finalizer: Any = experts._process._ending
    process = finalizer.peek()[2][0]
    assert process.poll() is None
    del experts
    assert process.poll() is not None
    assert OnnxProcess()._ending is None
