"""A policy that acts by its learner's code: networks of any kind, whose parameters alone are data.

The one file of this room that brings JAX, and only once a learner is given. Which code that is, a
digest says; nobody but the user can say where it is, so that no file runs anything.
"""

import json
import reprlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from quorum_rl.dictionary import Bounds
from quorum_rl.errors import QuorumError
from quorum_rl.own_code import file_digest
from quorum_rl.policy.file import Floats

ROOT: Final = "parameters"  # what a tree is called that is one array
LONGEST: Final = 300  # characters of a list in a message
ROWS: Final = 4096  # at most so many observations at once


@dataclass(frozen=True, eq=False, kw_only=True)
class ByCode:
    """Trained parameters by their paths in the tree that the learner makes, and which code acts.

    `code` is the SHA-256 of the file that the learner is written in, `settings` are its fields.
    Without the `learner` it is only kept.

    Raises:
        QuorumError: if a parameter is not finite.
    """

    parameters: Mapping[str, Floats] = field(repr=False)
    observation_size: int
    action_count: int
    settings: Mapping[str, Any]
    code: str
    learner: Any = field(default=None, repr=False)

    def __post_init__(self) -> None:
        kept = {}
        for name, given in self.parameters.items():
            kept[name] = np.array(given, np.float32, order="C")
            kept[name].flags.writeable = False
            if not np.isfinite(kept[name]).all():
                raise QuorumError(
                    f"parameter {name!r} has a number that is not finite, so the training "
                    "diverged: train again with a smaller learning rate."
                )
        object.__setattr__(self, "parameters", MappingProxyType(kept))

    @property
    def said(self) -> dict[str, Any]:
        """What a file says of it; `code_in_file` reads it."""
        sizes = [self.observation_size, self.action_count]
        return {"sha256": self.code, "settings": dict(self.settings), "sizes": sizes}

    def with_learner(self, learner: Any, called: str) -> "ByCode":
        """The same, acting by this learner, who is to be `called` so.

        Raises:
            QuorumError: if the parameters are not those of this code with these settings.
        """
        if isinstance(learner, type):
            raise QuorumError(f"the learner is the class {learner.__name__}: give an instance.")
        name = learner_name(learner)
        if name != called:
            raise QuorumError(
                f"the policy acts by {reprlib.repr(called)}, not by {name!r}: give its own learner."
            )
        code, settings = _code_of(learner), _settings_of(learner)
        if code != self.code:
            raise QuorumError(
                f"the policy acts by code whose file has the SHA-256 {self.code[:12]}…, and that "
                f"of {name} has {code[:12]}…: give the file that the fit was given, unchanged."
            )
        if settings != self.settings:
            raise QuorumError(
                f"the policy's learner has the settings {_listed(self.settings)}, and this {name} "
                f"has {_listed(settings)}: give it those."
            )
        made = {path: shape for path, (shape, _) in _leaves(self._shapes(learner)).items()}
        held = {path: array.shape for path, array in self.parameters.items()}
        if made != held:
            raise QuorumError(
                f"the policy's parameters are {_listed(held)}, and {name} makes {_listed(made)}: "
                "install the packages that the fit had."
            )
        return replace(self, learner=learner)

    @cached_property
    def params(self) -> Any:
        """The parameters as the learner takes them."""
        import jax

        tree = self._shapes(self.given)
        leaves = [self.parameters[path] for path in _leaves(tree)]
        return jax.tree.unflatten(jax.tree.structure(tree), leaves)

    def act(self, observations: Floats, bounds: Bounds) -> npt.NDArray[Any]:
        """The actions for observations that were prepared; continuous ones within their `bounds`.

        Shapes: `(…, observation_size) -> (…)`, or `(…, action_count)`.

        Raises:
            QuorumError: if no learner was given, or it answers with what is no action.
        """
        act, rows = self._compiled, observations.reshape(-1, self.observation_size)
        parts = [act(self.params, rows[at : at + ROWS]) for at in range(0, max(len(rows), 1), ROWS)]
        chosen: npt.NDArray[Any] = np.concatenate(parts)
        before = observations.shape[:-1]
        if not bounds:
            if not ((chosen >= 0) & (chosen < self.action_count)).all():
                self._refuse(f"an action that is none of 0 to {self.action_count - 1}")
            return chosen.astype(np.int64).reshape(before)
        if not np.isfinite(chosen).all():
            self._refuse("an action that is not finite")
        low, high = np.asarray(bounds, np.float32).T
        chosen = np.clip(chosen, low, high)
        return chosen.reshape(*before, self.action_count)

    @property
    def given(self) -> Any:
        """The learner.

        Raises:
            QuorumError: if none was given.
        """
        if self.learner is None:
            raise QuorumError(
                "the policy acts by code of its learner, which no policy's file holds: give the "
                "learner, as in Policy.load(path, learner=...) or --learner path/to/file.py:NAME."
            )
        return self.learner

    @cached_property
    def _compiled(self) -> Any:
        """The learner's greedy actions for some rows, of few sizes, for each is compiled."""
        import jax

        learner = self.given
        compiled = jax.jit(lambda params, rows: learner.act(params, rows))

        def act(params: Any, rows: Floats) -> npt.NDArray[Any]:
            room = 1 << max(len(rows) - 1, 0).bit_length()
            padded = np.zeros((room, self.observation_size), np.float32)
            padded[: len(rows)] = rows
            with jax.default_matmul_precision("highest"):
                whole: npt.NDArray[Any] = np.asarray(compiled(params, padded))
            return whole[: len(rows)]

        return act

    def _shapes(self, learner: Any) -> Any:
        import jax

        sizes = self.observation_size, self.action_count
        return jax.eval_shape(lambda: learner.init(jax.random.key(0), *sizes))

    def _refuse(self, what: str) -> NoReturn:
        name = learner_name(self.learner)
        raise QuorumError(f"{name} answered with {what}: see what its method act returns.")


def code_in_file(parameters: Mapping[str, Floats], said: Mapping[str, Any]) -> ByCode:
    """What a policy's file holds, which no learner was given to yet."""
    return ByCode(
        parameters=parameters,
        observation_size=said["sizes"][0],
        action_count=said["sizes"][1],
        settings=said["settings"],
        code=said["sha256"],
    )


def acting_by_code(
    learner: Any, params: Any, sizes: tuple[int, int], *, continuous: bool = False
) -> ByCode:
    """What acts as `learner.act(params, ·)` does; `sizes` are of an observation and of the actions.

    Raises:
        QuorumError: for a learner whose policy could not be kept, or could not act.
    """
    name = learner_name(learner)
    try:
        hash(learner)
    except TypeError as error:
        raise QuorumError(f"{name} cannot be hashed: make it a frozen dataclass.") from error
    parameters = _leaves(params)
    for path, (_, leaf) in parameters.items():
        if np.dtype(leaf.dtype) != np.float32:
            raise QuorumError(
                f"parameter {path!r} of {name} is of type {leaf.dtype}: give float32, and keep out "
                "of the parameters what is not trained."
            )
    _check_answers(learner, params, sizes, continuous=continuous)
    return ByCode(
        parameters={path: np.asarray(leaf) for path, (_, leaf) in parameters.items()},
        observation_size=sizes[0],
        action_count=sizes[1],
        settings=_settings_of(learner),
        code=_code_of(learner),
        learner=learner,
    )


def learner_name(learner: Any) -> str:
    return str(getattr(learner, "name", type(learner).__name__))


def _check_answers(learner: Any, params: Any, sizes: tuple[int, int], *, continuous: bool) -> None:
    """Fail unless its actions for some observations look like those of the logs."""
    import jax

    rows = 3
    seen = np.zeros((rows, sizes[0]), np.float32)
    answer = jax.eval_shape(lambda params: learner.act(params, seen), params)
    shape, kind = getattr(answer, "shape", None), np.dtype(getattr(answer, "dtype", object)).kind
    if (shape, kind in "iu") != ((rows, sizes[1]) if continuous else (rows,), not continuous):
        wanted = f"floats of shape (n, {sizes[1]})" if continuous else "whole numbers of shape (n,)"
        raise QuorumError(
            f"the method act of {learner_name(learner)} returns {answer} for {rows} observations: "
            f"return {wanted}."
        )


def _leaves(tree: Any) -> dict[str, tuple[tuple[int, ...], Any]]:
    """The arrays of a tree and their shapes, by their paths in it.

    Raises:
        QuorumError: if there are none, or two with the same path.
    """
    import jax

    found: dict[str, tuple[tuple[int, ...], Any]] = {}
    for path, leaf in jax.tree.leaves_with_path(tree):
        name = jax.tree_util.keystr(path, simple=True, separator=".") or ROOT
        if name in found:
            raise QuorumError(
                f"two parameters are called {name!r}: leave points out of names of parameters."
            )
        found[name] = tuple(leaf.shape), leaf
    if not found:
        raise QuorumError("there are no parameters: return arrays from the learner's init.")
    return found


def _settings_of(learner: Any) -> dict[str, Any]:
    """The learner's fields, as JSON has them.

    Raises:
        QuorumError: if one is no data.
    """
    known = fields(learner) if is_dataclass(learner) else ()
    made: dict[str, Any] = {}
    for one in known:
        value = getattr(learner, one.name)
        try:
            made[one.name] = json.loads(json.dumps(value, allow_nan=False))
        except (TypeError, ValueError) as error:
            raise QuorumError(
                f"{one.name} of {learner_name(learner)} is {value!r}: keep numbers and texts in "
                "the learner's fields, and make of them in its methods what else there is."
            ) from error
    return made


def _code_of(learner: Any) -> str:
    """The SHA-256 of the file that a learner is written in.

    Raises:
        QuorumError: if it is in none.
    """
    digest = getattr(learner, "code_digest", None) or file_digest(type(learner))
    if digest is None:
        raise QuorumError(
            f"{learner_name(learner)} is written in no file: write it into one, for its policy "
            "acts by that code and names the file's SHA-256."
        )
    return str(digest)


def _listed(facts: Mapping[str, Any]) -> str:
    said = ", ".join(f"{name} {fact}" for name, fact in facts.items()) or "none"
    return said if len(said) <= LONGEST else f"{said[:LONGEST]}…"
