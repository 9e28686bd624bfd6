"""Certificates as files: their published schema, and a reader that takes nothing else."""

import json
import math
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final, NoReturn

from quorum_rl.budget.certificates import Assumption, Certificate
from quorum_rl.budget.published import Published
from quorum_rl.errors import QuorumError

SCHEMA_FILE: Final = "certificate.schema.json"


def schema_text() -> str:
    """The JSON Schema (draft 2020-12) of a certificate, as it is published."""
    return (resources.files("quorum_rl.budget") / SCHEMA_FILE).read_text(encoding="utf-8")


def read_certificate(path: Path | str) -> Certificate:
    """The certificate in a file.

    Raises:
        QuorumError: if it cannot be read or is not one by the published schema.
    """
    return certificate_of(read_file(Path(path), "certificate"), Path(path))


def read_file(path: Path, what: str) -> bytes:
    """The content of a file, which is the user's `what`.

    Raises:
        QuorumError: if it cannot be read.
    """
    try:
        return path.read_bytes()
    except FileNotFoundError as error:
        raise QuorumError(f"there is no {what} at {str(path)!r}: give its file.") from error
    except OSError as error:
        raise QuorumError(f"the {what} {str(path)!r} cannot be read: {error.strerror}.") from error


def certificate_of(content: bytes, path: Path) -> Certificate:
    """The certificate that a file's content is.

    Raises:
        QuorumError: if it is not one by the published schema, naming the first fault.
    """
    facts = strict_object(content, path)
    fault = _first_fault(facts)
    if fault is not None:
        raise QuorumError(f"{str(path)!r} is not a certificate: {fault}.")
    lists = {
        name: tuple(facts[name])
        for name in ("modes", "events", "not_accounted", "limitations", "marks")
    }
    published = facts["published"]
    return Certificate(
        **facts
        | lists
        | {
            "epsilon": math.inf if facts["epsilon"] is None else facts["epsilon"],
            "assumptions": tuple(Assumption(**one) for one in facts["assumptions"]),
            "published": None if published is None else Published(**published),
        }
    )


def strict_object(content: bytes, path: Path) -> dict[str, Any]:
    """The JSON object that a file is, all of it, with finite numbers and no name given twice.

    Two readers of such a file find the same facts, which is not so with repeated names.

    Raises:
        QuorumError: if it is anything else.
    """
    try:
        facts = json.loads(
            content.decode(),
            parse_constant=_refused_constant,
            parse_float=_finite,
            object_pairs_hook=_without_repeats,
        )
    except (ValueError, RecursionError) as error:
        raise QuorumError(f"{str(path)!r} is not a JSON object ({error}): give one.") from error
    if not isinstance(facts, dict):
        raise QuorumError(f"{str(path)!r} is not a JSON object: give one.")
    return facts


def _refused_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is too large a number")
    return number


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    facts = dict(pairs)
    if len(facts) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"it has {twice!r} twice")
    return facts


@cache
def _validator() -> Any:
    # Late: most commands read no certificate.
    from jsonschema import Draft202012Validator  # type: ignore[import-untyped]

    return Draft202012Validator(json.loads(schema_text()))


def _first_fault(facts: dict[str, Any]) -> str | None:
    """The fault that says most about what is wrong by the schema; None if there is none."""
    from jsonschema.exceptions import best_match  # type: ignore[import-untyped]

    error = best_match(_validator().iter_errors(facts))
    if error is None:
        return None
    where = error.json_path.removeprefix("$").removeprefix(".")
    said = " ".join(error.message.split())
    short = said if len(said) <= 200 else said[:197] + "..."
    return f"{where}: {short}" if where else short
