"""A published policy needs NumPy and safetensors, nothing of what trained it."""

import subprocess
import sys
from pathlib import Path

import numpy as np
from policies import LEARNERS, random_observations, random_params

from quorum_rl.pipeline.export import policy_of

HEAVY = ("jax", "jaxlib", "optax", "scipy", "pyarrow", "matplotlib", "gymnasium")

ACT = f"""
import sys
for name in {HEAVY}:
    sys.modules[name] = None  # an import of it fails from now on
import numpy as np
from quorum_rl.policy import Policy
assert "onnx" not in sys.modules
policy = Policy.load("policy.safetensors")
np.save("actions.npy", policy.act(np.load("observations.npy")))
"""


def test_a_policy_loads_and_acts_where_jax_is_not_installed(tmp_path: Path) -> None:
    learner = LEARNERS[1]
    policy = policy_of(learner, random_params(learner))
    observations = random_observations(200)
    policy.save(tmp_path / "policy.safetensors")
    np.save(tmp_path / "observations.npy", observations)
    subprocess.run([sys.executable, "-c", ACT], cwd=tmp_path, check=True)
    np.testing.assert_array_equal(np.load(tmp_path / "actions.npy"), policy.act(observations))
