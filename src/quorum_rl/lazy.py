"""Rooms whose parts are loaded when they are used: what is light is quick to load."""

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def load_when_used(room: str) -> tuple[list[str], Callable[[str], Any]]:
    """`__all__` and `__getattr__` of a room: what its `__init__` imports as its own for type
    checkers, which import nothing.

    A module must not have the name of something that the room offers: Python would bind that name
    to the module.
    """
    source = Path(str(sys.modules[room].__file__)).read_text(encoding="utf-8")
    module_of = {
        alias.name: statement.module
        for statement in ast.walk(ast.parse(source))
        if isinstance(statement, ast.ImportFrom)
        for alias in statement.names
        if alias.asname == alias.name
    }

    def get(name: str) -> Any:
        module = module_of.get(name)
        if module is None:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        return getattr(import_module(module), name)

    return sorted(module_of), get
