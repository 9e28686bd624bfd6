"""No expert counts more than it may, and otherwise the clipped sum is what it says."""

import math
from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax_privacy.clipping import clipped_grad
from standardising import STANDARDISING

from quorum_rl.learners import Bc, Bcq, Cql, DenseLearner, DoubleDqn, Networks
from quorum_rl.training import clipping
from quorum_rl.training.clipping import clipped_by_gradients, clipped_sum
from quorum_rl.types import Transition

EXPERTS = 6
Transitions: TypeAlias = Callable[..., Transition]
ClippedSum: TypeAlias = Callable[..., Any]


def flat(tree: Any) -> Any:
    """All numbers of a pytree, in float64 so that norms do not round."""
    return np.concatenate(
        [np.ravel(np.asarray(leaf, np.float64)) for leaf in jax.tree.leaves(tree)]
    )


def keys_for(transitions: Transition) -> jax.Array:
    return jax.random.split(jax.random.key(2), transitions.reward.shape)


@cache
def compiled(function: ClippedSum, learner: DenseLearner) -> ClippedSum:
    return jax.jit(partial(function, learner))


def mean_loss(
    learner: DenseLearner, params: Any, target: Any, transitions: Transition, keys: jax.Array
) -> jax.Array:
    return jax.vmap(learner.loss, (None, None, 0, 0))(params, target, transitions, keys).mean()


def by_jax_privacy(learner: DenseLearner, clip_norm: Any, *arguments: Any) -> Any:
    """The sum of clipped mean gradients, as jax-privacy has it for groups of examples."""
    clipped = clipped_grad(
        partial(mean_loss, learner),
        l2_clip_norm=clip_norm,
        batch_argnums=(2, 3),
        keep_batch_dim=False,
        return_grad_norms=True,
    )
    return clipped(*arguments)


@pytest.mark.parametrize(("kind", "per_expert"), [(Cql, 1), (Bcq, 4)])
def test_the_sum_is_that_of_jax_privacy_and_of_vmapped_gradients(
    kind: type[DenseLearner], per_expert: int, transitions: Transitions
) -> None:
    learner = kind(hidden_sizes=(16, 12), **STANDARDISING)
    params, target = nets(learner)
    batch = transitions(3, EXPERTS, per_expert)
    keys, present = keys_for(batch), jnp.arange(EXPERTS) != 2
    gone = jax.tree.map(lambda field: field[present], (batch, keys))
    theirs = jax.jit(partial(by_jax_privacy, learner))
    gradients = jax.jit(jax.vmap(jax.grad(partial(mean_loss, learner)), (None, None, 0, 0)))
    each = by_expert(gradients(params, target, *gone))
    norms = np.linalg.norm(each, axis=1, keepdims=True)
    sizes = sorted(norms[:, 0])
    assert sizes[0] < 0.9 * sizes[-1]
    for clip_norm in (0.05, (sizes[0] + sizes[-1]) / 2, 1e6):  # clips all, some, none
        expected, _ = theirs(clip_norm, params, target, *gone)
        by_hand = (each * np.minimum(1, clip_norm / norms)).sum(axis=0)
        scaled_by_hand = (each * clip_norm / norms).sum(axis=0)
        for function in (clipped_sum, clipped_by_gradients):
            ours = partial(
                compiled(function, learner), params, target, batch, present, keys, clip_norm
            )
            agree = partial(np.testing.assert_allclose, rtol=3e-6, atol=1e-6 * min(clip_norm, 10))
            agree(flat(ours(False)), flat(expected))
            agree(flat(ours(False)), by_hand)
            agree(flat(ours(True)), scaled_by_hand, atol=1e-6 * clip_norm)


def by_expert(gradients: Any) -> Any:
    """Gradients as rows, in float64."""
    leaves = [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(gradients)]
    return np.concatenate([leaf.reshape(len(leaf), -1) for leaf in leaves], axis=1)


def test_a_zero_gradient_stays_zero() -> None:
    # Without hidden layers and at zero, cloning pulls two opposite ways that cancel exactly.
    learner = Bc(hidden_sizes=())
    params = jax.tree.map(jnp.zeros_like, learner.init(jax.random.key(0), 3, 2))
    state, none, ends = jnp.ones((1, 2, 3)), jnp.zeros((1, 2)), jnp.zeros((1, 2), bool)
    batch = Transition(state, jnp.array([[0, 1]]), none, state, ends, ends)
    for function in (clipped_sum, clipped_by_gradients):
        for normalised in (False, True):
            total = compiled(function, learner)(
                params, {}, batch, jnp.ones(1, bool), keys_for(batch), 1.0, normalised
            )
            assert not flat(total).any()


# No expert counts more than it may

EXTREMES = [0.0, 1e-38, 1e-30, 1e-19, 1.0, 1e6, 1e15, 1e19, 1e30, 3e38, np.inf, np.nan]
numbers = st.sampled_from(EXTREMES + [-x for x in EXTREMES]) | st.floats(width=32)


class Case(NamedTuple):
    """One expert's transitions, and the scale of the nets that look at them."""

    transitions: Transition
    params_scale: float
    clip_norm: float


@st.composite
def cases(draw: st.DrawFn, per_expert: int) -> Case:
    def array(*shape: int) -> Any:
        count = int(np.prod(shape))
        drawn = draw(st.lists(numbers, min_size=count, max_size=count))
        return np.asarray(drawn, np.float32).reshape(shape)

    flags = draw(st.lists(st.booleans(), min_size=per_expert, max_size=per_expert))
    actions = draw(st.lists(st.integers(0, 3), min_size=per_expert, max_size=per_expert))
    mine: Any = (
        array(per_expert, 3),
        np.asarray(actions, np.int32),
        array(per_expert),
        array(per_expert, 3),
        np.asarray(flags),
        np.zeros(per_expert, bool),
    )
    scale = draw(st.sampled_from([1e-20, 1e-8, 1.0, 1e4, 1e12]))
    return Case(Transition(*mine), scale, draw(st.sampled_from([1e-6, 0.1, 1.0, 50.0])))


def check_sensitivity(
    function: ClippedSum, learner: DenseLearner, case: Case, others: Transition, normalised: bool
) -> None:
    """The expert alone counts at most `clip_norm`; beside others it moves their sum no more.

    There, rounding may add a few units in the last place of a sum of six.
    """
    params, target = nets(learner)
    params = jax.tree.map(lambda leaf: leaf * np.float32(case.params_scale), params)
    batch = jax.tree.map(lambda a, b: jnp.asarray(a).at[-1].set(b), others, case.transitions)
    keys = keys_for(batch)

    def summed(*present: bool) -> Any:
        total = flat(
            compiled(function, learner)(
                params, target, batch, jnp.asarray(present), keys, case.clip_norm, normalised
            )
        )
        assert np.isfinite(total).all()
        return total

    bound = float(np.float32(case.clip_norm))
    rest = (True,) * (EXPERTS - 1)
    assert np.linalg.norm(summed(*(False,) * (EXPERTS - 1), True)) <= bound
    moved = summed(*rest, True) - summed(*rest, False)
    assert np.linalg.norm(moved) <= bound * (1 + 1e-6)


@cache
def nets(learner: DenseLearner) -> tuple[Networks, Networks]:
    first, second = (learner.init(jax.random.key(seed), 3, 4) for seed in (0, 1))
    return first, learner.init_target(second)


LEARNERS = (Cql(hidden_sizes=(16, 12)), Bcq(hidden_sizes=(16, 12), **STANDARDISING))


@pytest.mark.parametrize("per_expert", [1, 4])
@pytest.mark.parametrize("learner", LEARNERS, ids=lambda learner: learner.name)
def test_no_expert_moves_the_sum_by_more_than_the_clip_norm(
    learner: DenseLearner, transitions: Transitions, per_expert: int
) -> None:
    others = transitions(4, EXPERTS, per_expert)

    @settings(max_examples=120, deadline=None, derandomize=True, database=None)
    @given(case=cases(per_expert), normalised=st.booleans())
    def holds(case: Case, normalised: bool) -> None:
        check_sensitivity(clipped_sum, learner, case, others, normalised)

    holds()


MAGNITUDES = 10.0 ** np.array([0, 0, 0, -38, -30, -20, -10, 10, 18, 19, 20, 30])


@pytest.mark.parametrize("per_expert", [1, 4])
def test_transitions_of_mixed_magnitudes_count_no_more(per_expert: int) -> None:
    """Where some squares overflow, some vanish, and those left must not pass for the whole."""
    random, experts, learner = np.random.default_rng(0), 2000, LEARNERS[0]

    def mixed(*shape: int) -> Any:
        sizes = random.normal(size=(experts, 1, per_expert, *shape))
        return jnp.asarray(sizes * random.choice(MAGNITUDES, sizes.shape), jnp.float32)

    actions = jnp.asarray(random.integers(4, size=(experts, 1, per_expert)))
    ends = jnp.zeros(actions.shape, bool)
    batch = Transition(mixed(3), actions, mixed(), mixed(3), ends, ends)
    clip_norms = jnp.asarray(random.choice([1e-15, 1e-6, 1.0, 1e15], size=experts), jnp.float32)

    def alone(params: Any, *expert: Any) -> Any:
        transitions, keys, clip_norm = expert
        present = jnp.ones(1, bool)
        return clipped_sum(learner, params, target, transitions, present, keys, clip_norm, True)

    params, target = nets(learner)
    each = jax.jit(jax.vmap(alone, (None, 0, 0, 0)))
    for scale in (1e-20, 1e-8, 1.0, 1e4):
        scaled = jax.tree.map(lambda leaf, scale=scale: leaf * np.float32(scale), params)
        counts = by_expert(each(scaled, batch, keys_for(batch), clip_norms))
        assert (np.linalg.norm(counts, axis=1) <= np.asarray(clip_norms, np.float64)).all()


@pytest.mark.parametrize("width", [512, 4096])
def test_wide_layers_whose_small_terms_are_rounded_away_count_no_more(width: int) -> None:
    """Added one by one to a 1, squares of 2**-12.5 vanish, and many of them are not nothing."""
    learner = Cql(hidden_sizes=(4,))
    state = jnp.full((1, 2, width), 2.0**-12.5).at[:, :, 0].set(1.0)
    ends = jnp.zeros((1, 2), bool)
    batch = Transition(state, ends.astype(int), jnp.full((1, 2), 1e3), state, ends, ends)
    params = learner.init(jax.random.key(0), width, 4)
    target = learner.init_target(params)
    made = clipped_sum(learner, params, target, batch, jnp.ones(1, bool), keys_for(batch), 1.0)
    norm = math.sqrt(sum(np.square(leaf, dtype=np.float64).sum() for leaf in jax.tree.leaves(made)))
    assert 0.999 < norm <= 1.0


def extreme_case(value: float, params_scale: float, clip_norm: float) -> Case:
    """Four equal transitions whose observations hold one value."""
    state = np.full((4, 3), value, np.float32)
    ends = np.zeros(4, bool)
    mine: Any = (state, np.arange(4), np.ones(4, np.float32), state, ends, ends)
    return Case(Transition(*mine), params_scale, clip_norm)


CASES = [
    extreme_case(value, scale, clip_norm)
    for value in (1.0, 1e19, 1e30, np.inf, np.nan)
    for scale, clip_norm in ((1.0, 0.1), (1e-20, 1e-6))
]


def test_the_bound_holds_for_any_kind_of_learner(transitions: Transitions) -> None:
    others = transitions(4, EXPERTS, 4)
    for case in CASES:
        check_sensitivity(clipped_by_gradients, LEARNERS[0], case, others, False)


# What the check catches


def clips_each_transition(
    learner: DenseLearner,
    params: Any,
    target: Any,
    transitions: Transition,
    present: jax.Array,
    keys: jax.Array,
    *rest: Any,
) -> Any:
    experts, per_expert = keys.shape
    split = [
        jax.tree.map(lambda field: field.reshape(experts * per_expert, 1, *field.shape[2:]), tree)
        for tree in (transitions, keys)
    ]
    return clipped_sum(
        learner, params, target, split[0], jnp.repeat(present, per_expert), split[1], *rest
    )


def lets_infinities_through(
    learner: DenseLearner,
    params: Any,
    target: Any,
    transitions: Transition,
    present: jax.Array,
    keys: jax.Array,
    clip_norm: Any,
    normalised: Any,
) -> Any:
    """Factors of zero are thought to silence an expert."""
    del normalised
    gradient = jax.vmap(jax.grad(partial(mean_loss, learner)), (None, None, 0, 0))
    gradients = gradient(params, target, transitions, keys)
    squares = [
        jnp.square(leaf).reshape(len(leaf), -1).sum(1) for leaf in jax.tree.leaves(gradients)
    ]
    factors = jnp.minimum(1, clip_norm / jnp.sqrt(jnp.stack(squares).sum(0)))
    factors = jnp.where(present & jnp.isfinite(factors), factors, 0)
    return jax.tree.map(lambda leaf: jnp.tensordot(factors, leaf, 1), gradients)


@pytest.mark.parametrize("mutant", [clips_each_transition, lets_infinities_through])
def test_the_check_catches(mutant: ClippedSum, transitions: Transitions) -> None:
    others = transitions(4, EXPERTS, 4)
    for case in CASES:
        check_sensitivity(clipped_sum, LEARNERS[0], case, others, False)
    assert any(fails(mutant, case, others) for case in CASES)


def fails(mutant: ClippedSum, case: Case, others: Transition) -> bool:
    try:
        check_sensitivity(mutant, LEARNERS[0], case, others, False)
    except AssertionError:
        return True
    return False


def counts_of_cancelling_gradients(clip_norm: float) -> Any:
    """How much an expert counts whose two gradients are large and all but opposite, many times."""
    learner = DoubleDqn(hidden_sizes=(16, 12))
    params, target = nets(learner)
    first = np.random.default_rng(0).normal(size=(200, 1, 1, 3)) * 1e9
    second = first * (1 + np.geomspace(1e-5, 1e-2, 200)[:, None, None, None])
    states = jnp.asarray(np.concatenate([first, second], axis=2), jnp.float32)
    rewards = jnp.broadcast_to(jnp.array([1e20, -1e20]), (200, 1, 2))
    none = jnp.zeros((200, 1, 2), bool)
    batch = Transition(states, none.astype(jnp.int32), rewards, states, none, none)

    def alone(transitions: Transition, keys: jax.Array) -> Any:
        everyone = jnp.ones(1, bool)
        return clipped_sum(learner, params, target, transitions, everyone, keys, clip_norm)

    return np.linalg.norm(by_expert(jax.jit(jax.vmap(alone))(batch, keys_for(batch))), axis=1)


def test_what_rounding_leaves_of_gradients_that_cancel_is_clipped_as_well(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert (counts_of_cancelling_gradients(1.0) <= 1).all()
    monkeypatch.setattr(clipping, "CANCELLING", 0.0)
    monkeypatch.setattr(clipping, "ROUNDING_OF_A_TERM", 0.0)
    assert (counts_of_cancelling_gradients(1.0) > 1).any()
