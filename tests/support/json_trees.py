"""Walking through JSON facts and changing one of them."""

import json
from collections.abc import Callable
from typing import Any

Place = tuple[str | int, ...]


def leaves(tree: Any, place: Place = ()) -> list[Place]:
    """Where every number, text, flag and null is; an empty list or object counts as a leaf."""
    if not isinstance(tree, dict | list) or not tree:
        return [place]
    inner = tree.items() if isinstance(tree, dict) else enumerate(tree)
    return [leaf for key, value in inner for leaf in leaves(value, (*place, key))]


def value_at(tree: Any, place: Place) -> Any:
    for key in place:
        tree = tree[key]
    return tree


def changed(tree: Any, place: Place, change: Callable[[Any], Any]) -> Any:
    """A copy with one fact changed."""
    copy = json.loads(json.dumps(tree))
    value_at(copy, place[:-1])[place[-1]] = change(value_at(copy, place))
    return copy
