"""A policy in which the first active role of a request owns what is created, a state, and requests with what they do."""

from __future__ import annotations

from pathlib import Path

POLICY = """\
privtab: 1
system: studio
version: "1"
entities: {workspace: {dataset:}}
privileges: [READ, WRITE]
semantics: {inheritance: down, active_roles: request, owner: {kinds: [user, role], creator: active_role, holds: [READ]}}
tables:
  dataset:
    create: WRITE (workspace)
    adopt: {requires: WRITE (workspace), becomes: owner}
    read: READ (dataset)
"""
STATE = """\
assignments:
  - {principal: user:ann, role: etl}
  - {principal: user:ann, role: analyst}
grants:
  - {grantee: role:etl, effect: allow, privilege: WRITE, entity: workspace:w}
"""
EFFECT = "become owner by active_role (dataset:w/new)"
NO_ROLE = "no active role is named"
CASES: tuple[tuple[str, tuple[str, ...] | None, bool | None, str | None], ...] = (
    ("create", ("etl", "analyst"), True, "role:etl"),
    ("create", ("analyst", "etl"), True, "role:analyst"),
    ("create", ("role:etl",), True, "role:etl"),
    ("create", ("analyst",), False, None),
    ("create", ("etl", "root"), False, None),
    ("create", (), None, None),
    ("create", None, None, None),
    ("adopt", ("etl",), True, "user:ann"),
    ("adopt", None, True, "user:ann"),
    ("read", None, False, None),
)
"""Of ann about `dataset:w/new`: the operation, active roles, the answer and the owner. None: the request is invalid."""


def files(folder: Path) -> tuple[Path, Path]:
    """Write the policy and the state to a folder and return their paths."""
    paths = folder / "studio.yaml", folder / "state.yaml"
    for path, text in zip(paths, (POLICY, STATE), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths
