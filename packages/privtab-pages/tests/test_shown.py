"""A page becomes a policy, and the policy a page with the same matrix: each mark comes back, and an edited one is found."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from seeds import seeds

from privtab.base import SourceFile
from privtab.ir import Program
from privtab.pipeline import load_program
from privtab_pages.against import differences
from privtab_pages.imported import TableReader
from privtab_pages.own_pages import MATRIX
from privtab_pages.page_files import page_of
from privtab_pages.policy import PolicyPage
from privtab_pages.roles import DENIED, default_roles
from privtab_pages.tables import Page

ACTIONS = (
    "Open",
    "open all",
    "Create/edit",
    "2. Close",
    "List (all)",
    "Pull image",
    "Grant",
    "set owner",
    r"Re-open \| now",
)
ROLES = ("Guest", "Limited guest", "Project Admin", "auditor", "Owner", "read-only user")
TYPES = ("Shelf", "Box", "Order line")
Run = Callable[..., Any]


def made(seed: int) -> str:
    """A page of a matrix, or of two of which one has a column of entities."""
    random = Random(seed)
    lines: list[str] = []
    for heading, types in (("Shop", [""]), ("Store", random.sample(TYPES, 2)))[: random.randint(1, 2)]:
        roles = random.sample(ROLES, random.randint(2, 4))
        entity = "Entity | " if types[0] else ""
        lines += [f"# {heading} permissions", "", f"| {entity}Action | {' | '.join(roles)} |"]
        lines += [f"|{'---|' * lines[-1].count(' | ')}---|"]
        for type_ in types:
            for number, action in enumerate(random.sample(ACTIONS, random.randint(2, 6))):
                marks = " | ".join(random.choice("✓-") if number else "✓" for _ in roles)
                lines.append(f"| {entity and f'{type_} | '}{action} | {marks} |")
        lines.append("")
    return "\n".join(lines)


def read(page: Page) -> tuple[TableReader, Program]:
    reader = TableReader(system="shop", version="1", document="page.md")
    policy = reader.read(page.tables, page.lines)
    assert policy is not None
    return reader, load_program(SourceFile.of("policy.yaml", policy))


def shown(program: Program, suffix: str) -> Page:
    """The matrix of the page of a policy as a page."""
    own = PolicyPage(program=program, revision="", roles=[default_roles(program)])
    page = page_of(SourceFile.of(f"page{suffix}", own.markdown() if suffix == ".md" else own.html()))
    tables = tuple(table for table in page.tables if MATRIX in table.headings)
    return replace(page, tables=tables, lines=())


@pytest.mark.parametrize("suffix", [".md", ".html"])
@pytest.mark.parametrize("seed", seeds(range(60), quick=8))
def test_the_matrix_of_a_page_comes_back(seed: int, suffix: str) -> None:
    reader, program = read(page_of(SourceFile.of("page.md", made(seed))))
    assert reader.found == []
    again, changed = read(shown(program, suffix))
    assert again.found == []
    assert list(differences(again.draft, changed, program, again.spans)) == []
    marks = [
        {(mark.type, mark.operation, mark.role, mark.allowed) for mark in draft.marks}
        for draft in (reader.draft, again.draft)
    ]
    assert marks[0] == marks[1]


@pytest.mark.parametrize("suffix", ["md", "html"])
def test_an_edited_matrix_is_refused(privtab: Run, tmp_path: Path, suffix: str) -> None:
    page, policy, own = tmp_path / "shop.md", tmp_path / "shop.yaml", tmp_path / f"own.{suffix}"
    page.write_text(made(1), encoding="utf-8")
    assert privtab("import", page, "-o", policy).code == 0
    assert privtab("docs", policy, "-o", own).code == 0
    assert privtab("import", own, "--against", policy).code == 0
    text = own.read_text(encoding="utf-8")
    title = next(role for role in ROLES if role in text)
    mark = ">✓<" if suffix == "html" else "| ✓ |"
    row = next(line for line in text.splitlines() if mark in line and DENIED not in line[:20])
    for old, new in (
        (row, row.replace(mark, mark.replace("✓", DENIED), 1)),
        (row, ""),
        (row, f"{row}\n{row}"),
        (title, f"{title}s"),
    ):
        own.write_text(text.replace(old, new, 1), encoding="utf-8")
        refused = privtab("import", own, "-o", tmp_path / "again.yaml")
        assert (refused.code, "T103 edited-page" in refused.err) == (1, True), new
        assert not (tmp_path / "again.yaml").exists()


@pytest.mark.parametrize("suffix", ["md", "html"])
def test_a_page_is_compared_with_another_policy(privtab: Run, tmp_path: Path, suffix: str) -> None:
    page, policy, own = tmp_path / "shop.md", tmp_path / "shop.yaml", tmp_path / f"own.{suffix}"
    page.write_text("# Shop\n\n| Action | Guest | Admin |\n|---|---|---|\n| open | ✓ | ✓ |\n| shut | - | ✓ |\n")
    assert privtab("import", page, "-o", policy).code == 0
    assert privtab("docs", policy, "-o", own).code == 0
    policy.write_text(policy.read_text(encoding="utf-8").replace("shop: [OPEN]", "shop: [OPEN, SHUT]"))
    differs = privtab("import", own, "--against", policy)
    assert (differs.code, differs.out) == (1, "")
    assert f"the page says `{DENIED}`, the policy `✓`" in differs.err
