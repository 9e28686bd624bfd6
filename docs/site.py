"""A hook of mkdocs: pages are written for a repository's reader, and mended here for the site.

- Pages link to `../examples/own_world.py` as a repository shows it. On the site that file is a page
  too, and the link goes there, so that the site can be read without the repository.
- Notebooks, kept as text, are pages of their cells.
- A list may follow its sentence at once, as in CommonMark; Python-Markdown wants a blank line.
- p_min, e^ε and π_{k+1} get real subscripts and superscripts.
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
    "CODE_OF_CONDUCT.md": "conduct",
    "CONTRIBUTING.md": "contributing",
    "SECURITY.md": "security",
}
LINK: Final = re.compile(r"(\]\()(\.\./)([^)#\s]+)")
LINK_INTO_DOCS: Final = re.compile(r"(\]\()(?:\.\./)?docs/")
LINK_TO_EXAMPLE: Final = re.compile(r"(\]\()(examples/[^)#\s]+)")
ITEM: Final = re.compile(r"(?:- |1\. )")
KEPT: Final = re.compile(r"(`+[^`]+`+|\]\([^)]*\)|^#.*)")  # code, addresses and headings
RAISED: Final = re.compile(r"\^(\{|−?\w+)")
LOWERED: Final = re.compile(
    r"(?:(?:(?<![A-Za-z_])[^\W\d_]|[α-ω])\u0302?'?|Pr|max|mean|sup)"
    r"_(\{|(?:min|max|Π'|[^\W_](?:,[^\W_])?)(?![^\W_]))"
)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds the pages made of files outside docs/."""
    examples = sorted((ROOT / "examples").rglob("*.py"))
    for source in [*(ROOT / name for name in NAMES), *examples]:
        path = source.relative_to(ROOT).as_posix()
        files.append(File.generated(config, _page_of(path), content=_text_of(source)))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Points links that leave docs/ at the pages made here."""
    if page.file.src_uri.startswith("repository/"):
        linked = LINK_INTO_DOCS.sub(r"\1../", markdown)
        linked = LINK_TO_EXAMPLE.sub(lambda found: f"{found[1]}../{_page_of(found[2])}", linked)
    else:
        linked = LINK.sub(lambda found: found[1] + _page_of(found[3]), markdown)
    return mended(linked)


def mended(markdown: str) -> str:
    """A page with its lists apart from their sentences and its formulas set, code left alone."""
    lines: list[str] = []
    fenced = in_list = False
    for line in markdown.splitlines():
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif not fenced:
            if not line.strip():
                in_list = False
            elif ITEM.match(line) and not in_list:
                in_list = True
                if lines and lines[-1].strip():
                    lines.append("")
            parts = KEPT.split(line)
            parts[::2] = [with_scripts(part) for part in parts[::2]]
            line = "".join(parts)
        lines.append(line)
    return "\n".join(lines) + "\n"


def with_scripts(text: str) -> str:
    """A text whose formulas have HTML's subscripts and superscripts."""
    made, rest = "", text
    while found := min(
        filter(None, (RAISED.search(rest), LOWERED.search(rest))),
        key=lambda one: one.start(1),
        default=None,
    ):
        tag = "sup" if rest[found.start(1) - 1] == "^" else "sub"
        inner, end = found[1], found.end(1)
        if inner == "{":
            end = _closing(rest, end)
            inner = rest[found.end(1) : end - 1]
        made += f"{rest[: found.start(1) - 1]}<{tag}>{with_scripts(inner)}</{tag}>"
        rest = rest[end:]
    return made + rest


def _closing(text: str, start: int) -> int:
    """The place after the brace that closes the one before `start`."""
    depth = 1
    for place in range(start, len(text)):
        depth += {"{": 1, "}": -1}.get(text[place], 0)
        if not depth:
            return place + 1
    return len(text)


def _page_of(path: str) -> str:
    """Where the site shows a file of the repository."""
    return f"repository/{NAMES.get(path, PurePosixPath(path).stem)}.md"


def cells(notebook: str) -> list[tuple[str, str]]:
    """A notebook's cells (jupytext, percent format): "markdown" or "python", and the text."""
    found = []
    for cell in re.split(r"^# %%", notebook, flags=re.MULTILINE)[1:]:  # before the first: its head
        kind, _, text = cell.partition("\n")
        if kind.strip() == "[markdown]":
            found.append(("markdown", re.sub(r"^# ?", "", text.strip(), flags=re.MULTILINE)))
        else:
            found.append(("python", text.strip()))
    return found


def _text_of(source: Path) -> str:
    text = source.read_text(encoding="utf-8")
    if source.suffix == ".md":
        return text
    name = source.relative_to(ROOT).as_posix()
    if source.parent.name == "notebooks":
        shown = [
            said if kind == "markdown" else f"```python\n{said}\n```" for kind, said in cells(text)
        ]
        as_notebook = f"As a notebook: `jupytext --to ipynb {name}`"
        return "\n\n".join([*shown, as_notebook]) + "\n"
    return f"# {name}\n\n````python\n{text}````\n"
