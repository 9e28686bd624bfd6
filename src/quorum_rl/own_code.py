"""Which code of the user's own something is: a digest of what it does, wherever it stands.

A run that went on with other code would add its noise to other sums.
"""

import hashlib
import json
import sys
import sysconfig
from collections.abc import Iterator
from functools import cached_property, partial
from pathlib import Path
from types import CodeType, FunctionType, MethodType
from typing import Any, Final

import numpy as np

INSTALLED: Final = tuple(sysconfig.get_paths()[name] for name in ("stdlib", "purelib", "platlib"))
NOT_CODE: Final = (
    "__dict__",
    "__doc__",
    "__module__",
    "__weakref__",
    "__firstlineno__",
    "code_digest",
)
PLAIN: Final = (bool, int, float, complex, str, bytes, type(None), type(...))


def own_code(*things: Any) -> str | None:
    """A digest of the code of the user's own that these classes, functions or objects run; None if
    there is none.

    It follows what they call by name and hold, but not into other modules: those are taken as they
    are, as installed packages and Quorum are.
    """
    return code_digest(*things) if any(map(_is_own, things)) else None


def code_digest(*things: Any) -> str:
    """The same of anything; of what is installed or Quorum's, its names and what it holds."""
    seen: set[int] = set()
    said = [_said(thing, seen) for thing in things]
    return hashlib.sha256(json.dumps(said).encode()).hexdigest()


def file_digest(kind: type) -> str | None:
    """The SHA-256 of the file that a class's methods are written in; None if they are in none.

    Of a class without methods it is that of the first it derives from. Unlike `code_digest` it is
    the same for every version of Python.
    """
    for name, member in (one for base in kind.__mro__ for one in vars(base).items()):
        code = getattr(_function_in(member) or member, "__code__", None)
        if code is not None and not name.startswith("__"):  # a dataclass makes those
            path = Path(code.co_filename)
            return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
    return None


def _is_own(thing: Any) -> bool:
    """Whether a class, a function or an object's class is neither Quorum's nor installed."""
    called = thing if isinstance(thing, type | FunctionType) else type(thing)
    module = str(getattr(called, "__module__", None) or "")
    first = module.partition(".")[0]
    if first == "quorum_rl" or first in sys.stdlib_module_names - {"__main__"}:
        return False
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    return not file.startswith(INSTALLED)


def _said(thing: Any, seen: set[int]) -> Any:
    """What there is to compare of anything, as JSON; of what is seen again, its name."""
    if isinstance(thing, PLAIN):
        return repr(thing)
    if isinstance(thing, tuple | list):
        return [_said(part, seen) for part in thing]
    if isinstance(thing, set | frozenset):
        return sorted(json.dumps(_said(part, seen)) for part in thing)
    if isinstance(thing, dict):
        return [[_said(key, seen), _said(value, seen)] for key, value in thing.items()]
    if isinstance(thing, np.generic | np.ndarray) or hasattr(thing, "addressable_shards"):
        array = np.asarray(thing)
        return [array.dtype.str, list(array.shape), hashlib.sha256(array.tobytes()).hexdigest()]
    if isinstance(thing, CodeType):
        consts = [_said(const, seen) for const in thing.co_consts]
        return [thing.co_code.hex(), thing.co_names, thing.co_varnames, consts]
    if isinstance(thing, partial):
        return _said([thing.func, thing.args, thing.keywords], seen)
    if (within := _function_in(thing)) is not None:
        return _said(within, seen)
    if isinstance(thing, type | FunctionType):
        return _of_code(thing, seen)
    own = type(thing)
    return _of_code(own, seen) if _is_own(thing) else own.__qualname__


def _function_in(thing: Any) -> Any:
    """The function that a method, a property or what `jax.jit` made is of, else None."""
    if isinstance(thing, MethodType | staticmethod | classmethod):
        return thing.__func__
    if isinstance(thing, property | cached_property):
        return thing.fget if isinstance(thing, property) else thing.func
    wrapped = (
        None if isinstance(thing, type | FunctionType) else getattr(thing, "__wrapped__", None)
    )
    return wrapped if isinstance(wrapped, FunctionType) else None


def _of_code(thing: type | FunctionType, seen: set[int]) -> Any:
    if id(thing) in seen:
        return thing.__qualname__
    seen.add(id(thing))
    if isinstance(thing, type):
        kinds = [kind for kind in thing.__mro__ if _is_own(kind)]
        parts = [(kind.__qualname__, _members(kind)) for kind in kinds]
        return [thing.__qualname__, _said(parts, seen)]
    held = [cell.cell_contents for cell in thing.__closure__ or () if _is_filled(cell)]
    said = [thing.__qualname__, _said([held, thing.__defaults__, thing.__kwdefaults__], seen)]
    if not _is_own(thing):
        return said
    named = {name: thing.__globals__.get(name) for name in _names(thing.__code__)}
    return [*said, _said(thing.__code__, seen), _said(named, seen)]


def _members(kind: type) -> dict[str, Any]:
    return {name: member for name, member in vars(kind).items() if name not in NOT_CODE}


def _is_filled(cell: Any) -> bool:
    try:
        _ = cell.cell_contents
    except ValueError:
        return False
    return True


def _names(code: CodeType) -> Iterator[str]:
    """What code, and code within it, takes from its module or from objects."""
    yield from code.co_names
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _names(const)
