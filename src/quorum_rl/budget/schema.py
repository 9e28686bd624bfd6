"""Certificates as files: their published schema, and a reader that takes nothing else."""

import json
import math
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Final

from quorum_rl.budget.certificates import FORMAT, Acceptance, Assumption, Certificate, Published
from quorum_rl.errors import QuorumError
from quorum_rl.files import read_file
from quorum_rl.json_files import strict_object

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


def certificate_of(content: bytes, path: Path) -> Certificate:
    """The certificate that a file's content is.

    Raises:
        QuorumError: if it is not one by the published schema, naming the first fault.
    """
    facts = strict_object(content, path)
    if type(form := facts.get("format")) is int and form != FORMAT:
        raise QuorumError(
            f"{str(path)!r} has format {form}, and this version of Quorum reads {FORMAT}: make it "
            "again from its ledger with 'quorum certificate show LEDGER --json'."
        )
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
            "assumptions": tuple(_assumption(held) for held in facts["assumptions"]),
            "published": None if published is None else Published(**published),
        }
    )


def _assumption(held: dict[str, Any]) -> Assumption:
    who = tuple(Acceptance(**one) for one in held.get("accepted_by", ()))
    return Assumption(**held | {"accepted_by": who})


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
