"""What the site has beside the pages of this folder: pages from elsewhere in the repository, the catalogue of rules, plots."""

# ruff: noqa: INP001  MkDocs loads this file by its path.

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from html import escape
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
FROM_ELSEWHERE = {
    "index.md": ROOT / "README.md",
    "documentation.md": DOCS / "README.md",
    "opa.md": ROOT / "opa" / "README.md",
    "output.md": ROOT / "build" / "README.md",
    "changelog.md": ROOT / "CHANGELOG.md",
}
"""Pages of the site, and the files that they are made from."""
API = ("Client", "AsyncClient", "Embedded", "connect", "Mode", "Request", "Entity", "Decision", "PrivtabError")
WHERE = {
    "Client": "privtab.client.sync.Client",
    "AsyncClient": "privtab.client.aio.AsyncClient",
    "Embedded": "privtab.client.embedded.Embedded",
    "connect": "privtab.client.connect",
    "Mode": "privtab.client.Mode",
    "PrivtabError": "privtab.base.errors",
}
NEXT = """\
[A service in fifteen minutes](docs/tutorial/first-service.md){ .md-button .md-button--primary style="margin:.2rem 0" }
[A tour](docs/tutorial/tour.md){ .md-button style="margin:.2rem 0" }
[A table on one page](docs/reference/one-page.md){ .md-button style="margin:.2rem 0" }"""
"""Where the start page leads, as links from the README."""
BAR, WIDTH = 22, 360
"""Of a plot: the height of a bar and the width of the longest, in pixels."""
_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\((?!\w+:)([^)#\s]*)(#[^)\s]*)?\)")
_FENCE = re.compile(r"^(```.*?^```)$", re.DOTALL | re.MULTILINE)
_PLOT = re.compile(r"^\*\*(?P<unit>(?:Decisions|Rows decided) a second.*?)\*\*\n\n(?P<table>(?:\|.*\n)+)", re.MULTILINE)


def on_files(files: Files, config: Any) -> Files:
    """Add the pages from elsewhere and the one of the Python API."""
    if (index := files.get_file_from_path("README.md")) is not None:
        files.remove(index)
    for uri, source in FROM_ELSEWHERE.items():
        files.append(File.generated(config, uri, content=source.read_text(encoding="utf-8")))
    # Clients make their methods when they are loaded, so that only loaded ones can be documented.
    loaded = "\n    options: {force_inspection: true}"
    names = "\n\n".join(
        f"::: {WHERE.get(name, f'privtab.base.request.{name}')}{loaded if 'Client' in name else ''}" for name in API
    )
    spark = "\n\n".join(f"::: privtab_spark.{name}" for name in ("deciding", "functions"))
    text = f"# Python\n\nWhat `import privtab` and `import privtab_spark` give, from their docstrings.\n\n{names}\n\n{spark}\n"
    files.append(File.generated(config, "reference/api.md", content=text))
    return files


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """Point links at the site, and add what is made for it."""
    uri = page.file.src_uri
    source = FROM_ELSEWHERE.get(uri, DOCS / uri)
    if uri == "index.md":
        markdown = markdown.replace("\n## ", f"\n{NEXT}\n\n## ", 1)
    if uri == "rules/README.md":
        markdown += catalogue()
    if uri == "internals/benchmarks.md":
        markdown = _PLOT.sub(lambda found: found[0] + "\n" + plot(found["table"], found["unit"]), markdown)
    parts = _FENCE.split(markdown)
    return "".join(
        part if part.startswith("```") else _LINK.sub(lambda link: _linked(link, source, uri), part) for part in parts
    )


def _linked(link: re.Match[str], source: Path, uri: str) -> str:
    """A link to a page of the site; the text alone where the repository has no page."""
    image, text, target, anchor = link[1], link[2], link[3], link[4] or ""
    if not target:
        return link[0]
    file = (source.parent / target).resolve()
    pages = {path: page for page, path in FROM_ELSEWHERE.items()}
    if file in pages:
        found = pages[file]
    elif file.is_relative_to(DOCS) and file.suffix in (".md", ".png", ".svg"):
        found = file.relative_to(DOCS).as_posix()
    else:
        return text
    return f"{image}[{text}]({Path(os.path.relpath(found, Path(uri).parent)).as_posix()}{anchor})"


def catalogue() -> str:
    """The findings by subject: the modules that report them say what it is."""
    names = dict(path.stem.split("-", 1) for path in (DOCS / "rules").glob("P*.md"))
    subjects: dict[str, list[str]] = {}
    core = ROOT / "compiler" / "privtab"
    for path in sorted([*(core / "checks").rglob("*.py"), *(core / "language" / "findings").glob("*.py")]):
        text = path.read_text(encoding="utf-8")
        codes = dict.fromkeys(re.findall(r'^@(?:check\w*|finding)\(\s*"(P\d+)"', text, re.MULTILINE))
        pages = [(code, names[code]) for code in codes if code in names]
        if pages:
            subject = (ast.get_docstring(ast.parse(text)) or path.stem).splitlines()[0]
            lines = [f"- [{code} {name}]({code}-{name}.md): {_finds(f'{code}-{name}')}" for code, name in pages]
            subjects[min(pages)[0]] = [f"\n### {re.sub(r':? P[0-9].*', '', subject).rstrip('.')}\n", *lines]
    return (
        "\n".join(["\n\n## All rules, by subject\n", *(line for first in sorted(subjects) for line in subjects[first])])
        + "\n"
    )


def _finds(page: str) -> str:
    """The first sentence of what a rule finds."""
    text = (DOCS / "rules" / f"{page}.md").read_text(encoding="utf-8")
    found = re.search(r"^## What it finds\n+(.+?)(?:\.\s|\n\n)", text, re.MULTILINE | re.DOTALL)
    return " ".join(found[1].split()) if found else ""


def plot(table: str, unit: str) -> str:
    """The first column of numbers in a table as bars; `unit`: what they count."""
    rows = list(_numbers(table))
    if not rows:
        return ""
    longest = max(number for _, number, _ in rows)
    parts = []
    for at, (name, number, text) in enumerate(rows):
        width = max(2.0, WIDTH * number / longest)
        y = at * (BAR + 6)
        parts.append(
            f'<text x="300" y="{y + 15}" text-anchor="end">{escape(name)}</text>'
            f'<rect x="310" y="{y}" width="{width:.0f}" height="{BAR - 4}" rx="2" style="fill:var(--md-typeset-a-color)"/>'
            f'<text x="{316 + width:.0f}" y="{y + 15}">{escape(text)}</text>'
        )
    return (
        f'<div style="overflow-x:auto" tabindex="0"><svg class="plot" role="img" aria-label="{escape(unit)}" viewBox="0 0 780 {len(rows) * (BAR + 6)}" '
        f'style="font-size:13px;fill:currentColor;width:100%;min-width:620px;max-width:780px">{"".join(parts)}</svg></div>\n\n*{escape(unit)}*\n'
    )


def _numbers(table: str) -> Iterator[tuple[str, float, str]]:
    for line in table.splitlines()[2:]:
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        number = re.match(r"[\d,]+(?:\.\d+)?", cells[1]) if len(cells) > 1 else None
        if number:
            yield re.sub(r"[`*]", "", cells[0]), float(number[0].replace(",", "")), number[0]
