"""Pages of the docs whose tables a script makes from result files."""

import importlib
import sys
from pathlib import Path
from unittest.mock import patch

DOCS = Path(__file__).parents[2] / "docs"


class Page:
    """The page of a script in docs/pictures, and what that script would make of it."""

    def __init__(self, script: str) -> None:
        with patch.object(sys, "path", [str(DOCS / "pictures"), *sys.path]):
            self.script = importlib.import_module(script)
            self._rendering = importlib.import_module("rendering")
        self.text = (DOCS / self.script.PAGE).read_text(encoding="utf-8")

    def rendered(self, text: str) -> str:
        """`text` with the sections that the script makes."""
        made: str = self._rendering.rendered(text, self.script.SECTIONS)
        return made
