"""Changes to files, drawn at random: of their bytes, and of the facts in them."""

import json
from collections.abc import Callable
from random import Random
from typing import Any, Final

from json_trees import changed, leaves

STRANGE: Final[tuple[Any, ...]] = (
    None, True, False, -1, 0, 1, 2**31, 2**63, 10**40, 10**299, 0.5, -0.0, 1e-320, 1e308, "", "x",
    "0.02", "\ud800", "é" * 40, [], [[]], {}, {"x": None}, [1, 2, 3],
)  # fmt: skip
NUMBERS: Final = (b"\xff" * 4, b"\xff" * 8, b"\x00" * 8, b"\xff\xff\xff\x7f", b"\x00" * 7 + b"\x80")
DEEP: Final = b"[" * 50_000


def mutated(content: bytes, random: Random) -> bytes:
    """The content with one to three changes of its bytes."""
    for _ in range(random.choice((1, 1, 2, 3))):
        content = random.choice(BYTES)(content, random)
    return content


def mutated_json(content: bytes, random: Random) -> bytes:
    """A JSON object with one fact changed, taken out or nested, or else with other bytes."""
    facts = json.loads(content)
    place = random.choice(leaves(facts))
    match random.randrange(6):
        case 0 | 1 | 2:
            return json.dumps(changed(facts, place, lambda _: random.choice(STRANGE))).encode()
        case 3:
            return json.dumps(changed(facts, place, _other(random))).encode()
        case 4:
            marked = json.dumps(changed(facts, place, lambda _: "MARK")).encode()
            return marked.replace(b'"MARK"', random.choice((DEEP, b"NaN", b"1e999", b"9" * 5000)))
    return mutated(content, random)


def _other(random: Random) -> Callable[[Any], Any]:
    def change(value: Any) -> Any:
        if isinstance(value, str):
            return value[: random.randrange(len(value) + 1)] + random.choice("0aé\n\\")
        if isinstance(value, bool) or not isinstance(value, int | float):
            return not value
        return random.choice((value + 1, value * 10, -value, value / 3, value * 1e-6))

    return change


def _cut(content: bytes, random: Random) -> tuple[bytes, bytes, bytes]:
    start = random.randrange(len(content) + 1)
    end = min(start + random.choice((1, 2, 4, 8, 64)), len(content))
    return content[:start], content[start:end], content[end:]


def _flipped(content: bytes, random: Random) -> bytes:
    if not content:
        return content
    place = random.randrange(len(content))
    return (
        content[:place] + bytes([content[place] ^ 1 << random.randrange(8)]) + content[place + 1 :]
    )


def _replaced(content: bytes, random: Random) -> bytes:
    before, middle, after = _cut(content, random)
    return before + random.randbytes(len(middle)) + after


def _removed(content: bytes, random: Random) -> bytes:
    before, _, after = _cut(content, random)
    return before + after


def _doubled(content: bytes, random: Random) -> bytes:
    before, middle, after = _cut(content, random)
    return before + middle + middle + after


def _numbered(content: bytes, random: Random) -> bytes:
    number = random.choice(NUMBERS)
    start = random.randrange(len(content) + 1)
    return content[:start] + number + content[start + len(number) :]


def _shorter(content: bytes, random: Random) -> bytes:
    return content[: random.randrange(len(content) + 1)]


def _digit(content: bytes, random: Random) -> bytes:
    places = [place for place, byte in enumerate(content) if 48 <= byte < 58]
    if not places:
        return content
    place = random.choice(places)
    return content[:place] + b"%d" % random.randrange(10) + content[place + 1 :]


BYTES: Final = (_flipped, _flipped, _replaced, _removed, _doubled, _numbered, _shorter, _digit)
