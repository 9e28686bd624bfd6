"""What a bundle says of itself: plain text for a reader, or a model card for a hub of models."""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from quorum_rl.budget import Certificate
from quorum_rl.errors import Rule
from quorum_rl.policy import Policy

HEAD: Final = "A policy that was learned from the logs of many experts, and what is guaranteed."
RESEARCH: Final = "research: not private"
TAGS: Final = ("reinforcement-learning", "offline-reinforcement-learning", "differential-privacy")
LICENSE: Final = Rule(
    "a licence as hubs name it, such as apache-2.0 or other",
    lambda name: (
        isinstance(name, str) and re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,63}", name) is not None
    ),
)
_SPECIAL: Final = re.compile(r"[\\`*_\[\]<>#|~]")
_UNPRINTABLE: Final = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


class Part(NamedTuple):
    """A section: sentences and a list, under a title that may be missing."""

    title: str
    sentences: tuple[str, ...] = ()
    items: tuple[str, ...] = ()


def parts_of(made: Certificate, about: Mapping[str, str], policy: Policy) -> Iterator[Part]:
    """All that a bundle with the files `about` says of itself."""
    yield Part("The guarantee", (made.statement, *_meaning(made)))
    held = tuple(f"{assumption.text} ({assumption.answer})" for assumption in made.assumptions)
    yield Part("It assumes that", items=held)
    yield Part("It does not cover", items=(*made.not_accounted, *made.limitations))
    if made.marks:
        yield Part("And mind", items=made.marks)
    if policy.by_code is not None:
        yield Part("What it acts by", (_by_code(policy.learner, policy.by_code.code),))
    named = policy.dictionary
    if named is not None and named.columns:
        yield Part(
            "What the policy sees, in this order", items=tuple(one.said for one in named.columns)
        )
    if named is not None and named.action_bounds:
        yield Part("What it answers, in this order", items=named.said_of_actions)
    elif named is not None and named.action_labels:
        labels = tuple(f"{number}: {label}" for number, label in enumerate(named.action_labels))
        yield Part("What it answers", items=labels)
    yield Part("The files", items=tuple(f"{name}: {text}" for name, text in about.items()))


def _by_code(learner: str, code: str) -> str:
    return (
        f"The policy has the parameters of {learner} and acts by its code, which is not here: a "
        f"Python file with the SHA-256 {code}. Give Policy.load its learner."
    )


def plain_readme(parts: Iterable[Part], *, research: bool) -> str:
    """README.txt of a bundle."""
    lines = [RESEARCH, ""] if research else []
    lines += [HEAD]
    for part in parts:
        lines += ["", f"{part.title}:"]
        for sentence in part.sentences:
            lines += ["", sentence]
        lines += [f"- {item}" for item in part.items]
    lines += ["", "To check all of this: pip install quorum-rl, then"]
    lines += ["quorum certificate verify FOLDER", "with the name of this folder.", ""]
    return "\n".join(lines)


def model_card(
    made: Certificate, certificate: bytes, parts: Iterable[Part], license: str | None
) -> str:
    """README.md of a bundle: a model card as hubs read it, all its facts the certificate's."""
    facts: dict[str, Any] = {
        "library_name": "quorum-rl",
        "pipeline_tag": "reinforcement-learning",
        "tags": list(TAGS),
        "differential_privacy": _facts(made, certificate),
    }
    if license is not None:
        facts = {"license": license, **facts}
    lines = ["---", *_yaml(facts), "---", "", "# A policy learned from many experts", ""]
    lines += [f"**{RESEARCH}**", ""] if made.kind == "research" else []
    lines += [HEAD]
    for part in parts:
        lines += ["", f"## {part.title}"]
        for sentence in part.sentences:
            lines += ["", _escaped(sentence)]
        if part.items:
            lines += ["", *(f"- {_escaped(item)}" for item in part.items)]
    return "\n".join(lines) + USE


USE: Final = """

## Use it

```python
from quorum_rl import Policy  # pip install quorum-rl

policy = Policy.load("policy.safetensors")
```

Check what is claimed here, in this folder: `quorum certificate verify .`
"""


def _facts(made: Certificate, certificate: bytes) -> dict[str, Any]:
    """What the certificate says, for programs."""
    assumptions = [
        {
            "name": assumption.name,
            "accepted": assumption.accepted,
            "accepted_by": [f"{who.name}, {who.at}" for who in assumption.accepted_by],
        }
        for assumption in made.assumptions
    ]
    return {
        "kind": made.kind,
        "epsilon": made.epsilon if math.isfinite(made.epsilon) else None,
        "delta": made.delta,
        "relation": made.relation,
        "assumptions": assumptions,
        "marks": list(made.marks),
        "ledger": made.identity,
        "ledger_head": made.ledger_head,
        "certificate_sha256": hashlib.sha256(certificate).hexdigest(),
    }


def _yaml(facts: Mapping[str, Any], indent: str = "") -> Iterator[str]:
    """Lines of YAML, the same to versions 1.1 and 1.2: texts in quotes, numbers with a point."""
    for name, fact in facts.items():
        if isinstance(fact, Mapping):
            yield f"{indent}{name}:"
            yield from _yaml(fact, indent + "  ")
        elif isinstance(fact, list) and fact:
            yield f"{indent}{name}:"
            for item in fact:
                if isinstance(item, Mapping):
                    first, *rest = _yaml(item, indent + "    ")
                    yield f"{indent}  - {first.lstrip()}"
                    yield from rest
                else:
                    yield f"{indent}  - {_scalar(item)}"
        else:
            yield f"{indent}{name}: {_scalar(fact)}"


def _scalar(fact: Any) -> str:
    text = json.dumps(fact, ensure_ascii=False, allow_nan=False)
    if isinstance(fact, float):
        return text if "." in text else text.replace("e", ".0e")
    return _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def _escaped(text: str) -> str:
    """A text that Markdown shows as it is."""
    return _SPECIAL.sub(r"\\\g<0>", text)


def _meaning(made: Certificate) -> tuple[str, ...]:
    """What the numbers mean for an expert."""
    if made.epsilon == math.inf:
        return ()
    factor = f"e^{made.epsilon:g} = {math.exp(min(made.epsilon, 700)):.3g}"
    return (
        "In plain words: had any one expert not taken part, or one more, then nothing that anybody "
        f"can conclude from these files would have been more than {factor} times as likely as it "
        f"is, nor less than that part of it, but for a remaining probability of {made.delta:g}.",
    )
