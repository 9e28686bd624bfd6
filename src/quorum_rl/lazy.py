"""Rooms whose parts are loaded when they are used: what is light is quick to load."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any


def load_when_used(
    room: str, names_of: Mapping[str, str]
) -> tuple[list[str], Callable[[str], Any]]:
    """`__all__` and `__getattr__` of a room: the names that it offers, by the module they are in.

    A module must not have the name of something that the room offers: Python would bind that name
    to the module.
    """
    module_of = {name: module for module, names in names_of.items() for name in names.split()}

    def get(name: str) -> Any:
        if name not in module_of:
            raise AttributeError(f"module {room!r} has no attribute {name!r}")
        return getattr(import_module(f"{room}.{module_of[name]}"), name)

    return sorted(module_of), get
