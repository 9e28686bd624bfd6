"""A tutorial as its reader goes through it: the commands of its blocks, and what they answer."""

import contextlib
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from compiling import optimised

from quorum_rl.cli.main import main

ROOT = Path(__file__).parents[2]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```", re.MULTILINE | re.DOTALL)


class Answer(NamedTuple):
    """What a command of the page did."""

    words: list[str]
    status: int
    said: str
    shown: str  # what the page says that it says; empty where it shows nothing


def commands_of(language: str, text: str) -> Iterator[tuple[list[str], str]]:
    """The commands of a block as words, each with what is shown below it."""
    text = text.replace("\\\n", " ")
    if language == "sh":
        for line in text.splitlines():
            yield shlex.split(line, comments=True), ""
    elif not language:
        for part in text.split("$ ")[1:]:
            line, _, shown = part.partition("\n")
            yield shlex.split(line), shown.strip()


def walked(
    page: Path, start: Path, before: Callable[[str, str], None] = lambda _language, _text: None
) -> list[Answer]:
    """What every command of a page answers, block by block, from a folder on.

    `before` does with a block what is not a command, such as to run its Python.
    """
    answers = []
    with optimised(), contextlib.chdir(start):
        for language, text in FENCE.findall(page.read_text()):
            before(language, text)
            for words, shown in commands_of(language, text):
                if words[0] == "cd":
                    os.chdir(words[1])
                else:
                    answers.append(Answer(words, *run(words), shown))
    return answers


def run(words: list[str]) -> tuple[int, str]:
    """A command's exit status and what it says, on both streams."""
    if words[0] == "python":
        script = ROOT / words[1][words[1].index("examples/") :]
        done = subprocess.run(
            [sys.executable, script, *words[2:]], capture_output=True, text=True, check=False
        )
        return done.returncode, done.stdout + done.stderr
    assert words[0] == "quorum"
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        try:
            main(words[1:])
        except SystemExit as stop:
            return int(stop.code or 0), said.getvalue()
    return 0, said.getvalue()
