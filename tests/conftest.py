"""For all tests: two CPU devices, little time for compiling, which are slow, and their order."""

import os
import tempfile
from collections.abc import Iterator
from importlib.metadata import version
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# No test is timed: machines are noisy.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")

# Compiling takes most of the tests' time. All that is said to JAX here is said before it starts,
# and workers and tests' own processes inherit it, so that one's programs are another's too.

# Whatever the machine has: what is spread over devices is tested so.
os.environ["JAX_NUM_CPU_DEVICES"] = "2"

# Small programs that run once are not worth LLVM's optimisations; tests whose programs run for long
# ask for them (compiling.py). Set to 0, all tests are compiled as users compile.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")

# Half of what is left of compiling are XLA's fusion emitters, and its older ones do the same. A
# worker has one core, so a program is compiled in one piece: an eighth less. XLA ends a process
# that names a flag it does not know, so these are for versions that know them.
_QUICKER = "--xla_cpu_use_fusion_emitters=false --xla_cpu_parallel_codegen_split_count=1"
_flags = os.environ.get("XLA_FLAGS", "")
if (
    os.environ["JAX_DISABLE_MOST_OPTIMIZATIONS"] == "1"
    and version("jaxlib").startswith("0.10.")
    and "xla_cpu_use_fusion_emitters" not in _flags
):
    os.environ["XLA_FLAGS"] = f"{_flags} {_QUICKER}".strip()

# The first process makes the folder and removes it. No program is compiled twice in one run.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    _compiled = tempfile.TemporaryDirectory(prefix="quorum-tests-", ignore_cleanup_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = _compiled.name
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

# What ledgers, logs and experts are remembered by: never the folder of whoever runs the tests.
_states = tempfile.TemporaryDirectory(prefix="quorum-states-", ignore_cleanup_errors=True)
os.environ["QUORUM_STATE"] = f"{_states.name}/shared"
_numbers = count()


@pytest.fixture(scope="module", autouse=True)
def _state_of_what_tests_share() -> Iterator[None]:
    """What the tests of one file share is remembered for that file: another may run before it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("QUORUM_STATE", f"{_states.name}/{next(_numbers)}")
        yield


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test has a state folder of its own, so that tests may share logs and ledgers."""
    folder = Path(_states.name) / str(next(_numbers))
    monkeypatch.setenv("QUORUM_STATE", str(folder))
    return folder


@pytest.fixture(scope="session", autouse=True)
def _nothing_is_flushed() -> Iterator[None]:
    """No test cuts the power, so nothing waits for the disk: a third of the time of crash tests.

    That it would be flushed, and when, is counted by those (dying_disk.py).
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


# Files whose tests take longer than three seconds or so of one core: `make test-fast` leaves them
# out. Chosen by pytest's --durations.
SLOW = """
audit/test_pipeline_audit.py
audit/test_release_audit.py
audit/test_training_audit.py
budget/test_ledger_damage.py
cli/test_attacks.py
cli/test_continuous_commands.py
cli/test_demo.py
cli/test_failures.py
cli/test_fit_command.py
cli/test_fit_with_judges.py
cli/test_own_network_command.py
cli/test_plan_command.py
envs/test_hiv.py
envs/test_integrators.py
envs/test_lunar_lander.py
envs/test_lunar_lander_world.py
envs/test_minatar.py
envs/test_own_world.py
envs/test_reference.py
envs/test_remembering.py
envs/test_rollout.py
envs/test_units.py
experts/test_checkpoint.py
experts/test_continuous_experts.py
experts/test_onnx_process.py
experts/test_population.py
experts/test_ppo_iteration.py
experts/test_ppo_training.py
judging/test_answers.py
judging/test_asking.py
judging/test_cartpole_judges.py
judging/test_continuous_values.py
judging/test_judging_audit.py
judging/test_values.py
learners/test_continuous.py
learners/test_solving.py
logs/test_collect.py
pipeline/test_crash_points.py
pipeline/test_fit.py
pipeline/test_fit_chosen.py
pipeline/test_fit_continuous.py
pipeline/test_fit_history.py
pipeline/test_fit_interrupted.py
pipeline/test_fit_judged.py
pipeline/test_fit_own_network.py
pipeline/test_fit_pays.py
pipeline/test_fit_units.py
pipeline/test_flax.py
pipeline/test_own_contribution.py
pipeline/test_plan_fit.py
pipeline/test_rule.py
privacy/test_accounting.py
privacy/test_adversary.py
privacy/test_calibration.py
privacy/test_planner.py
release/test_crash_points_of_a_release.py
release/test_release_distribution.py
pipeline/test_belonging.py
report/test_browser.py
sites/test_crash_points_of_sites.py
sites/test_coordinators_that_die.py
sites/test_faults_of_sites.py
sites/test_flower.py
sites/test_tutorial.py
sweep/test_crash_points_of_a_sweep.py
sweep/test_judge.py
sweep/test_ray.py
sweep/test_sweep.py
sweep/test_sweep_command.py
test_bring_your_own.py
test_clinicians.py
cli/test_commands.py
test_docs.py
test_site.py
test_experiments.py
test_fuzz.py
test_notebooks.py
test_paper.py
test_paper_queue.py
test_processes.py
test_public_names.py
test_spread.py
test_study.py
test_what_leaves.py
training/test_contributions.py
training/test_last_bit_attack.py
training/test_loop.py
training/test_loop_data.py
training/test_mechanism.py
training/test_noise.py
training/test_private_units.py
"""


@pytest.fixture
def quorum(capsys: pytest.CaptureFixture[str]) -> Any:
    """The command, as a test runs it."""
    from commands import Quorum

    return Quorum(capsys)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the tests in slow files.

    Raises:
        UsageError: if one of them is not there any more.
    """
    slow = {config.rootpath / "tests" / name for name in SLOW.split()}
    gone = [str(path) for path in sorted(slow) if not path.is_file()]
    if gone:
        raise pytest.UsageError(f"tests/conftest.py lists {gone[0]} as slow: it is not there.")
    for item in items:
        if item.path in slow:
            item.add_marker("slow")


def pytest_configure(config: pytest.Config) -> None:
    """Give files to workers in their order.

    pytest-xdist would leave those with the fewest tests for the end, and three of the longest have
    three: one core would work on the last of them while the others wait.
    """
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False
