"""What the files of a bundle are called, and what each is in plain words."""

import math
from collections.abc import Iterable
from typing import Final

from quorum_rl.budget import LEDGER, SCHEMA_FILE, SUFFIX, Certificate

CERTIFICATE: Final = "certificate.json"
POLICY: Final = "policy.safetensors"
ONNX: Final = "policy.onnx"
RELEASED: Final = "released.parquet"
REPORT: Final = "report.html"
README: Final = "README.txt"
MANIFEST: Final = "MANIFEST.json"
RESEARCH: Final = "research: not private"

ABOUT: Final = {
    POLICY: "The learned policy. quorum_rl.Policy.load reads it, and so does any safetensors "
    "reader.",
    ONNX: "The same policy for any ONNX runtime.",
    CERTIFICATE: "What is guaranteed, under which assumptions, and what is not covered.",
    CERTIFICATE + SUFFIX: "A signature of the certificate (Ed25519).",
    SCHEMA_FILE: "What every field of the certificate means, as a JSON Schema.",
    LEDGER: "What was spent on these experts up to the certificate, line by line; each line "
    "vouches for those before. It says what was done with which constants, and nothing about the "
    "data.",
    RELEASED: "Prefixes of trajectories that a quorum of experts would have generated. They are "
    "covered by the guarantee, and they contain raw states.",
    REPORT: "The run as a page to read. It needs no network.",
    README: "This file.",
}
"""All that a bundle may hold, the manifest and its signature apart."""


def readme(made: Certificate, names: Iterable[str], *, research: bool) -> str:
    """What a bundle is, for whoever opens it."""
    held = {*names, README}
    lines = [RESEARCH, ""] if research else []
    lines += ["A policy that was learned from the logs of many experts, and what is guaranteed."]
    lines += ["", "The guarantee", "", made.statement, *_meaning(made), "", "It assumes that:"]
    for one in made.assumptions:
        accepted = "accepted by whoever ran it" if one.accepted else "NOT accepted by anybody"
        lines.append(f"- {one.text} ({accepted})")
    lines += ["", "It does not cover:"]
    lines += [f"- {text}" for text in (*made.not_accounted, *made.limitations)]
    if made.marks:
        lines += ["", "And mind:", *(f"- {text}" for text in made.marks)]
    lines += ["", "The files", ""]
    lines += [f"{name}: {about}" for name, about in ABOUT.items() if name in held]
    lines.append(f"{MANIFEST}: The size and the SHA-256 of every file here.")
    lines += ["", "To check all of this: pip install quorum-rl, then"]
    lines += ["quorum certificate verify FOLDER", "with the name of this folder.", ""]
    return "\n".join(lines)


def _meaning(made: Certificate) -> list[str]:
    """The numbers, as what an expert has to fear."""
    if made.epsilon == math.inf:
        return []
    factor = f"e^{made.epsilon:g} = {math.exp(min(made.epsilon, 700)):.3g}"
    return [
        "",
        "In plain words: had any one expert not taken part, or one more, then nothing that anybody "
        f"can conclude from these files would have been more than {factor} times as likely as it "
        f"is, nor less than that part of it, but for a remaining probability of {made.delta:g}.",
    ]
