"""Configuration files of a state's sources: one reading each, or an error that names the place and shows no secret."""

from __future__ import annotations

from pathlib import Path

import pytest

from privtab.base import FileError, UsageError
from privtab_spark.state.configuration import read_configuration

GRANTS = "tables:\n  grants: {path: grants.csv}\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (GRANTS + "  grants: {path: other.csv}\n", ":3:3: error[P005 duplicate-key]: duplicate key `grants`"),
        (GRANTS + "tables: {}\n", "duplicate key `tables`"),
        ("tables:\n  grants: {path: a, path: b}\n", "duplicate key `path`"),
        ("base: &base {path: a}\ntables: {grants: *base}\n", "P004 yaml-feature"),
        ("tables: !!python/object/apply:os.system [id]\n", "tag `!!python/object/apply:os.system`"),
        ("tables: {}\n---\ntables: {}\n", "a second document"),
        ("tables: [" + "[" * 200 + "\n", "nesting as deep as this"),
        ("", "the file is empty"),
        ("tables\n", "must be a mapping"),
    ],
)
def test_ambiguous_and_invalid_yaml_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "sources.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UsageError) as error:
        read_configuration(path)
    assert message in str(error.value)


def test_lines_with_passwords_are_not_shown(tmp_path: Path) -> None:
    path = tmp_path / "sources.yaml"
    path.write_text("tables:\n  grants: {password: pa55word, password: pa55word}\n", encoding="utf-8")
    with pytest.raises(UsageError) as error:
        read_configuration(path)
    assert "duplicate key `password`" in str(error.value)
    assert "pa55word" not in str(error.value)


def test_bytes_that_are_not_utf_8_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "sources.yaml"
    path.write_bytes(b"tables: {grants: {path: \xff}}\n")
    with pytest.raises(UsageError, match="P001"):
        read_configuration(path)


def test_a_file_that_is_missing_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="cannot read"):
        read_configuration(tmp_path / "sources.yaml")


def test_words_stay_words_and_values_keep_their_kind(tmp_path: Path) -> None:
    path = tmp_path / "sources.yaml"
    path.write_text("tables: {grants: {options: {a: no, b: true, c: 2024-01-01, d: 3, e: }}}\n", encoding="utf-8")
    options = read_configuration(path)["tables"]["grants"]["options"]
    assert options == {"a": "no", "b": True, "c": "2024-01-01", "d": 3, "e": None}
