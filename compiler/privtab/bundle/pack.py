"""Artifacts → bundle. Policy and state are separate bundles: each has its own roots and changes at its own pace."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from privtab import __version__
from privtab.backends import rego
from privtab.backends.protocol import Compilation
from privtab.base.errors import FileError
from privtab.base.files import ENDINGS, ending_of, state_location
from privtab.base.names import decode_name
from privtab.base.records import dataclass
from privtab.base.shard_names import sharded_revision
from privtab.base.worker import LARGE, beside
from privtab.bundle.archive import contents, json_bytes, json_object
from privtab.bundle.sign import SigningKey, signed_bundle
from privtab.ir.nodes import Program
from privtab.ir.serialise import program_json
from privtab.state.index import index_bytes
from privtab.state.names import UsedParts
from privtab.state.nodes import State
from privtab.state.shards import PartText, shards

if TYPE_CHECKING:
    from privtab.base.diagnostics import Diagnostic

REVISION_DIGITS = 16
SHARDED = "sharded"
"""The value of `state` in the metadata of a sharded state's bundles and in the policy that reads them."""
ENTRYPOINTS = ("allow", "decision", "decisions", "explained", "visible")
OF_FILTERS = ("filters/applied", "filters/applied_many")
"""The entrypoints of policies with row filters or column masks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyArtifacts:
    """The output for a policy: the Rego modules by path, the program as JSON, and the revision of both.

    Example: `Path("policy.tar.gz").write_bytes(policy_artifacts(program).bundle())`.
    """

    name: str
    revision: str
    modules: Mapping[str, str]
    program: Mapping[str, Any]
    program_bytes: bytes
    """The program as in the bundle."""
    metadata: Mapping[str, Any]

    def files(self) -> dict[str, bytes]:
        """The files of the bundle, by path."""
        return {
            ".manifest": manifest(self.revision, self.roots, self.metadata),
            f"privtab_program/{self.name}/data.json": self.program_bytes,
            **{path: text.encode() for path, text in self.modules.items()},
        }

    def bundle(self, signing: SigningKey | None = None) -> bytes:
        """The bundle as a gzipped tar, signed if there is a key."""
        return signed_bundle(self.files(), signing)

    def wasm_bundle(self, module: bytes, signing: SigningKey | None = None) -> bytes:
        """The bundle for engines that run Wasm: the compiled `pipeline.wasm_modules`, and the program."""
        wasm = {
            "revision": self.revision,
            "roots": self.roots,
            "wasm": [{"entrypoint": entrypoint, "module": "policy.wasm"} for entrypoint in self.entrypoints],
            "metadata": dict(self.metadata) | {"kind": "wasm"},
        }
        program = {f"privtab_program/{self.name}/data.json": self.program_bytes}
        return signed_bundle({".manifest": json_bytes(wasm), "policy.wasm": module, **program}, signing)

    @property
    def roots(self) -> list[str]:
        """The paths that the bundle owns."""
        return [f"privtab/{self.name}", f"privtab_program/{self.name}"]

    @property
    def entrypoints(self) -> tuple[str, ...]:
        """The paths of the rules that are queried."""
        rules = (*ENTRYPOINTS, *(OF_FILTERS if "filters" in self.program else ()))
        return tuple(f"privtab/{self.name}/{rule}" for rule in rules)


def manifest(revision: str, roots: list[str], metadata: Mapping[str, Any]) -> bytes:
    """The manifest of a bundle of Rego or data."""
    return json_bytes({"revision": revision, "roots": roots, "rego_version": 1, "metadata": metadata})


class BundledDoor(Protocol):
    """The answers to another system in its own form, which a package adds to the bundle of a policy."""

    @property
    def name(self) -> str:
        """The name of its package in the bundle."""

    @property
    def notes(self) -> Iterable[Diagnostic]:
        """Remarks for people: what the policy decides and the door leaves out."""

    def to_json(self) -> dict[str, Any]:
        """The part of the program's document that its Rego reads."""

    def modules(self, program: Program, name: str) -> Mapping[str, str]:
        """Its Rego modules, by path inside the bundle of the policy with this name."""


def pack_policy(
    program: Program,
    name: str | None = None,
    *,
    optimised: Program,
    sharded: bool = False,
    provenance: Provenance | None = None,
    parallel: bool = False,
    doors: Sequence[BundledDoor] = (),
) -> PolicyArtifacts:
    """Compile a policy for OPA; `pipeline.policy_artifacts` calls this with both programs.

    `program` is the policy as written, which explanations cite; `optimised` is the same after the passes, which every engine
    runs. `name` replaces the system's name in package names, to run two versions side by side. With `sharded`, the Rego reads a
    sharded state (`shard_bundles`), and the program says so. `provenance` is written to the manifest and is not part of the
    revision: a commit that changes no row deploys nothing new. `parallel`: render the Rego of a large policy in a child process.
    `doors`: what other systems ask, each with a package of its own.
    """
    name = name or program.system
    compilation = Compilation(program=program, optimised=optimised, name=name, sharded=sharded)
    rendered = beside(partial(rego.files, compilation), large=parallel and len(program.rules) >= LARGE)
    layout = {"state": SHARDED} if sharded else {}
    doors_document = {"doors": {door.name: door.to_json() for door in doors}} if doors else {}
    program_document = program_json(program, optimised) | {"name": name} | layout | doors_document
    if program.filters:
        program_document["filters"] = {**program_document["filters"], "needs": UsedParts.of(program).for_filters}
    # Each part is written once, for the revision and for the bundle.
    parts = {key: json_bytes(value) for key, value in program_document.items()}
    modules = {**rendered()}
    for door in doors:
        modules |= door.modules(program, name)
    digest = hashlib.sha256(json_object({"modules": json_bytes(dict(modules)), "program": json_object(parts)}))
    revision = digest.hexdigest()[:REVISION_DIGITS]
    return PolicyArtifacts(
        name=name,
        revision=revision,
        modules=modules,
        program=program_document | {"revision": revision},
        program_bytes=json_object(parts | {"revision": json_bytes(revision)}),
        metadata={"kind": "policy", "system": program.system, "version": program.version, "rows": len(program.rules)}
        | layout
        | provenance_metadata(provenance),
    )


def provenance_metadata(provenance: Provenance | None) -> dict[str, Any]:
    """The metadata about the origin of a bundle."""
    return {} if provenance is None else {"provenance": provenance.to_json()}


def state_bundle(
    program: Program,
    state: State,
    *,
    provenance: Provenance | None = None,
    signing: SigningKey | None = None,
    index: tuple[str, bytes] | None = None,
) -> bytes:
    """The state bundle: the index of the state for look-ups by key. `index`: the result of `index_bytes`, if it is known.

    Example: `Path("state.tar.gz").write_bytes(state_bundle(program, state))`.
    """
    revision, document = index or index_bytes(program, state)
    more = {"grants": len(state.grants), "assignments": len(state.assignments), **provenance_metadata(provenance)}
    files = _state_files(program.system, revision, [f"privtab_state/{program.system}"], document, more)
    return signed_bundle(files, signing)


def shard_bundles(
    program: Program, state: State, *, provenance: Provenance | None = None, signing: SigningKey | None = None
) -> dict[str, bytes]:
    """The bundles of a sharded state, each with its own roots: `people` for everything by user, and a shard for each root key.

    Only `people` has the `provenance`: a shard without changes stays the same, byte for byte.

        sorted(shard_bundles(program, state))  # ["catalog:hive", "people"]
    """
    found: dict[str, bytes] = {}
    for key, document in shards(program, state).items():
        is_people = key == PartText.PEOPLE
        more = {"shards": len(document["shards"]), **provenance_metadata(provenance)} if is_people else {}
        found[key] = packed_shard(program.system, PartText.of(key, document), more, signing)
    return found


def packed_shard(system: str, part: PartText, more: Mapping[str, Any], signing: SigningKey | None = None) -> bytes:
    """The bundle of one part of a state; `more`: what its metadata say besides.

    Example: `content = packed_shard("lake", part, {"shards": 12})`.
    """
    own = PartText.roots(system, part.key, windows=part.windows, further=part.further)
    metadata = {"state": SHARDED, "shard": part.key, **more}
    return signed_bundle(_state_files(system, part.revision, own, part.content, metadata), signing)


def _state_files(
    system: str, revision: str, own: list[str], content: bytes, more: Mapping[str, Any]
) -> dict[str, bytes]:
    metadata = {"kind": "state", "system": system, **more}
    return {".manifest": manifest(revision, own, metadata), f"privtab_state/{system}/data.json": content}


LISTING_FILE = "shards.json"
"""The name of the file that lists the bundles of a sharded state."""
LONGEST = 100
"""Characters of the name of a file, from that of an entity."""


def shard_file(key: str) -> str:
    """The name of the file with the bundle of `people` or of a root key; no two keys have the same.

    >>> shard_file("people"), shard_file("lake:raw"), shard_file("lake:a%2Fb c")
    ('people.tar.gz', 'lake.raw.tar.gz', 'lake.a_2fb_20c.tar.gz')
    """
    type_, colon, name = key.partition(":")
    if not colon:
        return f"{key}.tar.gz"
    name = decode_name(name)
    safe_name = re.sub(r"[^A-Za-z0-9.-]", lambda match: "".join(f"_{byte:02x}" for byte in match[0].encode()), name)
    if len(safe_name) > LONGEST or safe_name != safe_name.lower():
        # Some file systems ignore case, and none accepts very long names.
        safe_name = f"{safe_name[:LONGEST]}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
    return f"{type_}.{safe_name}.tar.gz"


def listing_file(system: str, rows: Mapping[str, Mapping[str, Any]]) -> tuple[str, bytes]:
    """The name and the content of the file that lists a state's bundles, and their combined revision.

    `rows`: what the file says of each bundle, of `people` and by root key.

        name, content = listing_file("lake", {"people": people, "catalog:hive": shard})
    """
    listed = {key: rows[key] for key in sorted(rows) if key != PartText.PEOPLE}
    revisions = {key: str(row["revision"]) for key, row in listed.items()}
    listing = {
        "system": system,
        "revision": sharded_revision(str(rows[PartText.PEOPLE]["revision"]), revisions),
        PartText.PEOPLE: rows[PartText.PEOPLE],
        "shards": listed,
    }
    return LISTING_FILE, json_bytes(listing) + b"\n"


def shard_files(bundles: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files of a sharded state, by name, in the order in which they are to be written: `people` after the shards.

    So a concurrent reader never sees a reference to a shard that is not there yet. The list of the files comes last.
    """
    files, rows = dict[str, bytes](), dict[str, dict[str, Any]]()
    for key in sorted(bundles, key=lambda key: (key == PartText.PEOPLE, key)):
        name, read = shard_file(key), contents(bundles[key])
        files[name] = bundles[key]
        size, revision = len(bundles[key]), read.manifest["revision"]
        rows[key] = {"file": name, "revision": revision, "roots": read.roots, "bytes": size}
    system = contents(bundles[PartText.PEOPLE]).manifest["metadata"]["system"]
    return files | dict([listing_file(system, rows)])


# --- the origin of a bundle, recorded in its manifest, where it changes neither decisions nor the revision ---

GIT_SECONDS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The input of a bundle and the compiler. No times and no paths of a machine: the same input gives the same provenance.

    Example: `Provenance.of(Path("lake.yaml")).to_json()`.
    """

    sources: Mapping[str, str] = field(default_factory=dict)
    """The SHA-256 of each file by its name, which is relative to the folder."""
    commit: str | None = None
    """The commit that changed the sources last; None outside a repository."""
    dirty: bool = False
    """True if a source differs from the commit."""
    choices: Mapping[str, Any] = field(default_factory=dict)
    """Further choices: the variant, readings, the policy that a state was checked against."""

    @classmethod
    def of(cls, path: Path, **choices: Any) -> Provenance:
        """The provenance of a file or a folder; empty `choices` are omitted. Raises FileError.

        A state from a registry, a store or another system has no source: its address may hold a password.

            Provenance.of(Path("lake.yaml"), policy="lake/1")
        """
        if str(path).startswith(("registry:", "store:", "import:")):
            return cls(sources={}, choices=choices)
        path, _ = state_location(path)
        folder, files = path.parent, [path]
        if path.is_dir():
            tables = (file for file in path.rglob("*") if ending_of(file.name)[1] in ENDINGS and file.is_file())
            folder, files = path, sorted(tables)
        try:
            sources = {file.relative_to(folder).as_posix(): _digest(file) for file in files}
        except OSError as error:
            raise FileError(f"cannot read {error.filename}: {error.strerror}") from error
        commit = _git(folder, "log", "-1", "--format=%H", "--", *sources) if sources else None
        changed = _git(folder, "status", "--porcelain", "--", *sources) if commit else None
        return cls(sources=sources, commit=commit or None, dirty=bool(changed), choices=choices)

    def to_json(self) -> dict[str, Any]:
        """As JSON, for the manifest's metadata."""
        git = {"git": {"commit": self.commit, "dirty": self.dirty}} if self.commit is not None else {}
        return {"compiler": f"privtab {__version__}", "sources": dict(sorted(self.sources.items())), **git} | {
            name: value for name, value in sorted(self.choices.items()) if value
        }


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _git(folder: Path, *arguments: str) -> str | None:
    """The output of git, or None if it fails: no git, no repository, or a folder that it does not trust."""
    import subprocess

    command = ["git", "-C", str(folder), "--no-optional-locks", "-c", "core.fsmonitor=false", *arguments]
    environment = {name: value for name, value in os.environ.items() if name not in ("GIT_DIR", "GIT_WORK_TREE")}
    try:
        result = subprocess.run(command, capture_output=True, check=False, timeout=GIT_SECONDS, env=environment)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return result.stdout.decode("utf-8", "replace").strip() if result.returncode == 0 else None
