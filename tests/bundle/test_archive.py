from __future__ import annotations

import io
import tarfile

from privtab.bundle.archive import json_bytes, packed_archive


def test_order_of_files_does_not_matter() -> None:
    files = {"b": b"2", "a/c": b"1", ".manifest": b"{}"}
    assert packed_archive(files) == packed_archive(dict(reversed(files.items())))
    with tarfile.open(fileobj=io.BytesIO(packed_archive(files))) as tar:
        assert tar.getnames() == sorted(files)


def test_other_content_gives_other_bytes() -> None:
    assert packed_archive({"a": b"1"}) != packed_archive({"a": b"2"})


def test_json_has_sorted_keys_and_keeps_letters() -> None:
    assert json_bytes({"b": "é", "a": [1, None]}) == '{"a":[1,null],"b":"é"}'.encode()
