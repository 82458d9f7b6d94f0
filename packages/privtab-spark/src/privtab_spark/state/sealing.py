"""Sign the bundles of a built state: executors hash and pack them (the driver if they are few); only the driver has the key."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from privtab.base import BrokenBundle
from privtab.bundle import json_bytes
from privtab.state import PartText
from privtab_spark.state.files import Root

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from privtab.bundle import SigningKey

Rows = list[dict[str, Any]]
Work = Callable[[Mapping[str, Any]], dict[str, Any]]
Parts = Mapping[str, Mapping[str, Any]]
"""The reports of a manifest, by `people` or root key."""
END = ".tar.gz"
MOST_TASKS = 200
FEW = 8 << 20
"""Most bytes of bundles that the driver hashes and packs itself, because a Spark job would take longer."""
HASHES = "`key` string, `hashes` string"
PACKED = "`key` string, `bytes` bigint, `sha256` string"


def parts_of(manifest: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The reports of a manifest; empty for an empty manifest."""
    return {PartText.PEOPLE: manifest["people"], **manifest["shards"]} if manifest else {}


def signature_of(signing: SigningKey | None) -> dict[str, Any] | None:
    """The signature that a part should have, as recorded in a manifest, without the sequence."""
    if signing is None:
        return None
    return {
        "key": signing.id,
        "fingerprint": signing.fingerprint,
        "algorithm": signing.algorithm,
        "scope": signing.scope,
    }


def parts_to_sign(parts: Parts, signing: SigningKey | None) -> list[str]:
    """The parts whose signature, or lack of one, does not match `signing`."""
    signature = signature_of(signing)
    return [key for key, part in parts.items() if _how(part) != signature]


def signed_parts(
    spark: SparkSession, root: Root, parts: Parts, before: Parts, signing: SigningKey | None
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The parts of a build, signed as `signing` says, and the keys of the parts that were signed (or unsigned) for it.

    A part that is signed with the same key for the same scope is kept, whatever its sequence. A part whose unsigned bundle equals
    the unsigned bundle of the signed part in `before` reuses it. Raises BrokenBundle.
    """
    found = {key: _as_before(part, before.get(key), signing) for key, part in parts.items()}
    todo = parts_to_sign(found, signing)
    if not todo:
        return found, []
    sources = {key: str(found[key]["file"]) for key in todo}
    is_small = sum(int(found[key]["bytes"]) for key in todo) <= FEW

    def run(rows: Rows, columns: str, work: Work, result: str) -> Rows:
        return [work(row) for row in rows] if is_small else _on_executors(spark, rows, columns, work, result)

    texts: Mapping[str, str | None] = dict.fromkeys(todo)
    if signing is not None:
        to_hash: Rows = [{"key": key, "file": sources[key], "sha256": found[key]["sha256"]} for key in todo]
        hashed = run(to_hash, "`key` string, `file` string, `sha256` string", partial(_hash, root), HASHES)
        texts = {row["key"]: signing.signatures(json.loads(row["hashes"])).decode() for row in hashed}
    plain = {key: _unsigned(found[key]) for key in todo}
    names = {key: _name(plain[key], signing) for key in todo}
    to_pack: Rows = [{"key": key, "file": sources[key], "out": names[key], "text": texts[key]} for key in todo]
    columns = "`key` string, `file` string, `out` string, `text` string"
    packed = {row["key"]: row for row in run(to_pack, columns, partial(_pack, root), PACKED)}
    for key in todo:
        row, part = packed[key], {k: v for k, v in found[key].items() if k != "signature"}
        part |= {"file": names[key], "bytes": row["bytes"], "sha256": row["sha256"]}
        if signing is not None:
            how = {**(signature_of(signing) or {}), "sequence": signing.sequence}
            part["signature"] = how | {"of": _digest_of(found[key]), "unsigned": plain[key]}
        found[key] = part
    return found, todo


def _how(part: Mapping[str, Any]) -> dict[str, Any] | None:
    """The signature of a part, without the sequence; None if it is not signed."""
    signature = part.get("signature")
    return None if signature is None else {n: signature[n] for n in ("key", "fingerprint", "algorithm", "scope")}


def _as_before(part: Mapping[str, Any], before: Mapping[str, Any] | None, signing: SigningKey | None) -> dict[str, Any]:
    """The previous signed part if it has the same unsigned bytes and a matching signature, otherwise the part."""
    if signing is None or before is None or "signature" in part or "signature" not in before:
        return dict(part)
    same = before["signature"]["of"] == part["sha256"] and _how(before) == signature_of(signing)
    return dict(before if same else part)


def _unsigned(part: Mapping[str, Any]) -> str:
    """The name of the part's file without a signature."""
    return str(part["signature"]["unsigned"] if "signature" in part else part["file"])


def _digest_of(part: Mapping[str, Any]) -> str:
    """The hash of the part's unsigned bundle."""
    return str(part["signature"]["of"] if "signature" in part else part["sha256"])


def _name(unsigned: str, signing: SigningKey | None) -> str:
    """The file name of a signed part, which is different for different signatures."""
    if signing is None:
        return unsigned
    mark = hashlib.sha256(json_bytes([signature_of(signing), signing.sequence])).hexdigest()[:10]
    return f"{unsigned.removesuffix(END)}-{mark}{END}"


def _on_executors(spark: SparkSession, row_dicts: Rows, columns: str, work: Work, result: str) -> Rows:
    """Run `work` on each row on executors."""
    rows = [tuple(row.values()) for row in row_dicts]
    frame = spark.createDataFrame(rows, columns).repartition(min(len(rows), MOST_TASKS), "key")
    return [row.asDict() for row in frame.mapInArrow(partial(_each, work), result).collect()]


def _each(work: Work, batches: Iterable[Any]) -> Iterator[Any]:
    """For `mapInArrow`: the result of `work` for each row."""
    import pyarrow as pa

    for batch in batches:
        if rows := [work(row) for row in batch.to_pylist()]:
            yield from pa.Table.from_pylist(rows).to_batches()


def _hash(root: Root, row: Mapping[str, Any]) -> dict[str, Any]:
    """The hashes of the files of a bundle; raises BrokenBundle if it was changed after its build."""
    from privtab.bundle import file_digests

    with root.open(row["file"]) as bundle:
        if hashlib.file_digest(bundle, "sha256").hexdigest() != row["sha256"]:  # type: ignore[arg-type]  # it is an open file
            raise BrokenBundle(f"{row['file']} was changed after it was built, and is not signed: build with `--full`")
        bundle.seek(0)
        return {"key": row["key"], "hashes": json.dumps(file_digests(bundle, ours=True))}


def _pack(root: Root, row: Mapping[str, Any]) -> dict[str, Any]:
    """Write a bundle with the given `.signatures.json` (null: without one)."""
    from privtab.bundle import with_signatures

    written = _Written()
    with root.open(row["file"]) as bundle:
        text = None if row["text"] is None else row["text"].encode()
        root.write_pieces(row["out"], written.of(with_signatures(bundle, text)))
    return {"key": row["key"], "bytes": written.bytes, "sha256": written.hash.hexdigest()}


class _Written:
    """Counts and hashes the bytes that pass through."""

    def __init__(self) -> None:
        self.bytes = 0
        self.hash = hashlib.sha256()

    def of(self, pieces: Iterable[bytes]) -> Iterator[bytes]:
        for piece in pieces:
            self.bytes += len(piece)
            self.hash.update(piece)
            yield piece
