"""The digest of code of one's own: another one where it does other things, and nowhere else."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
import optax
import pytest

from quorum_rl.learners import Bc, code_of
from quorum_rl.own_code import code_digest, own_code
from quorum_rl.training import Gradient, optimiser_of

SHIFT = 1.0
TABLE = np.arange(3.0)


def helper(number: float) -> float:
    return number + SHIFT


@jax.jit
def compiled(number: Any) -> Any:
    return number * TABLE[1]


def learner(times: float) -> Any:
    @dataclass(frozen=True)
    class Mine(Bc):
        """Its loss takes a constant, a function and what JAX compiled."""

        def loss_from_outputs(self, *told: Any) -> Any:
            return times * helper(1.0) * compiled(super().loss_from_outputs(*told))

    return Mine()


def test_what_is_ours_or_installed_is_nobodys_own() -> None:
    assert own_code(Bc(), Gradient(), optimiser_of("adam").transformation) is None
    assert own_code(optax.scale_by_adam, np.mean, 3, dict) is None
    assert code_of(Bc()) == {}


def test_the_same_code_has_the_same_digest_wherever_it_stands() -> None:
    source = "def own(x):\n    return x + 1\n"
    found = []
    for before, file in (("", "one.py"), ("\n\n# moved\n", "two.py")):
        space: dict[str, Any] = {"__name__": "somebodys"}
        exec(compile(before + source, file, "exec"), space)
        found.append(own_code(space["own"]))
    assert found[0] == found[1] is not None
    assert own_code(learner(2.0)) == own_code(learner(2.0)) is not None


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("SHIFT", 2.0),
        ("TABLE", np.arange(3.0) + 1),
        ("helper", lambda number: number),
        ("compiled", jax.jit(lambda number: number)),
    ],
)
def test_what_it_calls_by_name_is_part_of_it(
    name: str, other: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = own_code(learner(2.0))
    monkeypatch.setitem(globals(), name, other)
    assert own_code(learner(2.0)) != before


def test_what_it_holds_is_part_of_it() -> None:
    def scaled(times: float) -> Callable[[float], float]:
        return lambda number: times * number

    assert own_code(learner(2.0)) != own_code(learner(3.0))
    assert code_digest(partial(helper, 1.0)) != code_digest(partial(helper, 2.0))
    assert own_code(scaled(1.0)) != own_code(scaled(2.0))
    assert code_digest(optax.trace(0.9)) != code_digest(optax.trace(0.5))


def test_code_that_calls_itself_ends() -> None:
    def forth(number: int) -> int:
        return back(number - 1) if number else 0

    def back(number: int) -> int:
        return forth(number)

    assert own_code(forth) != own_code(back)
