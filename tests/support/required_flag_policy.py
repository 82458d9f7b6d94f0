"""A policy with one operation that has a required flag, and a state in which `ann` may read unless it is set."""

from __future__ import annotations

from pathlib import Path

POLICY = """\
privtab: 1
system: clinic
version: "1"
entities: {ward: {file:}}
privileges: [READ, SECRET, WRITE]
semantics: {inheritance: down}
tables:
  file:
    read: {requires: READ (file) and (SECRET (file) when pii), flags: {pii: required}}
"""
"""The policy; further rows of `file` can be appended."""

STATE = """\
grants:
  - {grantee: user:ann, effect: allow, privilege: READ, entity: file:w/1}
"""


def files(folder: Path, policy: str = POLICY) -> tuple[str, str]:
    """Write the policy and the state to a folder and return their paths."""
    paths = folder / "clinic.yaml", folder / "state.yaml"
    for path, text in zip(paths, (policy, STATE), strict=True):
        path.write_text(text, encoding="utf-8")
    return str(paths[0]), str(paths[1])
