"""The policy, state and bundles of a small studio, for tests of integrations around a client."""

from __future__ import annotations

from pathlib import Path

from privtab.bundle.pack import state_bundle
from privtab.pipeline import load_program, policy_artifacts
from privtab.state.load import load_raw_state, validate

POLICY = """\
privtab: 1
system: studio
version: "1"
entities: {project: {dataset: }}
privileges: [READ, WRITE]
semantics: {inheritance: down, deny: overrides, owner: {creator: true}, groups: [state, request]}
tables:
  dataset:
    create: {requires: WRITE (project), becomes: owner}
    read: READ (dataset) or owner (dataset)
    list: {requires: READ (project), each: can read (dataset)}
    copy: {with: {to: project}, requires: "READ (dataset) and WRITE (to) and (owner (to) when replace)"}
"""
STATE = """\
assignments:
  - {principal: user:ann, role: analyst}
  - {principal: user:ben, role: analyst}
grants:
  - {grantee: role:analyst, effect: allow, privilege: READ, entity: project:web}
  - {grantee: user:ann, effect: allow, privilege: WRITE, entity: project:web}
  - {grantee: group:guests, effect: allow, privilege: READ, entity: dataset:lab/open}
  - {grantee: user:ben, effect: deny, privilege: READ, entity: dataset:web/salaries}
"""


def write(folder: Path) -> tuple[Path, Path]:
    """Write the bundles of the policy and the state."""
    (folder / "studio.yaml").write_text(POLICY, encoding="utf-8")
    (folder / "state.yaml").write_text(STATE, encoding="utf-8")
    program = load_program(folder / "studio.yaml")
    state, findings = validate(program, load_raw_state(folder / "state.yaml"))
    assert not findings
    policy, state_file = folder / "studio-policy.tar.gz", folder / "studio-state.tar.gz"
    policy.write_bytes(policy_artifacts(program).bundle())
    state_file.write_bytes(state_bundle(program, state))
    return policy, state_file
