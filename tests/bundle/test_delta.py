from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import bundle_service
import pytest
from bundle_service import changed, unusual_state

from privtab import pipeline
from privtab.bundle import state_bundle
from privtab.bundle.archive import archive, json_bytes
from privtab.bundle.delta import (
    MOST_OPERATIONS,
    _bundle,
    applied,
    contents,
    delta_for,
    difference,
    patch,
    segments,
    verify_delta,
)
from privtab.bundle.pack import shard_bundles
from privtab.errors import BrokenBundle
from privtab.ir.nodes import Program
from privtab.pipeline import policy_bundle
from privtab.request import Entity
from privtab.state.nodes import Grant, State

KEYS = (*bundle_service.NASTY, "a", "b", "c", "")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Program:
    path = tmp_path_factory.mktemp("lake") / "lake.yaml"
    path.write_text(bundle_service.LAKE)
    return pipeline.load_program(path)


def data_bundle(
    data: object, revision: str = "1", roots: list[str] | None = None, more: dict[str, bytes] | None = None
) -> bytes:
    manifest = {"revision": revision, "roots": ["r"] if roots is None else roots}
    return archive({".manifest": json_bytes(manifest), "data.json": json_bytes(data), **(more or {})})


def document(rnd: random.Random, depth: int) -> Any:
    if depth == 0 or rnd.random() < 0.3:
        return rnd.choice(["x", True, ["a", "b"], {}])
    return {key: document(rnd, depth - 1) for key in rnd.sample(KEYS, rnd.randint(0, 5))}


def other(rnd: random.Random, value: Any) -> Any:
    if not isinstance(value, dict) or rnd.random() < 0.1:
        return document(rnd, 2)
    edited = {key: other(rnd, inner) if rnd.random() < 0.3 else inner for key, inner in value.items()}
    edited = {key: inner for key, inner in edited.items() if rnd.random() < 0.9}
    return edited | ({rnd.choice(KEYS): document(rnd, 2)} if rnd.random() < 0.4 else {})


def test_a_patch_makes_the_new_document_of_the_old_one() -> None:
    rnd = random.Random(6)
    operations = 0
    for _ in range(3000):
        old = {"r": {"k": document(rnd, 4)}}
        new = {"r": {"k": other(rnd, old["r"]["k"])}}
        found = difference(old, new, ["r"])
        operations += len(found)
        assert applied(old, found) == new
        assert bool(found) == (old != new)
        paths = [tuple(segments(operation["path"])) for operation in found]
        assert not [(a, b) for a in paths for b in paths if a != b and b[: len(a)] == a]
    assert operations > 2000


def test_little_changes_make_little_patches() -> None:
    old = {"allow": {"READ": {f"table:m/c/s/t{n}": {"role:r": True} for n in range(1000)}}, "owners": {}}
    new = {"allow": {"READ": {**old["allow"]["READ"], "table:m/c/s/a%2Fb~": {"user:u": True}}}, "owners": {}}
    assert patch(old, new, "privtab_state/lake") == [
        {
            "op": "upsert",
            "path": "/privtab_state/lake/allow/READ/table:m%2Fc%2Fs%2Fa%252Fb~0/user:u",
            "value": True,
        }
    ]


def test_a_part_whose_patch_would_be_longer_is_replaced_whole() -> None:
    old = {"r": {"k": {str(n): "old" for n in range(50)}, "same": True}}
    new = {"r": {"k": {str(n): "new" for n in range(50)}, "same": True}}
    assert difference(old, new, ["r"]) == [{"op": "replace", "path": "/r/k", "value": new["r"]["k"]}]


def test_additions_begin_with_a_leaf_since_opa_copies_the_object_added_to() -> None:
    rows = {f"old{n}": {"u": True} for n in range(9)}
    new = {"r": {"k": rows | {"n": {"b": {"y": True}, "a": {"x": True, "w": True}}, "m": {}}}}
    found = difference({"r": {"k": rows}}, new, ["r"])
    assert [(operation["path"], operation["value"]) for operation in found] == [
        ("/r/k/m", {}),
        ("/r/k/n/a/w", True),
        ("/r/k/n/a/x", True),
        ("/r/k/n/b", {"y": True}),
    ]
    assert applied({"r": {"k": rows}}, found) == new


def test_very_many_leaves_added_to_a_large_object_send_it_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    users = {f"u{n}": f"user:u{n}" for n in range(1000)}
    more = users | {f"v{n}": f"user:v{n}" for n in range(20)}
    assert len(difference({"r": {"k": users}}, {"r": {"k": more}}, ["r"])) == 20
    monkeypatch.setattr("privtab.bundle.delta.MOST_COPIED", 100_000)
    assert difference({"r": {"k": users}}, {"r": {"k": more}}, ["r"]) == [
        {"op": "replace", "path": "/r/k", "value": more}
    ]


def test_a_root_may_come_and_go() -> None:
    assert difference({}, {"a": {"b": {"x": True}}}, ["a/b"]) == [
        {"op": "upsert", "path": "/a/b", "value": {"x": True}}
    ]
    assert difference({"a": {"b": True}}, {"a": {}}, ["a/b"]) == [{"op": "remove", "path": "/a/b"}]
    assert difference({"a": {"b": 1}, "c": 1}, {"a": {"b": 2}, "c": 2}, ["a/b"]) == [
        {"op": "replace", "path": "/a/b", "value": 2}
    ]


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        ({"op": "remove", "path": "/a/none"}, "nothing at `/a/none` to remove"),
        ({"op": "replace", "path": "/a/none", "value": 1}, "nothing at `/a/none` to replace"),
        ({"op": "replace", "path": "/none/b", "value": 1}, "nothing at `/none/b` to be patched"),
        ({"op": "move", "path": "/a/b"}, "`move` is not a patch operation"),
    ],
)
def test_deltas_that_opa_refuses_are_refused(operation: dict[str, Any], message: str) -> None:
    with pytest.raises(BrokenBundle, match=message):
        applied({"a": {"b": True}}, [operation])


@pytest.mark.parametrize("seed", range(20))
def test_base_and_delta_are_the_full_bundle(lake: Program, seed: int) -> None:
    state = unusual_state(seed, roots=30)
    old, new = state_bundle(lake, state), state_bundle(lake, changed(state, seed + 100))
    if old == new:
        assert delta_for(old, new) is None
        return
    before_, after_ = contents(old), contents(new)
    delta = _bundle(difference(before_.data, after_.data, after_.roots), after_.manifest, before_.manifest)
    verify_delta(old, delta, new)
    before, after = shard_bundles(lake, state), shard_bundles(lake, changed(state, seed + 100))
    for key in before.keys() & after.keys():
        if (found := delta_for(before[key], after[key])) is not None:
            verify_delta(before[key], found, after[key])
            assert len(found) < len(after[key])


def grants(count: int) -> State:
    return State(
        grants=tuple(
            Grant(
                grantee=f"role:r{n % 50}",
                effect="allow",
                privilege="READ",
                entity=Entity("table", f"m/z{n % 20}/t{n}"),
            )
            for n in range(count)
        )
    )


def test_one_grant_among_many_takes_less_than_a_kilobyte(lake: Program) -> None:
    old, new = state_bundle(lake, grants(5000)), state_bundle(lake, grants(5001))
    delta = delta_for(old, new)
    assert delta is not None
    assert len(delta) < 700
    found = contents(delta)
    assert len(found.patch) == 2
    assert found.manifest["metadata"]["delta_from"] == contents(old).manifest["revision"]
    assert delta == delta_for(old, new)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (data_bundle({"r": {"a": 1}}), data_bundle({"r": {"a": 1}}, "2")),
        (data_bundle({"r": {"a": 1}}), data_bundle({"r": {"a": 2}, "s": 1}, "2", ["r", "s"])),
        (data_bundle({"r": {"a": 1}}, more={"x.rego": b"package x"}), data_bundle({"r": {"a": 2}})),
        (data_bundle({"r": {"a": 1}}), data_bundle({"r": {"a": 2}}, more={"x.rego": b"package x"})),
        (data_bundle({"r": {"a": 1}}), data_bundle({"r": {"b": 2}})),
        (
            data_bundle({"r": {str(n): "x" * 50 for n in range(2 * MOST_OPERATIONS)}}),
            data_bundle({"r": {str(n): "x" * 50 for n in range(MOST_OPERATIONS - 1)}}),
        ),
    ],
    ids=["the same data", "other roots", "Rego before", "Rego after", "no smaller", "too many operations"],
)
def test_no_delta_between_these_bundles(old: bytes, new: bytes) -> None:
    assert delta_for(old, new) is None


def test_a_policy_has_no_deltas(lake: Program) -> None:
    assert delta_for(policy_bundle(lake), policy_bundle(lake, "lake_next")) is None


def test_signed_bundles_have_deltas_only_where_opa_is_configured_to_accept_them() -> None:
    old, new = ({"r": {str(n): "x" * n for n in range(100)} | {"last": last}} for last in (1, 2))
    signed = data_bundle(new, "2", more={".signatures.json": b"{}"})
    assert delta_for(data_bundle(old), signed) is None
    assert delta_for(data_bundle(old), signed, unsigned=True) is not None


def test_the_proof_fails_where_it_must() -> None:
    rows = {str(n): "x" * n for n in range(100)}
    old, new, third = (data_bundle({"r": rows | {"last": last}}, str(last)) for last in (1, 2, 3))
    delta = delta_for(old, new)
    assert delta is not None
    verify_delta(old, delta, new)
    with pytest.raises(BrokenBundle, match="leads to revision 2, not to 3"):
        verify_delta(old, delta, third)
    with pytest.raises(BrokenBundle, match="has no operations"):
        verify_delta(old, archive({".manifest": json_bytes({"roots": ["r"]}), "patch.json": b'{"data":[]}'}), new)
    wrong = archive(
        {
            ".manifest": json_bytes({"roots": ["r"], "revision": "2"}),
            "patch.json": json_bytes({"data": [{"op": "replace", "path": "/r/last", "value": 9}]}),
        }
    )
    with pytest.raises(BrokenBundle, match="differ at `/r/last`"):
        verify_delta(old, wrong, new)
    outside = archive(
        {
            ".manifest": json_bytes({"roots": ["r"], "revision": "2"}),
            "patch.json": json_bytes({"data": [{"op": "upsert", "path": "/s", "value": 9}]}),
        }
    )
    with pytest.raises(BrokenBundle, match="outside the roots"):
        verify_delta(old, outside, new)


def test_an_empty_delta_is_never_made(lake: Program) -> None:
    bundle = state_bundle(lake, grants(3))
    assert delta_for(bundle, bundle) is None


def test_files_that_are_no_bundles_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BrokenBundle):
        delta_for(b"no bundle", b"no bundle")
    with pytest.raises(BrokenBundle, match="is not JSON"):
        contents(archive({".manifest": b"{"}))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("patch.json", {"data": {}}, "`data` is not a list of operations"),
        ("patch.json", {"data": ["x"]}, "an operation has no `path`"),
        ("patch.json", {"data": [{"op": "upsert", "value": 1}]}, "an operation has no `path`"),
        ("patch.json", {"data": [{"op": "upsert", "path": 1, "value": 1}]}, "an operation has no `path`"),
        ("patch.json", {"data": [{"op": "upsert", "path": "/a"}]}, "at `/a` has no `value`"),
        ("patch.json", {"data": [{"op": ["x"], "path": "/a"}]}, "is not a patch operation"),
        ("patch.json", {"data": [{"op": "remove", "path": "/a/%ff"}]}, "is not UTF-8"),
        (".manifest", {"roots": "a"}, "`roots` is not a list of paths"),
        (".manifest", {"roots": [1]}, "`roots` is not a list of paths"),
        (".manifest", {"metadata": []}, "`metadata` is not an object"),
        ("a/z/data.json", {"c": 1}, "lies below `z`, which is not an object"),
    ],
)
def test_an_invalid_patch_is_a_broken_bundle(name: str, content: Any, message: str) -> None:
    files = {"a/data.json": json_bytes({"z": 1}), name: json_bytes(content)}
    with pytest.raises(BrokenBundle, match=message):
        contents(archive(files))
