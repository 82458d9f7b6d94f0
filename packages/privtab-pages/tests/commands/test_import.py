from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


@pytest.mark.parametrize("suffix", ["md", "html"])
def test_a_page_gives_back_its_policy(privtab: Callable[..., Any], tmp_path: Path, suffix: str) -> None:
    page, policy = tmp_path / f"page.{suffix}", tmp_path / "policy.yaml"
    assert privtab("docs", "cdap/draft", "-o", page).code == 0
    assert privtab("import", page, "-o", policy).code == 0
    assert privtab("fmt", policy, "--check").code == 0
    assert privtab("diff", "cdap/draft", policy, "--fail-on", "any").code == 0


def test_nothing_is_written_where_a_cell_cannot_be_read(privtab: Callable[..., Any], tmp_path: Path) -> None:
    page, policy = tmp_path / "wiki.md", tmp_path / "policy.yaml"
    page.write_text(
        "Object | Action | Requires |\n---|---|---|\nShop | open | READ (Shop) |\nShop | shut | maybe |\n",
        encoding="utf-8",
    )
    refused = privtab("import", page, "-o", policy)
    assert (refused.code, policy.exists()) == (1, False)
    assert "wiki.md:4:15" in refused.err
    assert privtab("import", page, "-o", policy, "--allow-partial").code == 0
    assert "shut: {requires: nobody" in policy.read_text(encoding="utf-8")
    unknown = privtab("import", page, "--column", "need=Requires")
    assert (unknown.code, "`need` is no part of a row" in unknown.err) == (2, True)
    page.write_text("a | b |\n---|---|\n1 | 2 |\n", encoding="utf-8")
    assert "`a`, `b`" in privtab("import", page).err


def test_scenarios_that_somebody_wrote_are_not_overwritten(privtab: Callable[..., Any], tmp_path: Path) -> None:
    page, policy, beside = tmp_path / "wiki.md", tmp_path / "lake.yaml", tmp_path / "lake.scenarios.yaml"
    page.write_text("# Shop\n\n| Action | Requires |\n|---|---|\n| open | READ |\n", encoding="utf-8")
    beside.write_text("scenarios: 1\n", encoding="utf-8")
    refused = privtab("import", page, "-o", policy)
    assert (refused.code, policy.exists(), beside.read_text(encoding="utf-8")) == (2, False, "scenarios: 1\n")
    beside.unlink()
    assert privtab("import", page, "-o", policy).code == 0
    assert privtab("import", page, "-o", policy).code == 0
    assert privtab("test", policy).code == 0
