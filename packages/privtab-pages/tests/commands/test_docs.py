from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any


def test_a_committed_page_is_checked(privtab: Callable[..., Any], tmp_path: Path) -> None:
    policy, page = tmp_path / "shop.yaml", tmp_path / "shop.md"
    text = "privtab: 1\nsystem: shop\nversion: '1'\nentities: {shop: }\nprivileges: {READ: {on: [shop]}}\n"
    policy.write_text(f"{text}tables: {{shop: {{see: READ (shop)}}}}\n", encoding="utf-8")
    command = ("docs", policy, "-o", page)
    missing = privtab(*command, "--check")
    assert (missing.code, page.exists()) == (1, False)
    assert "is not there" in missing.err
    assert privtab(*command).code == 0
    before = page.read_bytes()
    assert privtab(*command, "--check").code == 0
    policy.write_text(f"{text}tables: {{shop: {{see: anyone}}}}\n", encoding="utf-8")
    stale = privtab(*command, "--check")
    assert (stale.code, page.read_bytes()) == (1, before)
    assert "is not what" in stale.err
    assert privtab("docs", policy, "--check").code == 2


def test_coverage_and_changes_stand_on_the_page(privtab: Callable[..., Any], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    assert privtab("docs", "cdap/final", "--since", "cdap/revised", "-o", page).code == 0
    html = page.read_text(encoding="utf-8")
    assert re.search(r"Scenarios prove <strong>\d+</strong> of \d+ cells", html)
    assert all(f'id="{name}"' in html for name in ("changes", "readings", "type.namespace"))
    markdown = privtab("docs", "cdap/final", "--since", "cdap/revised")
    assert markdown.code == 0
    assert "## Changes" in markdown.out


def test_a_page_is_markdown_or_html(privtab: Callable[..., Any], tmp_path: Path) -> None:
    ran = privtab("docs", "cdap/final", "-o", str(tmp_path / "page.pdf"))
    assert (ran.code, list(tmp_path.iterdir())) == (2, [])
    assert "name it .md or .html instead of .pdf" in ran.err
    assert privtab("docs", "cdap/final", "--format", "html", "-o", str(tmp_path / "page.pdf")).code == 0
