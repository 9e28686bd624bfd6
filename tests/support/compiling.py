"""How much time compiling may take; see conftest.py for what is usual."""

from collections.abc import Iterator
from contextlib import contextmanager

import jax

OPTION = "jax_disable_most_optimizations"


@contextmanager
def optimised() -> Iterator[None]:
    """For programs that run for longer than they compile."""
    before = jax.config.read(OPTION)
    jax.config.update(OPTION, False)
    try:
        yield
    finally:
        jax.config.update(OPTION, before)
