"""Formats of state files are told in one place, and what reads them agrees with it."""

from __future__ import annotations

from pathlib import Path

import pytest

from privtab.base.errors import UsageError
from privtab.base.files import ENDINGS, LOCAL_ENDINGS, WHOLE
from privtab.state.load import load_raw_state

GRANTS = {
    ".csv": "grantee,effect,privilege,entity\nuser:ann,allow,READ,lake:l\n",
    ".json": '[{"grantee": "user:ann", "effect": "allow", "privilege": "READ", "entity": "lake:l"}]',
    ".jsonl": '{"grantee": "user:ann", "effect": "allow", "privilege": "READ", "entity": "lake:l"}\n',
    ".ndjson": '{"grantee": "user:ann", "effect": "allow", "privilege": "READ", "entity": "lake:l"}\n',
    ".yaml": "[{grantee: 'user:ann', effect: allow, privilege: READ, entity: 'lake:l'}]",
    ".yml": "[{grantee: 'user:ann', effect: allow, privilege: READ, entity: 'lake:l'}]",
}


def test_every_file_ending_has_exactly_one_reader() -> None:
    assert len(set(ENDINGS)) == len(ENDINGS)
    assert set(WHOLE) <= set(LOCAL_ENDINGS)


@pytest.mark.parametrize("ending", [ending for ending in LOCAL_ENDINGS if ending != ".parquet"])
def test_a_folder_is_read_in_every_local_format(ending: str, tmp_path: Path) -> None:
    (tmp_path / f"grants{ending}").write_text(GRANTS[ending])
    [row] = load_raw_state(tmp_path).rows["grants"]
    assert row.cells["grantee"] == "user:ann"


@pytest.mark.parametrize("ending", sorted(set(ENDINGS) - set(LOCAL_ENDINGS)))
def test_formats_without_a_reader_are_no_tables_here(ending: str, tmp_path: Path) -> None:
    (tmp_path / f"grants{ending}").write_text("{}\n")
    with pytest.raises(UsageError, match=r"a table's file ends in \.csv, \.json, \.jsonl, \.ndjson, \.parquet, \.yaml"):
        load_raw_state(tmp_path)
