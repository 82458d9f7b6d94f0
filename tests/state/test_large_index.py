from __future__ import annotations

import generated_programs
import pytest
import worlds
from seeds import seeds

from privtab.ir.nodes import Program
from privtab.state import large_index, raw
from privtab.state.index import index_bytes, index_document, without_revision
from privtab.state.load import from_tables, validate
from privtab.state.nodes import State

SEEDS = range(16)
ODD = {"ann": 'a"n\\n', "ben": "bén", "hr": "h\U0001f600r", "root": "ro/ot"}
"""Names that JSON escapes, in one spelling or in both."""


def columns(program: Program, tables: dict[str, list[dict[str, str]]]) -> tuple[State, State]:
    """A state as rows and as columns."""
    found = []
    for least in (10**9, 0):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(raw, "LARGE", least)
            found.append(validate(program, from_tables(tables, "state.json"))[0])
    assert not found[0].coded
    assert found[1].coded
    return found[0], found[1]


def renamed(tables: dict[str, list[dict[str, str]]]) -> dict[str, list[dict[str, str]]]:
    """The rows with odd names in place of plain ones."""

    def mend(text: str) -> str:
        kind, colon, name = text.rpartition(":")
        return kind + colon + ODD.get(name, name) if "/" not in name else text

    return {t: [{c: mend(v) for c, v in row.items()} for row in rows] for t, rows in tables.items()}


@pytest.mark.parametrize("features", [(), worlds.FEATURES], ids=["plain", "features"])
@pytest.mark.parametrize("seed", seeds(SEEDS, quick=4))
def test_columns_give_the_index_that_rows_give(
    seed: int, features: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    if seed % 2:
        monkeypatch.setattr(large_index, "MAX_BLOCK_ROWS", 3)
    program = generated_programs.program(seed, *features)
    tables = worlds.state(program, seed).to_tables()
    for named in (tables, renamed(tables)):
        if not any(named.values()):
            continue
        rows, large = columns(program, named)
        assert index_bytes(program, large) == index_bytes(program, rows)
        assert index_document(program, large) == index_document(program, rows)
        assert without_revision(program, large) == without_revision(program, rows)


def test_the_worlds_have_what_an_index_can_hold() -> None:
    documents = [
        without_revision(program, worlds.state(program, seed))
        for seed, program in ((seed, generated_programs.program(seed)) for seed in SEEDS)
    ]
    assert all(any(document[part] for document in documents) for part in documents[0])
    assert any("scoped:" in principal for document in documents for principal in document["within"])


def test_numbers_too_large_for_one_integer_are_sorted_as_well() -> None:
    import numpy as np

    rows = [np.array(column, np.int64) for column in ((1, 0, 1, 0), (5, 7, 5, 6), (2, 3, 2, 3))]
    for sizes in ((2, 8, 4), (1 << 30, 1 << 30, 1 << 30)):
        found = large_index._distinct(rows, sizes)
        assert [tuple(int(n) for n in row) for row in zip(*found, strict=True)] == [(0, 6, 3), (0, 7, 3), (1, 5, 2)]
