"""What is read of a bundle: its manifest and its data."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bundle_service
import pytest
from bundle_service import unusual_state

from privtab import pipeline
from privtab.base.errors import BrokenBundle
from privtab.bundle.archive import contents, json_bytes, packed_archive
from privtab.bundle.pack import shard_bundles
from privtab.state.shards import PartText


def test_parts_are_named_as_their_bundles_say(tmp_path: Path) -> None:
    path = tmp_path / "lake.yaml"
    path.write_text(bundle_service.LAKE)
    state = unusual_state(5, roots=30)
    for key, bundle in shard_bundles(pipeline.load_program(path), state).items():
        found = contents(bundle)
        assert found.manifest["metadata"]["shard"] == key
        (root, *more) = found.roots
        assert bool(more) == (key == PartText.PEOPLE)
        assert not set("%~") & set(root)


def test_files_that_are_no_bundles_are_refused() -> None:
    with pytest.raises(BrokenBundle):
        contents(b"no bundle")
    with pytest.raises(BrokenBundle, match="is not JSON"):
        contents(packed_archive({".manifest": b"{"}))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (".manifest", {"roots": "a"}, "`roots` is not a list of paths"),
        (".manifest", {"roots": [1]}, "`roots` is not a list of paths"),
        (".manifest", {"metadata": []}, "`metadata` is not an object"),
        ("a/z/data.json", {"c": 1}, "lies below `z`, which is not an object"),
    ],
)
def test_an_invalid_file_is_a_broken_bundle(name: str, content: Any, message: str) -> None:
    files = {"a/data.json": json_bytes({"z": 1}), name: json_bytes(content)}
    with pytest.raises(BrokenBundle, match=message):
        contents(packed_archive(files))
