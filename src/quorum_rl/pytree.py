"""Frozen dataclasses that JAX can look into: the one way this project makes a pytree."""

from dataclasses import dataclass, fields
from typing import TypeVar, dataclass_transform

import jax

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def pytree(cls: type[T]) -> type[T]:
    """Make `cls` a frozen dataclass whose fields are all leaves (or sub-trees) of a pytree."""
    made = dataclass(frozen=True)(cls)
    names = [field.name for field in fields(made)]  # type: ignore[arg-type]
    jax.tree_util.register_dataclass(made, data_fields=names, meta_fields=[])
    return made
