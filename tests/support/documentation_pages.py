"""Split pages of the documentation into blocks that can be tested.

An HTML comment before a block, which is invisible on the page, says what the block is:

    <!-- file: lake.yaml -->            save the block as this file; a policy or a file of requests
    <!-- on: head.yaml -->              a fragment: its sections replace those of that policy (default: head.yaml)
    <!-- state: s.yaml for p.yaml -->   a state of that policy
    <!-- findings: P203 -->             the policy has this error
    <!-- rego: p.yaml -->               an excerpt of the Rego that the policy compiles to
    <!-- served: p.yaml s.yaml -->      Python, or an HTTP call, that is run with an OPA for that policy and state
    <!-- run: p.yaml s.yaml -->        Python that is run in the folder of these files
    <!-- answers: p.yaml s.yaml -->     a table: `user action type:path`, yes or no or invalid, and why (or `effects:`)
    <!-- sketch -->                     not tested
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from checkout import ROOT

PAGES = (
    "README.md",
    "docs/tutorial/tour.md",
    "docs/reference/language.md",
    *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "reference" / "language").glob("*.md")),
    "docs/reference/one-page.md",
    "docs/reference/state.md",
    "docs/reference/importing.md",
    "docs/how-to/shards.md",
    "docs/how-to/tenants.md",
    "docs/reference/asking.md",
    "docs/how-to/integrations.md",
    "docs/how-to/routes.md",
    "docs/how-to/observability.md",
    "docs/how-to/securing.md",
    "docs/how-to/embedded.md",
    "docs/how-to/filters.md",
    "docs/how-to/questions.md",
    "docs/how-to/linting.md",
    "docs/reference/diff.md",
    "docs/reference/state-diff.md",
    "docs/reference/store.md",
    "docs/reference/push.md",
)
HEAD = "head.yaml"

_BLOCK = re.compile(
    r"(?:<!-- (?P<says>[^\n]*?) -->\n+)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE
)
_TABLE = re.compile(r"<!-- answers: (?P<files>[^\n]*?) -->\n+(?P<rows>(?:\|[^\n]*\n)+)")
_SECTION = re.compile(r"^(?=[a-z_]+:)", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block, its line, and the directives in the comment before it."""

    line: int
    language: str
    text: str
    says: dict[str, list[str]]

    @property
    def is_policy(self) -> bool:
        """Whether it is a policy, or sections of one: not a state, scenarios, an import, a mapping document or a file of routes."""
        return (
            self.language == "yaml"
            and not {"state", "sketch"} & self.says.keys()
            and not self.text.startswith(("scenarios:", "import:", "push:", "routes:"))
        )

    def names(self, directive: str) -> list[str]:
        return [word for word in self.says.get(directive, []) if word != "for"]


@dataclass(frozen=True)
class Answers:
    """A table of answers: its line, the names of its policy and its state, and the cells of its rows."""

    line: int
    policy: str
    state: str
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Page:
    """A page: its blocks and its tables of answers, in order."""

    path: str
    blocks: tuple[Block, ...]
    answers: tuple[Answers, ...]

    def write(self, folder: Path) -> None:
        """Write the files that the blocks define."""
        for block in self.blocks:
            for name in block.names("file"):
                text = whole_policy(block, folder) if block.is_policy else block.text
                (folder / name).write_text(text, encoding="utf-8")
            for name in block.names("state")[:1]:
                (folder / name).write_text(block.text, encoding="utf-8")


def whole_policy(block: Block, folder: Path) -> str:
    """The policy of a YAML block, completed with sections of its base if it is a fragment."""
    if re.search(r"^privtab: 1$", block.text, re.MULTILINE):
        return block.text
    (base,) = block.names("on") or [HEAD]
    sections = _sections(block.text)
    return "".join((_sections((folder / base).read_text(encoding="utf-8")) | sections).values())


@cache
def read(path: str) -> Page:
    """Read a page of the checkout."""
    text = (ROOT / path).read_text(encoding="utf-8")

    def line(offset: int) -> int:
        return text.count("\n", 0, offset) + 1

    blocks = [
        Block(line(found.start("text")), found["language"], found["text"], _says(found["says"] or ""))
        for found in _BLOCK.finditer(text)
    ]
    answers: list[Answers] = []
    for found in _TABLE.finditer(text):
        policy, state = found["files"].split()
        rows = tuple(_cells(row) for row in found["rows"].strip().splitlines()[2:])
        answers.append(Answers(line(found.start("rows")), policy, state, rows))
    return Page(path, tuple(blocks), tuple(answers))


def _says(text: str) -> dict[str, list[str]]:
    parts = (part.partition(":") for part in text.split(";") if part.strip())
    return {name.strip(): words.split() for name, _, words in parts}


def _sections(text: str) -> dict[str, str]:
    """The top-level sections of a YAML text by key, without comments above the first one."""
    return {
        part.partition(":")[0]: part.rstrip("\n") + "\n" for part in _SECTION.split(text) if ":" in part.split("\n")[0]
    }


def _cells(row: str) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in row.strip().strip("|").split("|"))
