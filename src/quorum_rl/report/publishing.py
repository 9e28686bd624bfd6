"""Publishing a run: a bundle of what may be shown, and nothing else of the run.

No file is copied that could carry more than it should. The policy and the released prefixes are
read and written again, so that only what Quorum knows of them gets through; the report is made anew
of facts. The certificate must follow its schema, and the ledger ends where the certificate does.
Everything else stays.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from quorum_rl.budget import (
    LEARNERS,
    LEDGER,
    SCHEMA_FILE,
    Certificate,
    Consistency,
    LedgerRecord,
    certificate_of,
    check_consistent,
    check_signature,
    event_facts,
    schema_text,
    sign,
    signature_path,
)
from quorum_rl.errors import PERSON, QuorumError, require
from quorum_rl.files import read_file
from quorum_rl.json_files import CONFIG, strict_object
from quorum_rl.policy import Policy
from quorum_rl.report.bundle import (
    CARD,
    CERTIFICATE,
    MANIFEST,
    ONNX,
    POLICY,
    README,
    RELEASED,
    REPORT,
    about,
    check_bound,
    manifest,
    plain_file,
    write_bundle,
)
from quorum_rl.report.facts import Missing
from quorum_rl.report.page import check_packages, render
from quorum_rl.report.readme import LICENSE, model_card, parts_of, plain_readme

GONE_ON: Final = (
    "the ledger has gone on since this certificate, which does not cover what came later; the "
    "bundle's ledger ends where the certificate does."
)
WITH_TIMES: Final = (
    "this ledger was begun by an earlier version, and the bundle shows at which time of day it was "
    "charged: who knows when two stages of one run began knows how long the first took."
)
NO_LICENSE: Final = (
    "README.md names no licence, and to write one in later breaks the bundle's manifest: publish "
    "with --license if the hub wants one."
)
BY_CODE: Final = (
    "the policy acts by the code of {0}, which is not in the bundle: give its readers the file."
)
REPORTED: Final = (
    "evaluation.json",
    "judging.json",
    "units.json",
    "comparison.json",
    "metrics.jsonl",
    RELEASED,
    "config.toml",
)
_IDENTITY: Final = re.compile(r"[0-9a-f]{32}")
_HASH: Final = re.compile(r"[0-9a-f]{64}")
_NAME: Final = re.compile(r"[a-z-]+")
_SITE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True)
class Bundle:
    """A bundle that was written: its files, what stayed in the run's folder, and what to know."""

    folder: Path
    certificate: Certificate
    files: tuple[str, ...]
    stayed: tuple[str, ...]
    remarks: tuple[str, ...]


def publish(
    run: Path | str,
    out: Path | str,
    *,
    ledger: Path | str | None = None,
    key: Path | str | None = None,
    with_released: bool = False,
    without_ledger: bool = False,
    research: bool = False,
    hub_card: bool = False,
    license: str | None = None,
) -> Bundle:
    """Write what may be published of a finished run into the new folder `out`.

    `ledger` is where the run's ledger is, if not in its folder; `key` signs the whole bundle.
    `with_released` adds the released prefixes: the guarantee covers them, and they show raw
    states. `research` is needed for a research ledger and allowed for no other. `hub_card` writes
    README.md, a model card as hubs of models read it, in place of README.txt; it names `license`.

    Guarantee: the bundle holds the policy, the certificate and what follows from them and from the
    ledger's charges; released prefixes and a report only if the certificate covers them. It appears
    whole or not at all.

    Raises:
        QuorumError: if the run is unfinished, has no certificate that its ledger bears out, or is
            not private.
    """
    run, out = Path(run), Path(out)
    ledger, key = (None if path is None else Path(path) for path in (ledger, key))
    _check_license(license, hub_card=hub_card)
    _check_folders(run, out)
    lacking = "nothing that is guaranteed, so nothing of it can be published"
    certificate = plain_file(run, CERTIFICATE, lacking)
    claim = certificate_of(certificate, run / CERTIFICATE)
    consistency = _borne_out(claim, run, ledger)
    _check_private(claim, research=research)
    _check_plan(run, claim)
    remarks = [] if consistency.current else [GONE_ON]
    if any(charge.at != charge.date for charge in consistency.record.charges):
        remarks.append(WITH_TIMES)
    contents = {CERTIFICATE: certificate, SCHEMA_FILE: schema_text().encode()}
    contents |= _policy_files(run, certificate, remarks)
    contents |= _signature_of(run, certificate)
    contents |= _report(run, ledger, remarks, research=research)
    if not without_ledger:
        _check_may_be_shown(consistency.record)
        contents[LEDGER] = consistency.covered
    if with_released:
        contents[RELEASED] = _released(run, claim)
    policy = Policy.load(run / POLICY)
    if hub_card:
        said = parts_of(claim, about(contents, CARD), policy)
        contents[CARD] = model_card(claim, certificate, said, license).encode()
        if license is None:
            remarks.append(NO_LICENSE)
    else:
        said = parts_of(claim, about(contents, README), policy)
        contents[README] = plain_readme(said, research=research).encode()
    _check_no_paths(contents, run, ledger)
    contents[MANIFEST] = manifest(contents)
    if key is not None:
        signed = out / MANIFEST
        contents[signature_path(signed).name] = sign(contents[MANIFEST], signed, key)
    write_bundle(out, contents)
    stayed = sorted({path.name for path in run.iterdir()} - contents.keys())
    return Bundle(out, claim, tuple(contents), tuple(stayed), tuple(remarks))


def _check_license(license: str | None, *, hub_card: bool) -> None:
    if license is None:
        return
    if not hub_card:
        raise QuorumError("a license stands in a model card alone: add --hub-card.")
    require("license", license, LICENSE)


def _check_folders(run: Path, out: Path) -> None:
    if os.path.lexists(out):
        raise QuorumError(f"{str(out)!r} exists already: give the name of a new folder.")
    if not out.parent.is_dir():
        raise QuorumError(f"there is no folder {str(out.parent)!r} for {out.name!r}: create it.")
    if not run.is_dir():
        raise QuorumError(f"there is no run at {str(run)!r}: give the folder of a finished fit.")
    if os.path.lexists(run / "private"):
        raise QuorumError(
            f"the run {str(run)!r} is not finished, for it still has its private folder: run the "
            "same 'quorum fit' again, which goes on where it stopped."
        )


def _borne_out(claim: Certificate, run: Path, ledger: Path | None) -> Consistency:
    """Compare the run's certificate with its ledger."""
    if ledger is not None:
        return check_consistent(claim, read_file(ledger, "ledger"), ledger)
    if not os.path.lexists(run / LEDGER):
        raise QuorumError(
            f"the ledger of the run {str(run)!r} is kept elsewhere: say with --ledger where."
        )
    return check_consistent(claim, plain_file(run, LEDGER, "no ledger"), run / LEDGER)


def _check_private(claim: Certificate, *, research: bool) -> None:
    """Fail for what must not be shown to anybody, unless it is openly research."""
    if claim.kind == "research" and research:
        return
    if claim.kind == "research":
        raise QuorumError(
            "this is a research ledger, whose budget was not enforced: add --research-not-private "
            "if the experts are synthetic."
        )
    if research:
        raise QuorumError("this is a production ledger: leave out --research-not-private.")
    if claim.epsilon == float("inf"):
        raise QuorumError(
            "the certificate claims no finite epsilon, so nothing is guaranteed and nothing can be "
            "published: fit again with new demonstrations."
        )
    if claim.marks:
        raise QuorumError(
            f"the certificate is marked {claim.marks[0]!r}: fit again without that, under a ledger "
            "without the mark."
        )


def _check_plan(run: Path, claim: Certificate) -> None:
    """The certificate must be of what this run did, not of something else in the ledger."""
    path = run / CONFIG
    config = strict_object(plain_file(run, CONFIG, "no run of 'quorum fit'"), path)
    settings, planned = config.get("settings"), config.get("events")
    if not isinstance(settings, dict) or not isinstance(planned, list):
        raise QuorumError(f"{str(path)!r} is not that of a run: fit again.")
    if settings.get("method") == "non-private":
        raise QuorumError(
            f"the run {str(run)!r} was trained without noise, which no certificate covers: publish "
            "a private one."
        )
    charged = [event_facts(facts) for facts in claim.events]
    if not all(event in charged for event in planned):
        raise QuorumError(
            f"the certificate does not name all that the run {str(run)!r} did, so it is of another "
            "run: bring back the run's own."
        )


def _policy_files(run: Path, certificate: bytes, remarks: list[str]) -> dict[str, bytes]:
    """The policy written anew, as ONNX too where that can be done."""
    plain_file(run, POLICY, "no policy, so it is not finished")  # and is a file of the folder's own
    policy = Policy.load(run / POLICY)
    check_bound(policy, certificate)
    with TemporaryDirectory() as place:
        policy.save(Path(place, POLICY))
        found = {POLICY: Path(place, POLICY).read_bytes()}
        if policy.by_code is not None:
            remarks.append(BY_CODE.format(policy.learner))
            return found
        try:
            import onnx  # noqa: F401
        except ImportError:
            remarks.append(
                f"without {ONNX}, which needs the package onnx: pip install 'quorum-rl[onnx]'."
            )
            return found
        policy.to_onnx(Path(place, ONNX))
        return found | {ONNX: Path(place, ONNX).read_bytes()}


def _check_may_be_shown(record: LedgerRecord) -> None:
    """Fail if a charge has a fact that Quorum did not write and cannot judge."""
    for charge in record.charges:
        for name, fact in charge.facts.items():
            if not _known_fact(name, fact):
                raise QuorumError(
                    f"the ledger's charge for run {charge.run!r} has a fact {name!r} of which "
                    "Quorum cannot tell whether it may be shown: publish with --without-ledger."
                )


def _are_sites(fact: Any) -> bool:
    """Whether this is what a coordinator writes of its sites: their names, and declared numbers."""
    match fact:
        case {"most_experts": dict() as most, "minimum_sites": int(), "sums": "plain"}:
            names = all(_SITE.fullmatch(name) for name in most)
            return len(fact) == 3 and names and all(type(number) is int for number in most.values())
    return False


def _known_fact(name: str, fact: Any) -> bool:
    match name:
        case "pool" | "whole_log":
            return isinstance(fact, str) and _IDENTITY.fullmatch(fact) is not None
        case "keys" | "configuration":
            return isinstance(fact, str) and _HASH.fullmatch(fact) is not None
        case "sites":
            return _are_sites(fact)
        case "candidates":
            return LEARNERS.holds(fact)
        case "accepted":
            return isinstance(fact, list) and all(
                isinstance(assumption, str) and _NAME.fullmatch(assumption) for assumption in fact
            )
        case "accepted_by":
            names = fact.get("assumptions") if isinstance(fact, dict) else None
            return (
                isinstance(names, list)
                and fact.keys() == {"name", "assumptions"}
                and PERSON.holds(fact["name"])
                and _known_fact("accepted", names)
            )
        case "training_minimum":
            return isinstance(fact, int)
        case "published":
            return (
                isinstance(fact, dict)
                and fact.keys() == {"epsilon", "delta"}
                and all(isinstance(value, int | float) for value in fact.values())
            )
    return False


def _released(run: Path, claim: Certificate) -> bytes:
    """The released prefixes, written anew with the constants of a release that was charged."""
    plain_file(run, RELEASED, "nothing that was released")
    from quorum_rl.release import read_released_with_facts, save_released  # late: brings JAX

    released, facts = read_released_with_facts(run / RELEASED)
    event = {name: fact for name, fact in facts.items() if name != "ledger"}
    charged = [event_facts(charge) for charge in claim.events]
    if event not in charged or facts.get("ledger", claim.identity) != claim.identity:
        raise QuorumError(
            f"the certificate names no release that gave {str(run / RELEASED)!r}: bring back the "
            "run's own."
        )
    with TemporaryDirectory() as place:
        save_released(released, Path(place, RELEASED), facts)
        return Path(place, RELEASED).read_bytes()


def _signature_of(run: Path, certificate: bytes) -> dict[str, bytes]:
    """The certificate's signature, if it has one, checked."""
    name = signature_path(run / CERTIFICATE).name
    if not os.path.lexists(run / name):
        return {}
    signature = plain_file(run, name, "no signature")
    check_signature(signature, certificate, run / CERTIFICATE)
    return {name: signature}


def _report(
    run: Path, ledger: Path | None, remarks: list[str], *, research: bool
) -> dict[str, bytes]:
    """The report, made anew of the run's facts: a page that lies in its folder may be anybody's."""
    for name in REPORTED:
        if os.path.lexists(run / name):
            plain_file(run, name, "no report")
    try:
        check_packages()
        from quorum_rl.report.gathering import gather  # late: this brings JAX

        shown = replace(gather(run, ledger), made_at="for publication")
    except QuorumError as error:
        remarks.append(f"without {REPORT}, for it cannot be made: {error}")
        return {}
    if not research:
        shown = replace(shown, comparison=Missing("Comparisons are not published."))
        if not shown.covered:
            remarks.append(f"without {REPORT}, for the certificate does not cover what it shows.")
            return {}
    return {REPORT: render(shown).encode()}


def _check_no_paths(contents: Mapping[str, bytes], run: Path, ledger: Path | None) -> None:
    """Fail if a file tells where on this machine something is, which tells whose it is."""
    places = {run.resolve(), Path.home()} | ({ledger.resolve()} if ledger else set())
    telling = [str(place) for place in places if len(place.parts) > 2]  # "/root" tells nothing
    for name, content in contents.items():
        for place in telling:
            if place.encode() in content:
                raise QuorumError(
                    f"{name} contains the path {place!r} of this machine: make it anew with "
                    "relative paths, or move it out of the run's folder."
                )
