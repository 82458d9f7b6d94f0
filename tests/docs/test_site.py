"""The documentation as a site: every page is in it, every link leads somewhere, and nothing is fetched."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import ROOT


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1", "http_proxy": "", "https_proxy": "http://127.0.0.1:1"}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    return folder


@pytest.mark.slow
def test_every_page_is_there_and_nothing_is_fetched(site: Path) -> None:
    pages = {path.relative_to(site).with_suffix("").as_posix() for path in site.rglob("*.html")}
    written = {path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in (ROOT / "docs").rglob("*.md")}
    renamed = {name.removesuffix("README") + "index" if name.endswith("README") else name for name in written}
    assert renamed <= pages
    for path in site.rglob("*.html"):
        text = path.read_text(encoding="utf-8")
        assert not re.findall(r'<(?:script|img|iframe)[^>]*src="?(https?:[^"> ]+)', text), path
        assert not re.findall(r'<link[^>]*rel="?stylesheet"?[^>]*href="?(https?:[^"> ]+)', text), path


@pytest.mark.slow
def test_tables_have_rows() -> None:
    broken = []
    for path in (ROOT / "docs").rglob("*.md"):
        text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        broken += [(path.name, found[0]) for found in re.finditer(r"^.*\n\|(?:-+\|)+\n(?!\|)", text, re.MULTILINE)]
    assert broken == []


@pytest.mark.slow
def test_what_is_made_for_the_site_is_there(site: Path) -> None:
    api = (site / "reference" / "api.html").read_text(encoding="utf-8")
    assert all(
        name in api for name in ("sync.Client.check_many", "aio.AsyncClient.visible", "AccessDenied", "deciding.decide")
    )
    rules = (site / "rules" / "index.html").read_text(encoding="utf-8")
    for page in (ROOT / "docs" / "rules").glob("P*.md"):
        assert f'href="{page.stem}.html"' in rules, page
    assert '<svg class="plot"' in (site / "internals" / "benchmarks.html").read_text(encoding="utf-8")
    assert (site / "search" / "search_index.json").stat().st_size > 100_000
