"""The programs on the page about policies run as they are written."""

import re
from pathlib import Path

import jax
import pytest

from quorum_rl.dictionary import Column, Dictionary
from quorum_rl.learners import Cql
from quorum_rl.pipeline.export import policy_of

PAGE = Path(__file__).parents[2] / "docs" / "policy.md"
PROGRAMS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(), re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("program", PROGRAMS, ids=range(len(PROGRAMS)))
def test_the_programs_of_the_page_run(
    program: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for needed in ("onnx", "onnxruntime"):
        pytest.importorskip(needed)
    learner = Cql(hidden_sizes=(8,))
    policy = policy_of(learner, learner.init(jax.random.key(0), 4, 2), world="CartPole")
    policy.save(tmp_path / "policy.safetensors")
    policy.to_onnx(tmp_path / "policy.onnx")
    seen = Column("glucose", fill=120), Column("weight", fill=80)
    named = Dictionary(seen, ("wait", "treat"))
    dosing = policy_of(learner, learner.init(jax.random.key(0), 2, 2), dictionary=named)
    dosing.save(tmp_path / "dosing-policy.safetensors")
    monkeypatch.chdir(tmp_path)
    made: dict[str, object] = {}
    exec(program, made)
    if "action" in made:
        assert made["action"] == policy.act([0.0, 0.1, 0.02, -0.3])
    if "actions" in made:
        assert made["actions"] == policy.act([[0.0, 0.1, 0.02, -0.3]])


def test_the_page_shows_programs() -> None:
    assert PROGRAMS
