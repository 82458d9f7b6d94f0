from __future__ import annotations

from pathlib import Path

from privtab.base.source import SourceFile
from privtab.language.syntax import read_policy


def test_the_first_byte_that_does_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_bytes("privtab: 1\ntitle: Läden, Privil".encode() + "\u00e8ges\n".encode("latin-1"))
    tables, found = read_policy(SourceFile.load(path))
    assert tables is None
    assert [(d.code, d.span.line, d.span.column, d.message) for d in found] == [
        ("P001", 2, 21, "the file is not UTF-8")
    ]


def test_other_alphabets_are_welcome(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    path.write_text("privtab: 1\nsystem: shop\nversion: '1'\ntitle: 店铺 🏪\nentities: {shop: }\n", encoding="utf-8")
    assert read_policy(SourceFile.load(path))[1] == []
