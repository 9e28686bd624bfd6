"""A hook of hatchling: the package's page is README.md, whose links lead into the repository."""

import re
from pathlib import Path
from typing import Any, Final

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK: Final = re.compile(r"(!?)(\[[^\]]*\]\()(?![a-z]+:|#)([^)\s]+)")
VERSION: Final = re.compile(r'^__version__ = "(.+)"$', re.MULTILINE)


class CustomMetadataHook(MetadataHookInterface):
    """Sets `readme`, which pyproject.toml calls dynamic."""

    def update(self, metadata: dict[str, Any]) -> None:
        root = Path(self.root)
        found = VERSION.search((root / "src" / "quorum_rl" / "__init__.py").read_text("utf-8"))
        assert found is not None
        text = (root / "README.md").read_text("utf-8")
        page = absolute(text, metadata["urls"]["Repository"], f"v{found[1]}")
        metadata["readme"] = {"content-type": "text/markdown", "text": page}


def absolute(text: str, repository: str, tag: str) -> str:
    """Markdown whose relative links and pictures lead into the repository, at this tag."""

    def led(link: re.Match[str]) -> str:
        kind = "raw" if link[1] else "blob"
        return f"{link[1]}{link[2]}{repository}/{kind}/{tag}/{link[3]}"

    return LINK.sub(led, text)
