from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privtab.base import files
from privtab.base.errors import FileError
from privtab.base.source import SourceFile


def test_offsets_have_places() -> None:
    file = SourceFile.of("a.yaml", "ab\ncd\r\ne\rf")
    assert [file.position(at) for at in (0, 1, 3, 7, 9)] == [(1, 1), (1, 2), (2, 1), (3, 1), (4, 1)]


def test_spans_end_behind_the_last_character() -> None:
    span = SourceFile.of("a.yaml", "ab\ncd\n").span(3, 5)
    assert (span.path, span.line, span.column, span.end_line, span.end_column) == ("a.yaml", 2, 1, 2, 3)


def test_paths_below_the_working_directory_are_shown_relative(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "a.yaml").write_text("x")
    assert SourceFile.load(tmp_path / "p" / "a.yaml").path == "p/a.yaml"
    assert SourceFile.load("p/a.yaml").path == "p/a.yaml"
    assert SourceFile.load("p/a.yaml", display="shop/a").path == "shop/a"


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xef\xbb\xbfprivtab: 1\n")
    assert SourceFile.load(tmp_path / "a.yaml").text == "privtab: 1\n"


def test_bytes_that_are_not_utf_8_keep_their_place(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes("é: ".encode() + b"\xff\n")
    file = SourceFile.load(tmp_path / "a.yaml")
    assert file.undecodable == 3
    assert file.text[3] == "\ufffd"


MARKS = {
    "privtab: 1\n": True,
    "# of privtab: 1\nsystem: shop\nprivtab: 1": True,
    "\ufeffprivtab: 1\n": True,
    "'privtab' : 1\n": True,
    '{"privtab": 1}': True,
    '\n{ \n\n "privtab": 1}': True,
    '{"system": "shop", "privtab": 1}': True,
    "{system: shop}\n---\n{privtab: 1}\n": True,
    "a: {\nprivtab: 1}\n": True,
    "  privtab: 1\n": False,
    "a: {privtab: 1}\n": False,
    "system: privtab\n": False,
    "a\rprivtab: 1\n": False,
    '{"rows": {"privtab": 1}}': False,
    '{"system": "privtab: 1"}': False,
    "": False,
}


@pytest.mark.parametrize("text", MARKS)
def test_a_key_marks_a_file_at_the_start_of_a_line_or_of_its_document(text: str) -> None:
    assert SourceFile.of("a.yaml", text).has_mark("privtab") is MARKS[text]


@given(st.text(alphabet="{}'\": \n\r\t\ufeff\u2028x", max_size=6), st.text(alphabet="'\": \nx", max_size=3))
def test_a_mark_is_found_as_the_pattern_of_lines_finds_it(before: str, after: str) -> None:
    text = f"{before}key{after}"
    pattern = r"""^\ufeff?(?:\{\s*)?["']?key["']?\s*:"""
    assert SourceFile.of("a.yaml", text).has_mark("key") is (re.search(pattern, text, re.MULTILINE) is not None)


def test_a_file_that_is_not_there_is_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"cannot read `.*none\.yaml`: No such file"):
        SourceFile.load(tmp_path / "none.yaml")
    with pytest.raises(FileError):
        SourceFile.load(tmp_path)


def test_a_file_of_more_bytes_than_a_policy_has_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "p.yaml").open("wb") as file:
        file.truncate(files.LARGEST + 1)
    with pytest.raises(FileError, match="more than 16 MiB"):
        SourceFile.load(tmp_path / "p.yaml")
