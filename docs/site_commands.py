"""A hook of mkdocs: the page of all commands, made of what `--help` says."""

import contextlib
import io
import os
import re
from typing import Final
from unittest.mock import patch

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from quorum_rl.cli.main import COMMANDS, command_of

HEAD: Final = """# Commands

What `--help` says, command by command, in the order of the flow.
"""
GROUP: Final = re.compile(r"usage: quorum \w+ \[-h\] \{([\w,]+)\}")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the page."""
    files.append(File.generated(config, "commands.md", content=page()))
    return files


def page() -> str:
    """Every command under its name."""
    text = HEAD
    for name, (_, what) in COMMANDS.items():
        said = _help_of(name)
        text += f"\n## quorum {name}\n{what}\n"
        group = GROUP.match(said)
        if group is None:
            text += f"\n```text\n{said}```\n"
            continue
        for inner in group[1].split(","):
            text += f"\n### quorum {name} {inner}\n\n```text\n{_help_of(name, inner)}```\n"
    return text


def _help_of(*words: str) -> str:
    said = io.StringIO()
    plain = patch.dict(os.environ, COLUMNS="78", NO_COLOR="1")
    with plain, contextlib.redirect_stdout(said), contextlib.suppress(SystemExit):
        command_of([*words, "--help"])
    return said.getvalue()
