"""For all tests: two CPU devices, no program compiled twice in one run, and the order of files."""

import os
import tempfile

# The first process makes the folder and removes it; workers and tests' own processes inherit it.
# Many of them need the same programs, and compiling takes most of the tests' time.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    _compiled = tempfile.TemporaryDirectory(prefix="quorum-tests-", ignore_cleanup_errors=True)
    os.environ["JAX_COMPILATION_CACHE_DIR"] = _compiled.name
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"

import jax
import pytest

# Whatever the machine has: what is spread over devices is tested so.
jax.config.update("jax_num_cpu_devices", 2)


def pytest_configure(config: pytest.Config) -> None:
    """Give files to workers in their order.

    pytest-xdist would leave those with the fewest tests for the end, and three of the longest have
    three: one core would work on the last of them while the others wait.
    """
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False
