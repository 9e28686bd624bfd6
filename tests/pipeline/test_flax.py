"""The page's Flax module as a learner: fitted, kept, loaded and asked."""

import re
import runpy
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from compiling import optimised

from quorum_rl.learners import learner_in_file
from quorum_rl.pipeline import FitSettings, fit
from quorum_rl.policy import Policy

pytest.importorskip("flax.linen", reason="flax is not installed, and nothing but this needs it")

ROOT: Final = Path(__file__).parents[2]
BLOCK: Final = re.compile(r"```python\n(class Net\(nn.Module\).*?)```", re.DOTALL)
IMPORTS: Final = """
from dataclasses import dataclass
import flax.linen as nn
import jax.numpy as jnp
from quorum_rl.learners import negative_log_likelihood
"""


def test_a_flax_module_learns_as_any_network_does(tmp_path: Path) -> None:
    """It was right about 99.9% of new pictures; half is guessing."""
    (block,) = BLOCK.findall((ROOT / "docs" / "learners.md").read_text(encoding="utf-8"))
    (tmp_path / "flaxen.py").write_text(IMPORTS + block)
    learner: Any = learner_in_file(f"{tmp_path / 'flaxen.py'}:FlaxImitation")
    example = runpy.run_path(str(ROOT / "examples" / "own_network.py"))
    with optimised():
        made = fit(
            example["logs"](experts=40, each=50),
            epsilon=3,
            delta=1e-4,
            learner=learner,
            settings=FitSettings(local_steps=6, private_steps=15, transitions_per_expert=16),
            folder=tmp_path / "run",
            accepted=["one-expert-each"],
            seed=0,
            report=lambda _: None,
        )
    policy = Policy.load(made.folder / "policy.safetensors", learner=learner)
    assert policy.by_code is not None
    assert set(policy.by_code.parameters) == {
        f"params.{layer}_0.{part}" for layer in ("Conv", "Dense") for part in ("bias", "kernel")
    }
    seen, lies = example["pictures"](np.random.default_rng(1), 1000)
    assert (policy.act(seen) == lies).mean() > 0.8
