"""Bundles for tests of registries: two policies of one system, and three states."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from privtab.bundle.pack import shard_bundles, state_bundle
from privtab.ir.nodes import Program
from privtab.pipeline import load_program, policy_artifacts
from privtab.state.load import load_raw_state, validate

POLICY = """\
privtab: 1
system: shop
version: "{version}"
entities: {{site: {{store: {{item:}}}}}}
privileges: [READ, WRITE]
semantics: {{inheritance: down, deny: overrides, owner: {{creator: true}}}}
tables:
  item:
    read: {read}
    write: WRITE (item)
"""
READS = "READ (item)"
WIDER = "READ (item) or owner (item)"

STATES = (
    """\
grants:
  - {grantee: user:ann, effect: allow, privilege: READ, entity: site:s}
  - {grantee: user:ben, effect: allow, privilege: WRITE, entity: store:s/a}
owners:
  - {entity: item:s/a/i, owner: user:olga}
""",
    """\
grants:
  - {grantee: user:ann, effect: allow, privilege: READ, entity: site:s}
  - {grantee: user:ben, effect: allow, privilege: WRITE, entity: store:s/a}
  - {grantee: user:ben, effect: allow, privilege: READ, entity: item:s/a/i}
owners:
  - {entity: item:s/a/i, owner: user:olga}
""",
    """\
grants:
  - {grantee: user:ben, effect: allow, privilege: READ, entity: item:s/a/i}
  - {grantee: user:ann, effect: deny, privilege: READ, entity: site:other}
""",
)


@dataclass(frozen=True)
class ExampleBundles:
    """Packed bundles: `policies` differ in the condition of `read`, `states` in their grants; `shards` are of the last state."""

    programs: tuple[Program, ...]
    policies: tuple[bytes, ...]
    states: tuple[bytes, ...]
    shards: dict[str, bytes]
    sharded: bytes
    """The policy bundle for a sharded state."""


def program(folder: Path, *, version: str = "1", read: str = READS) -> Program:
    path = folder / f"shop-{version}.yaml"
    path.write_text(POLICY.format(version=version, read=read), encoding="utf-8")
    return load_program(str(path))


def bundles(folder: Path) -> ExampleBundles:
    programs = program(folder), program(folder, version="2", read=WIDER)
    states = []
    for number, text in enumerate(STATES):
        path = folder / f"state-{number}.yaml"
        path.write_text(text, encoding="utf-8")
        state, findings = validate(programs[0], load_raw_state(path))
        assert not findings
        states.append(state)
    return ExampleBundles(
        programs=programs,
        policies=tuple(policy_artifacts(each).bundle() for each in programs),
        states=tuple(state_bundle(programs[0], state) for state in states),
        shards=shard_bundles(programs[0], states[-1]),
        sharded=policy_artifacts(programs[0], sharded=True).bundle(),
    )
