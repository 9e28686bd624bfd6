"""A network of one's own from the command line: fitted, evaluated, reported and published."""

import json
from pathlib import Path

import numpy as np
import own_networks
import pytest
from commands import Quorum

from quorum_rl.learners import learner_in_file
from quorum_rl.policy import Policy
from quorum_rl.report.episode import gather_episode

CODE = Path(own_networks.__file__).read_text()
NEEDY = "\n\n@dataclass(frozen=True, kw_only=True)\nclass Needy(Alike):\n    depth: int\n"
SMALL = ("--epsilon", "20", "--delta", "1e-3", "--minimum-experts", "136", "--private-steps", "4",
         "--local-steps", "2", "--transitions-per-expert", "2",
         "--accept", "one-expert-each")  # fmt: skip


@pytest.fixture
def own(tmp_path: Path) -> Path:
    (tmp_path / "own.py").write_text(CODE)
    return tmp_path / "own.py"


def test_it_goes_all_the_way_and_its_code_is_named_wherever_it_acts(
    own: Path, log: Path, tmp_path: Path, quorum: Quorum
) -> None:
    folder, bundle, named = tmp_path / "run", tmp_path / "bundle", ("--learner", f"{own}:Alike")
    quorum("fit", log, *SMALL, "--folder", folder, *named)
    assert {path.name for path in folder.iterdir()} >= {"policy.safetensors", "certificate.json"}
    assert not (folder / "policy.onnx").exists()
    played = ("evaluate", folder, "--episodes", "2")
    assert "which no policy's file holds: give the learner" in quorum.refused(*played)
    quorum(*played, *named)
    assert json.loads((folder / "evaluation.json").read_text())["world"] == "CartPole"
    quorum("report", folder)
    assert "acts by the code of Alike" in repr(gather_episode(folder, "CartPole"))
    remarks = quorum("publish", folder, "--out", bundle)
    assert "acts by the code of Alike, which is not in the bundle" in " ".join(remarks.split())
    quorum("certificate", "verify", bundle)
    assert "What it acts by" in (bundle / "README.txt").read_text()
    learner = learner_in_file(named[1])
    policy = Policy.load(bundle / "policy.safetensors", learner=learner)
    assert policy.act(np.zeros((3, 4))).shape == (3,)
    own.write_text(CODE + "# edited\n")
    assert "and that of Alike has" in quorum.refused(*played, *named)


def test_what_has_no_meaning_for_it_is_refused(
    own: Path, log: Path, tmp_path: Path, quorum: Quorum
) -> None:
    own.write_text(CODE + NEEDY)
    fit = ("fit", log, *SMALL, "--folder", tmp_path / "run")
    named = ("--learner", f"{own}:Alike")
    assert "learner_settings are for a learner by name" in quorum.refused(
        *fit, *named, "--hidden", "4"
    )
    needy = quorum.refused(*fit, "--learner", f"{own}:Needy")
    assert "cannot be made without arguments" in needy
    (tmp_path / "s.toml").write_text("[sweep.grid]\nclip-norm = [0.1, 0.2]\n")
    sweep = ("sweep", log, *SMALL[:6], *named, "--config", tmp_path / "s.toml")
    assert "Alike acts by code, and a sweep is for" in quorum.refused(*sweep)
    assert not (tmp_path / "run").exists()
