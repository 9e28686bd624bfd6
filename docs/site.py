"""A hook of mkdocs: files of the repository that the pages link to become pages of the site.

Pages link to `../examples/own_world.py` as a repository shows it. On the site that file is a page
too, and the link goes there, so that the site can be read without the repository.
"""

import re
from pathlib import Path, PurePosixPath
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).parent.parent
NAMES: Final = {
    "benchmarks/README.md": "benchmarks",
    "CHANGELOG.md": "changelog",
    "CONTRIBUTING.md": "contributing",
}
LINK: Final = re.compile(r"(\]\()(\.\./)([^)#\s]+)")
LINK_INTO_DOCS: Final = re.compile(r"(\]\()(?:\.\./)?docs/")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages made of files outside docs/."""
    examples = sorted((ROOT / "examples").glob("*.py"))
    for source in [*(ROOT / name for name in NAMES), *examples]:
        path = source.relative_to(ROOT).as_posix()
        files.append(File.generated(config, _page_of(path), content=_text_of(source)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Points links that leave docs/ at the pages made here."""
    if page.file.src_uri.startswith("repository/"):
        return LINK_INTO_DOCS.sub(r"\1../", markdown)
    return LINK.sub(lambda found: found[1] + _page_of(found[3]), markdown)


def _page_of(path: str) -> str:
    """Where the site shows a file of the repository."""
    return f"repository/{NAMES.get(path, PurePosixPath(path).stem)}.md"


def _text_of(source: Path) -> str:
    text = source.read_text(encoding="utf-8")
    if source.suffix == ".md":
        return text
    name = source.relative_to(ROOT).as_posix()
    return f"# {name}\n\n````python\n{text}````\n"
