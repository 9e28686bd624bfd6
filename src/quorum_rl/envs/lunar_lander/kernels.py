"""Long loops over few numbers of each world: on a GPU, one kernel instead of hundreds.

XLA starts a kernel for every pass of a loop and carries all numbers through the memory in between.
Here each world is a thread that keeps its numbers in registers until the loop is done.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from quorum_rl.envs.world import Array

THREADS: Final = 128  # of one block, a world each

FixedT = TypeVar("FixedT")
NowT = TypeVar("NowT")


def in_one_kernel(work: Callable[[FixedT, NowT], NowT], fixed: FixedT, now: NowT) -> NowT:
    """`work(fixed, now)`, and under `vmap` on a GPU all copies of it in one kernel.

    `work` handles single numbers, or arrays of them element by element: all leaves of `fixed` and
    `now` have one shape.
    """
    if jax.default_backend() != "gpu":
        return work(fixed, now)
    return by_threads(work, fixed, now)


def repeated_while(
    unfinished: Callable[[NowT], Array], step: Callable[[NowT], NowT], now: NowT
) -> NowT:
    """`step` by `step`, each world for as long as it is `unfinished`; for use within a kernel."""

    def step_some(now: NowT) -> NowT:
        chosen: NowT = jax.tree.map(partial(jnp.where, unfinished(now)), step(now), now)
        return chosen

    def some_are(now: NowT) -> Array:
        return unfinished(now).astype(jnp.int32).max() > 0  # Triton knows no `any`

    return jax.lax.while_loop(some_are, step_some, now)


def by_threads(
    work: Callable[[FixedT, NowT], NowT], fixed: FixedT, now: NowT, *, interpret: bool = False
) -> NowT:
    """As `in_one_kernel` on a GPU; `interpret` runs the kernel's steps on any machine."""

    @jax.custom_batching.custom_vmap
    def all_copies(fixed: FixedT, now: NowT) -> NowT:
        leaves, tree = jax.tree.flatten((fixed, now))
        shape = jnp.shape(leaves[0])
        if not shape:
            return work(fixed, now)
        flat = [leaf.reshape(-1) for leaf in leaves]
        results = _launched(work, tree, flat, len(jax.tree.leaves(now)), interpret)
        made: NowT = jax.tree.unflatten(
            jax.tree.structure(now), [leaf.reshape(shape) for leaf in results]
        )
        return made

    @all_copies.def_vmap
    def one_axis_more(size: int, batched: Any, *trees: Any) -> tuple[NowT, Any]:
        def spread(leaf: Array, has_axis: bool) -> Array:
            return leaf if has_axis else jnp.broadcast_to(leaf, (size, *jnp.shape(leaf)))

        after: NowT = all_copies(*jax.tree.map(spread, trees, tuple(batched)))
        return after, jax.tree.map(lambda _: True, after)

    result: NowT = all_copies(fixed, now)
    return result


def _launched(
    work: Callable[[Any, Any], Any], tree: Any, leaves: list[Array], kept: int, interpret: bool
) -> list[Array]:
    """The last `kept` of `leaves`, flat arrays of one length, after `work`."""
    count = leaves[0].shape[0]
    blocks = math.ceil(count / THREADS)
    types = [leaf.dtype for leaf in leaves]
    # A kernel's memory has no place for truth values.
    stored = [
        jnp.pad(leaf.astype(_stored(leaf.dtype)), (0, blocks * THREADS - count)) for leaf in leaves
    ]

    def kernel(*places: Any) -> None:
        given, to = places[: len(stored)], places[len(stored) :]
        values = [place[...].astype(kind) for place, kind in zip(given, types, strict=True)]
        after = jax.tree.leaves(work(*jax.tree.unflatten(tree, values)))
        for place, value in zip(to, after, strict=True):
            place[...] = value.astype(place.dtype)

    block = pl.BlockSpec((THREADS,), lambda number: (number,))
    results = pl.pallas_call(
        kernel,
        out_shape=[jax.ShapeDtypeStruct(leaf.shape, leaf.dtype) for leaf in stored[-kept:]],
        grid=(blocks,),
        in_specs=[block] * len(stored),
        out_specs=[block] * kept,
        compiler_params=triton.CompilerParams(num_warps=THREADS // 32, num_stages=1),
        interpret=interpret,
        name="lunar_lander_passes",
    )(*stored)
    return [leaf[:count].astype(kind) for leaf, kind in zip(results, types[-kept:], strict=True)]


def _stored(kind: Any) -> Any:
    return jnp.int32 if kind == jnp.bool_ else kind
