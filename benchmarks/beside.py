"""The other half of a benchmark, in an interpreter of its own: it answers one JSON line a question.

For libraries that cannot share our environment. The other program reads words from its standard
input and answers each line with one of JSON.
"""

import json
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Beside:
    """The conversation with the other half."""

    name: str
    process: "subprocess.Popen[str]"

    def answer(self) -> Any:
        """The next line it says."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(
                f"{self.name}'s half of the benchmark ended early; its error is above"
            )
        return json.loads(line)

    def ask(self, question: str) -> Any:
        """What it says to this line."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{question}\n")
        self.process.stdin.flush()
        return self.answer()


@contextmanager
def beside(
    name: str, command: Sequence[str], surroundings: Mapping[str, str] | None = None
) -> Iterator[Beside]:
    """Start the other half, and end it with the block."""
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=surroundings
    ) as process:
        yield Beside(name, process)
        assert process.stdin is not None
        process.stdin.close()
