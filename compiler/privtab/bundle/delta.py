"""Delta bundles: the difference between two bundles of data as a patch, which OPA applies to the data that it has.

These functions follow OPA's rules: a delta bundle is `.manifest` and `patch.json`, and its roots are those of the bundle that
it changes; it contains data only; an empty patch would erase everything; paths are URL-escaped and use `~` escapes as well,
but their beginning is compared with the roots as written; a delta cannot be signed, so an OPA that requires signatures refuses
it, as does one that keeps the bundle on disk (`persist`).
"""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

from privtab._deprecation import renamed
from privtab.bundle.archive import archive, json_bytes
from privtab.bundle.bounds import read_object
from privtab.bundle.stream import entries
from privtab.errors import BrokenBundle
from privtab.signatures import is_signature

Operation: TypeAlias = dict[str, Any]
"""`op` (`upsert`, `replace`, `remove`), `path`, and `value` except for `remove`."""

MANIFEST = ".manifest"
PATCH = "patch.json"
DATA = "data.json"
MOST_OPERATIONS = 3_000
"""Limit for one patch: OPA compares each operation with all before it."""
MOST_COPIED = 300_000_000
"""Limit on the characters of objects that OPA copies while it adds leaves to them; beyond it, the object is sent whole."""
_MISSING = object()
_COMPACT = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode


@dataclass(frozen=True, slots=True, kw_only=True)
class Contents:
    """The content of a bundle: its manifest, and its data below `data` or the patch to that."""

    manifest: Mapping[str, Any]
    data: Mapping[str, Any]
    patch: Sequence[Operation] = ()
    signed: bool = False
    only_data: bool = True
    """Whether there are only data and the manifest: no Rego, no Wasm."""

    @property
    def roots(self) -> list[str]:
        """The manifest's roots, sorted."""
        return sorted(root.strip("/") for root in self.manifest.get("roots", [""]))


# --- bundles ---------------------------------------------------------------------------------------------------------


def delta_for(old: bytes, new: bytes, *, unsigned: bool = False) -> bytes | None:
    """The delta bundle that turns `old` into `new`; None if OPA would not accept one or it is not worthwhile.

    That is, if the bundles hold more than data, have different roots or the same data; if the patch would have too many operations
    or be as large as `new`; or if `new` is signed, since OPA then refuses unsigned deltas (unless `unsigned`: OPA accepts them, by
    `allow_unsigned_delta_bundles`). Raises BrokenBundle.
    """
    before, after = contents(old), contents(new)
    if not (before.only_data and after.only_data) or before.roots != after.roots or (after.signed and not unsigned):
        return None
    operations = difference(before.data, after.data, after.roots)
    if not 0 < len(operations) <= MOST_OPERATIONS:
        return None
    delta = _bundle(operations, after.manifest, before.manifest)
    return delta if len(delta) < len(new) else None


def verify_delta(base: bytes, delta: bytes, full: bytes) -> None:
    """Raise BrokenBundle unless the base bundle and the delta give the data, revision and roots of the full bundle."""
    before, change, after = contents(base), contents(delta), contents(full)
    if not change.patch:
        raise BrokenBundle("the delta has no operations, which would erase everything")
    if not before.roots == change.roots == after.roots:
        raise BrokenBundle(f"the roots differ: base {before.roots}, delta {change.roots}, full {after.roots}")
    if change.manifest.get("revision") != after.manifest.get("revision"):
        raise BrokenBundle(
            f"the delta leads to revision {change.manifest.get('revision')}, not to {after.manifest.get('revision')}"
        )
    for operation in change.patch:
        if not any(_covers(root, operation["path"].strip("/")) for root in change.roots):
            raise BrokenBundle(f"the patch at `{operation['path']}` lies outside the roots")
    result = applied(before.data, change.patch)
    if result != after.data:
        path = next(iter(patch(result, after.data)))["path"]
        raise BrokenBundle(f"base and delta are not the full bundle: they differ at `{path}`")


def contents(bundle: bytes) -> Contents:
    """Read a bundle. Raises BrokenBundle."""
    manifest: Mapping[str, Any] = {}
    data: dict[str, Any] = {}
    operations: Sequence[Operation] = ()
    signed, only_data = False, True
    for name, _, file in entries(io.BytesIO(bundle)):
        folder, _, last = name.rpartition("/")
        if is_signature(name):
            signed = True
        elif name == MANIFEST:
            manifest = _manifest(read_object(name, file.read()))
        elif name == PATCH:
            operations = _operations(read_object(name, file.read()).get("data", []))
        elif last == DATA:
            node = data
            for key in folder.split("/") if folder else ():
                node = node.setdefault(key, {})
                if not isinstance(node, dict):
                    raise BrokenBundle(f"`{name}` lies below `{key}`, which is not an object")
            node.update(read_object(name, file.read()))
        else:
            only_data = False
    return Contents(manifest=manifest, data=data, patch=operations, signed=signed, only_data=only_data)


def _manifest(manifest: dict[str, Any]) -> dict[str, Any]:
    """Return the manifest if its roots and metadata are valid. Raises BrokenBundle."""
    roots = manifest.get("roots", [""])
    if not (isinstance(roots, list) and all(isinstance(root, str) for root in roots)):
        raise BrokenBundle(f"`{MANIFEST}`: `roots` is not a list of paths")
    if not isinstance(manifest.get("metadata", {}), dict):
        raise BrokenBundle(f"`{MANIFEST}`: `metadata` is not an object")
    return manifest


def _operations(operations: object) -> list[Operation]:
    """Return the operations of a patch if they are valid. Raises BrokenBundle."""
    if not isinstance(operations, list):
        raise BrokenBundle(f"`{PATCH}`: `data` is not a list of operations")
    for operation in operations:
        if not (isinstance(operation, dict) and isinstance(operation.get("path"), str)):
            raise BrokenBundle(f"`{PATCH}`: an operation has no `path`")
        op = operation.get("op")
        if op not in ("upsert", "replace", "remove"):
            raise BrokenBundle(f"`{op}` is not a patch operation")
        if op != "remove" and "value" not in operation:
            raise BrokenBundle(f"`{PATCH}`: the operation at `{operation['path']}` has no `value`")
        segments(operation["path"])
    return operations


def _bundle(operations: Sequence[Operation], manifest: Mapping[str, Any], before: Mapping[str, Any]) -> bytes:
    metadata = dict(manifest.get("metadata", {}))
    if "revision" in before:
        metadata["delta_from"] = before["revision"]
    return archive(
        {
            MANIFEST: json_bytes({**manifest, "metadata": metadata}),
            PATCH: json_bytes({"data": operations}),
        }
    )


def _covers(root: str, path: str) -> bool:
    return not root or path == root or path.startswith(f"{root}/")


# --- documents -------------------------------------------------------------------------------------------------------


def difference(old: Mapping[str, Any], new: Mapping[str, Any], roots: Sequence[str]) -> list[Operation]:
    """The operations that turn `old` into `new`, two documents below `data`, within the roots."""
    operations: list[Operation] = []
    for root in sorted(roots):
        keys = root.strip("/").split("/") if root.strip("/") else []
        before, after = _value_at(old, keys), _value_at(new, keys)
        if after is _MISSING and before is not _MISSING:
            operations.append({"op": "remove", "path": f"/{'/'.join(keys)}"})
        elif before is _MISSING and after is not _MISSING:
            operations.append({"op": "upsert", "path": f"/{'/'.join(keys)}", "value": after})
        elif before is not after:
            operations += patch(before, after, root)
    return operations


def patch(old: Any, new: Any, base_path: str = "") -> list[Operation]:
    """The operations that turn `old` into `new`, both at `base_path` (`privtab_state/lake`, written like a manifest's root).

    Objects are compared key by key; other values are replaced whole, and so are objects whose changes would take more room than
    the object. Operations are sorted by path, and no two of them change the same part.
    """
    return _changes(old, new, base_path.strip("/"))[0]


def applied(document: Mapping[str, Any], operations: Sequence[Operation], base_path: str = "") -> dict[str, Any]:
    """Apply the operations to the document at `base_path`, as OPA does. Raises BrokenBundle where OPA would refuse one."""
    base = segments(base_path)
    patched: dict[str, Any] = _copy(document)
    for operation in operations:
        path = segments(operation["path"])
        if path[: len(base)] != base or len(path) == len(base):
            raise BrokenBundle(f"the patch at `{operation['path']}` is not below `{base_path}`")
        _apply(patched, path[len(base) :], operation)
    return patched


def segments(path: str) -> list[str]:
    """The keys in the path of a patch. Raises BrokenBundle.

    >>> segments("/privtab_state/lake/owners/table:a%252Fb%7E0c")
    ['privtab_state', 'lake', 'owners', 'table:a%2Fb~c']
    """
    path = path.strip("/")
    try:
        decoded = [unquote(segment, errors="strict") for segment in path.split("/")] if path else []
    except UnicodeDecodeError:
        raise BrokenBundle(f"the path `{path}` of a patch is not UTF-8") from None
    return [segment.replace("~1", "/").replace("~0", "~") for segment in decoded]


def _changes(old: Any, new: Any, path: str) -> tuple[list[Operation], int]:
    """The operations, and approximately how many characters they take."""
    replacement: Operation = {"op": "replace", "path": f"/{path}", "value": new}
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        return ([], 0) if old == new else _with_size(replacement)
    if path and ("" in old) + ("" in new) and old != new:
        return _with_size(replacement)  # a path cannot end in an empty key
    changes: list[Operation] = []
    size = leaves = 0
    for key in sorted(key for key in old.keys() | new.keys() if old.get(key, _MISSING) != new.get(key, _MISSING)):
        child_path = f"{path}/{_escape(key)}" if path else _escape(key)
        if key not in new:
            operations, length = _with_size({"op": "remove", "path": f"/{child_path}"})
        elif key not in old:
            operations, length = _additions(new[key], child_path)
            leaves += operations[0]["path"] == f"/{child_path}"
        else:
            operations, length = _changes(old[key], new[key], child_path)
        changes += operations
        size += length
    if len(changes) > 1 and path and (_budget_after(new, size) >= 0 or _copies(old, leaves)):
        return _with_size(replacement)
    return changes, size


def _additions(value: Any, path: str) -> tuple[list[Operation], int]:
    """The operations that add a value, and approximately how many characters they take.

    Before OPA adds a member to an object that the patch has changed already, it copies the whole object, unless the path leads
    deeper than the existing data. So an object is first added with one of its leaves; the rest is then added to new objects only.
    """
    if not isinstance(value, Mapping) or not value or "" in value:
        return _with_size({"op": "upsert", "path": f"/{path}", "value": value})
    first, *others = sorted(value)
    additions, size = _additions(value[first], f"{path}/{_escape(first)}")
    for key in others:
        operations, length = _with_size({"op": "upsert", "path": f"/{path}/{_escape(key)}", "value": value[key]})
        additions += operations
        size += length
    return additions, size


def _copies(value: Any, leaves: int) -> bool:
    """Whether adding that many leaves to an object makes OPA copy too much, since each addition copies the whole object."""
    return leaves > 1 and _budget_after(value, MOST_COPIED // leaves) < 0


def _with_size(operation: Operation) -> tuple[list[Operation], int]:
    return [operation], len(_COMPACT(operation))


def _budget_after(value: Any, budget: int) -> int:
    """What is left of a number of characters after a value; negative, but not by how much, if the value takes more."""
    if not isinstance(value, Mapping):
        return budget - len(_COMPACT(value))
    for key, child in value.items():
        budget = _budget_after(child, budget - len(key) - 4)
        if budget < 0:
            break
    return budget


def _apply(document: dict[str, Any], path: Sequence[str], operation: Operation) -> None:
    node: Any = document
    for key in path[:-1]:
        if isinstance(node, dict) and key not in node and operation["op"] == "upsert":
            node[key] = {}
        node = node.get(key) if isinstance(node, dict) else None
    if not isinstance(node, dict):
        raise BrokenBundle(f"there is nothing at `{operation['path']}` to be patched")
    last = path[-1]
    match operation["op"]:
        case "upsert":
            node[last] = operation["value"]
        case "replace" | "remove" if last not in node:
            raise BrokenBundle(f"there is nothing at `{operation['path']}` to {operation['op']}")
        case "replace":
            node[last] = operation["value"]
        case "remove":
            del node[last]
        case op:
            raise BrokenBundle(f"`{op}` is not a patch operation")


def _value_at(document: Mapping[str, Any], keys: Sequence[str]) -> Any:
    node: Any = document
    for key in keys:
        if not isinstance(node, Mapping) or key not in node:
            return _MISSING
        node = node[key]
    return node


def _copy(value: Any) -> Any:
    return {key: _copy(child) for key, child in value.items()} if isinstance(value, Mapping) else value


def _escape(key: str) -> str:
    """Escape a key for a path below the roots."""
    return quote(key.replace("~", "~0"), safe=":@!$()*,;=")


__getattr__ = renamed(__name__, {"proof": "verify_delta"})
