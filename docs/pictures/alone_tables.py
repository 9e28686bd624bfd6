"""How long one world took from nothing to its comparison, from what the queue printed."""

import re
from typing import Final

from rendering import RESULTS, table

LINE: Final = re.compile(r" *(\d+) s  (running|done): ([^,\n]+)")


def times() -> dict[str, tuple[int, int]]:
    """When each job began and ended, in seconds, in the order in which they began."""
    lines = LINE.findall((RESULTS / "alone" / "hiv.log").read_text(encoding="utf-8"))
    ended = {job: int(second) for second, state, job in lines if state == "done"}
    return {job: (int(second), ended[job]) for second, state, job in lines if state == "running"}


def from_nothing() -> str:
    """When each stage of HIV began and ended, with no other world beside it."""
    rows = [[job, str(begun), str(ended)] for job, (begun, ended) in times().items()]
    return table(["alone on one H200", "began after, seconds", "ended after, seconds"], rows)
