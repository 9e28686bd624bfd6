"""A hook of mkdocs: the page of all commands, made of what `--help-all` says."""

import os
from typing import Final
from unittest.mock import patch

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from quorum_rl.cli import help as texts
from quorum_rl.cli.main import COMMANDS, load

HEAD: Final = """# Commands

What `--help-all` says, command by command, in the order of the flow.
"""


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the page."""
    files.append(File.generated(config, "commands.md", content=page()))
    return files


def page() -> str:
    """Every command under its name."""
    text = HEAD
    for name, (what, inner) in COMMANDS.items():
        text += f"\n## quorum {name}\n{what}\n"
        for path in [[name, word] for word in inner] or [[name]]:
            with patch.dict(os.environ, COLUMNS="78"):
                called, table = f"quorum {' '.join(path)}", ".".join(path)
                said = texts.page(load(path), called, everything=True, table=table)
            heading = f"\n### {called}\n" if inner else ""
            text += f"{heading}\n```text\n{said}```\n"
    return text
