"""A policy with an operation for each kind of change of a store, for tenants that must not see each other."""

from __future__ import annotations

POLICY = """\
privtab: 1
system: houses
version: "1"
entities: {house: {room: , role: , group: , user: , box: }}
types: {box: {flat: true}}
privileges:
  ENTER: {on: [house, room]}
semantics: {inheritance: down, deny: overrides, owner: {kinds: [user, role, group]}}
tables:
  house:
    create: {requires: service admin, becomes: owner}
    grant_privilege: owner (house)
    set_owner: owner (house)
  room:
    enter: ENTER (room)
    read_log: anyone
    grant_privilege: owner (room, house)
    set_owner: owner (room)
    drop: owner (house)
  box:
    create: {requires: owner (house), becomes: owner}
    drop: owner (box, house)
  role:
    create: {requires: owner (house), becomes: owner}
    grant_role, revoke_role: owner (house)
  group:
    add_member, remove_member: owner (house)
  user:
    add: {requires: owner (house), creates: true}
    remove: {requires: owner (house), revokes: [members, assignments]}
"""
