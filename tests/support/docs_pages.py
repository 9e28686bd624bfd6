"""Pages of the docs whose tables a script makes from result files."""

from scripts import ROOT, script

PICTURES = "docs/pictures"


class Page:
    """The page of a script in docs/pictures, and what that script would make of it."""

    def __init__(self, name: str) -> None:
        self.script = script(PICTURES, name)
        self._rendering = script(PICTURES, "rendering")
        self.text = (ROOT / "docs" / self.script.PAGE).read_text(encoding="utf-8")

    def rendered(self, text: str) -> str:
        """`text` with the sections that the script makes."""
        made: str = self._rendering.rendered(text, self.script.SECTIONS)
        return made
