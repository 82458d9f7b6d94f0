"""States whose files are broken: every command says what is wrong, gives no answer and writes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

REQUEST = {
    "subject": {"type": "user", "id": "ann"},
    "action": {"name": "read"},
    "resource": {"type": "item", "id": "s/a/x"},
}
OWNERS = "entity,owner\nitem:s/a/y,user:zoë\nitem:s/a/z,user:ann\n"


def half_written_parquet(file: Path) -> None:
    pyarrow.parquet.write_table(pyarrow.table({"entity": ["item:s/a/y"], "owner": ["user:ann"]}), file)
    file.write_bytes(file.read_bytes()[:-20])


BROKEN: dict[str, tuple[str, Callable[[Path], object], str]] = {
    "Parquet, half written": ("owners.parquet", half_written_parquet, "S001"),
    "CSV, another encoding": ("owners.csv", lambda file: file.write_bytes(OWNERS.encode("latin-1")), "S001"),
    "CSV, UTF-16": ("owners.csv", lambda file: file.write_bytes(OWNERS.encode("utf-16")), "S001"),
    "CSV, half written": ("owners.csv", lambda file: file.write_text(OWNERS + 'item:s/b/y,"user:b'), "S002"),
    "CSV, half a row": ("owners.csv", lambda file: file.write_text(OWNERS + "item:s/b"), "S107"),
    "CSV, a column missing": ("owners.csv", lambda file: file.write_text("entity\nitem:s/a/y\n"), "S102"),
    "CSV, a column doubled": ("owners.csv", lambda file: file.write_text("entity,owner,owner\na,b,c\n"), "S106"),
    "JSON, half written": ("owners.json", lambda file: file.write_text('[{"entity": "item:s/a/y", "own'), "S002"),
}


@pytest.mark.parametrize("denials", [True, False], ids=["with denials", "without denials"])
@pytest.mark.parametrize(("name", "write", "code"), BROKEN.values(), ids=BROKEN)
def test_a_broken_file_of_a_state_stops_answers_and_bundles(
    privtab: Callable[..., Any],
    policy: Path,
    tmp_path: Path,
    name: str,
    write: Callable[[Path], object],
    code: str,
    *,
    denials: bool,
) -> None:
    if not denials:
        policy.write_text(policy.read_text(encoding="utf-8").replace("deny: overrides, ", ""), encoding="utf-8")
    state, requests, packed = tmp_path / "state", tmp_path / "asked.jsonl", tmp_path / "state.tar.gz"
    state.mkdir()
    write(state / name)
    requests.write_text(json.dumps(REQUEST) + "\n", encoding="utf-8")
    for command in (("decide", "-s", state, "-r", requests), ("state", "pack", state, "-o", packed)):
        ran = privtab(*command, "-p", policy)
        assert (ran.code, ran.out) == (1, ""), command
        assert f"{state / name}" in ran.err
        assert f"error[{code} " in ran.err
    assert not packed.exists()


@pytest.mark.parametrize("goes", [True, False], ids=["a part goes away", "whole"])
def test_a_part_of_a_table_that_goes_away_is_missed(
    privtab: Callable[..., Any], policy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, goes: bool
) -> None:
    state = tmp_path / "state"
    (state / "owners.parquet").mkdir(parents=True)
    for part in ("part-0", "part-1"):
        pyarrow.parquet.write_table(
            pyarrow.table({"entity": [f"item:s/a/{part}"], "owner": ["user:ann"]}),
            state / "owners.parquet" / f"{part}.parquet",
        )
    from privtab.state import read_parquet

    listed = read_parquet._File.__init__

    def then_removed(self: Any, file: Path) -> None:
        listed(self, file)
        (file / "part-1.parquet").unlink()

    if goes:
        monkeypatch.setattr(read_parquet._File, "__init__", then_removed)
    ran = privtab("state", "pack", state, "-p", policy, "-o", tmp_path / "state.tar.gz")
    if not goes:
        assert ran.code == 0, ran.err
        assert "2 owners" in ran.out
        return
    assert (ran.code, ran.out) == (1, ""), ran.err
    assert "error[S001 " in ran.err
    assert not (tmp_path / "state.tar.gz").exists()
