"""Faults planted in the product's own code, so that a check is seen to catch them."""

import inspect
import sys
from collections.abc import Callable
from typing import Any


def with_fault(function: Callable[..., Any], *faults: tuple[str, str]) -> Callable[..., Any]:
    """The same function but for faults: of its source, what is right and what stands there instead.

    Fails if the source has no such piece, or several.
    """
    source = inspect.getsource(function)
    for right, wrong in faults:
        assert source.count(right) == 1, f"{right!r} is there {source.count(right)} times"
        source = source.replace(right, wrong)
    names = dict(vars(sys.modules[function.__module__]))
    exec(source, names)
    made: Callable[..., Any] = names[function.__name__]
    return made
