"""What the page about scenarios shows is what happens: every block is read, and every key and code has its place."""

from __future__ import annotations

import re

import pytest
from checkout import ROOT

from privtab.base import Diagnostic, SourceFile
from privtab.language import compose_yaml
from privtab_testing.scenarios import CODES, cases, needs
from privtab_testing.scenarios.collect import KEYS
from privtab_testing.scenarios.mutants import CHANGES
from privtab_testing.scenarios.tree import ScenarioReader

PAGE = (ROOT / "docs" / "reference" / "testing.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```yaml\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
ENTRIES = {"cases": cases.KEYS, "needs": needs.KEYS, "suites": cases.SUITE_KEYS, "walkthroughs": cases.WALKTHROUGH_KEYS}


@pytest.mark.parametrize("block", BLOCKS, ids=lambda block: block.split(":")[0])
def test_every_example_has_keys_that_there_are(block: str) -> None:
    found: list[Diagnostic] = []
    source = SourceFile.of("block.yaml", block)
    root = compose_yaml(source, found)
    assert root is not None, found
    reader = ScenarioReader(source, found)
    fields = reader.fields(root, "a file", KEYS) or {}
    for key, keys in ENTRIES.items():
        for entry in reader.items(fields[key], key) if key in fields else ():
            inner = reader.fields(entry, key, keys) or {}
            for step in reader.items(inner["steps"], "steps") if "steps" in inner else ():
                reader.fields(step, "a step", cases.STEP_KEYS)
    assert [f"{d.span.line}: {d.message}" for d in found] == []


@pytest.mark.parametrize("key", sorted({*KEYS, *(key for keys in ENTRIES.values() for key in keys), *cases.STEP_KEYS}))
def test_every_key_is_on_the_page(key: str) -> None:
    assert re.search(rf"`{key}`|\b{key}:", PAGE), key


@pytest.mark.parametrize("code", CODES)
def test_every_code_is_on_the_page(code: str) -> None:
    assert f"| {code} | {CODES[code]} |" in PAGE


@pytest.mark.parametrize("change", CHANGES.values())
def test_every_change_is_on_the_page(change: str) -> None:
    assert change in PAGE
