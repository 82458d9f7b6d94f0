"""Artifacts → bundle. Policy and state never share one: each has its own roots and its own pace."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from privtab import passes
from privtab.backends import rego
from privtab.bundle.archive import archive, json_bytes
from privtab.ir.nodes import Program
from privtab.ir.serialise import program_json
from privtab.state.index import index
from privtab.state.nodes import State
from privtab.state.shards import PEOPLE, content, roots, shards

REVISION_DIGITS = 16
SHARDED = "sharded"
"""What `state` says in a policy, and in the bundles of a state, where the state comes in parts."""
ENTRYPOINTS = ("allow", "decision", "decisions", "explained", "visible")


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyArtifacts:
    """What a policy compiles to: the Rego modules by path, the program as JSON, and the revision of both."""

    name: str
    revision: str
    modules: Mapping[str, str]
    program: Mapping[str, Any]
    metadata: Mapping[str, Any]

    def files(self) -> dict[str, bytes]:
        """The files of the bundle, by path."""
        manifest = {
            "revision": self.revision,
            "roots": [f"privtab/{self.name}", f"privtab_program/{self.name}"],
            "rego_version": 1,
            "metadata": self.metadata,
        }
        return {
            ".manifest": json_bytes(manifest),
            f"privtab_program/{self.name}/data.json": json_bytes(self.program),
            **{path: text.encode() for path, text in self.modules.items()},
        }

    def bundle(self) -> bytes:
        """The bundle as a gzipped tar."""
        return archive(self.files())

    def wasm_bundle(self, module: bytes) -> bytes:
        """The bundle for engines that run Wasm: the module that `wasm_modules` compile to, and the program."""
        manifest = {
            "revision": self.revision,
            "roots": [f"privtab/{self.name}", f"privtab_program/{self.name}"],
            "wasm": [{"entrypoint": entrypoint, "module": "policy.wasm"} for entrypoint in self.entrypoints],
            "metadata": dict(self.metadata) | {"kind": "wasm"},
        }
        program = {f"privtab_program/{self.name}/data.json": json_bytes(self.program)}
        return archive({".manifest": json_bytes(manifest), "policy.wasm": module, **program})

    @property
    def entrypoints(self) -> tuple[str, ...]:
        """The rules that are asked for, by path."""
        return tuple(f"privtab/{self.name}/{rule}" for rule in ENTRYPOINTS)


def policy_artifacts(program: Program, name: str | None = None) -> PolicyArtifacts:
    """Compile a program for OPA. `name` takes the system's place in package names, for running two versions side by side."""
    name = name or program.system
    modules = rego.render(passes.run(program), name)
    content = program_json(program) | {"name": name}
    digest = hashlib.sha256(json_bytes({"modules": dict(modules), "program": content}))
    revision = digest.hexdigest()[:REVISION_DIGITS]
    return PolicyArtifacts(
        name=name,
        revision=revision,
        modules=modules,
        program=content | {"revision": revision},
        metadata={
            "kind": "policy",
            "system": program.system,
            "version": program.version,
            "rows": len(program.rules),
        },
    )


def wasm_modules(program: Program, name: str | None = None) -> Mapping[str, str]:
    """The Rego modules of a program for OPA's Wasm compiler, whose code has no index over rules."""
    return rego.render(passes.run(program), name, indexed=False)


def policy_bundle(program: Program, name: str | None = None) -> bytes:
    """The policy bundle of a program: Rego modules and the program itself."""
    return policy_artifacts(program, name).bundle()


def state_bundle(program: Program, state: State) -> bytes:
    """The state bundle: the key-lookup index of who holds what."""
    document = index(program, state)
    manifest = {
        "revision": document["revision"],
        "roots": [f"privtab_state/{program.system}"],
        "rego_version": 1,
        "metadata": {
            "kind": "state",
            "system": program.system,
            "grants": len(state.grants),
            "assignments": len(state.assignments),
        },
    }
    return archive(
        {
            ".manifest": json_bytes(manifest),
            f"privtab_state/{program.system}/data.json": json_bytes(document),
        }
    )


def shard_bundles(program: Program, state: State) -> dict[str, bytes]:
    """The state in parts, each a bundle with roots of its own: under `people` what goes by names, under each root key its shard."""
    return {key: shard_bundle(program.system, key, part) for key, part in shards(program, state).items()}


def shard_bundle(system: str, key: str, document: Mapping[str, Any]) -> bytes:
    """The bundle of one part of a state (`state/shards.py`): `people` or a root key, and its document."""
    metadata: dict[str, Any] = {"kind": "state", "system": system, "state": SHARDED, "shard": key}
    if key == PEOPLE:
        metadata["shards"] = len(document["shards"])
    manifest = {
        "revision": document["revision"],
        "roots": roots(system, key),
        "rego_version": 1,
        "metadata": metadata,
    }
    return archive(
        {
            ".manifest": json_bytes(manifest),
            f"privtab_state/{system}/data.json": json_bytes(content(key, document)),
        }
    )
