"""What people write at first, as they know it from elsewhere, is answered with what to write here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from privtab.base.diagnostics import Diagnostic

NEGATION = "negation is not a condition; write what a caller must hold"
ATTRIBUTES = "attributes are declared under `attributes`, and compared as in `user.team = entity.team`"


@pytest.mark.parametrize(
    ("cell", "advice"),
    [
        ("not READ (shop)", NEGATION),
        ("READ (shop) and not WRITE (shop)", NEGATION),
        ("!READ (shop)", NEGATION),
        ("READ (shop) unless frozen", NEGATION),
        ("READ (shop) except WRITE (shop)", NEGATION),
        ("role admin", "roles are not conditions; write the privilege that the role is granted"),
        ("role == admin", "roles are not conditions; write"),
        ("role:admin", "roles are not conditions; write"),
        ("group hr", "groups are not conditions; write the privilege that the group is granted"),
        ("user in group hr", "groups are not conditions; write"),
        ("user:alice", "users are not conditions; write"),
        ('user.department == "hr"', "write `=`"),
        ("user.team != entity.team", "there is no `!=`: name the values that are allowed"),
        ("entity.color in [red, blue]", "write constants in braces: `in {red, blue}`"),
        ("READ (shop) and department = hr", ATTRIBUTES),
        ("READ (shop) or below", "write `or below` in the parentheses: `(shop or below)`"),
        ("time < 17", ATTRIBUTES),
        ("everyone", "write `anyone`"),
        ("authenticated", "write `anyone`"),
        ("none", "write `nobody`"),
        ("admin", "write `service admin`"),
        ("READ", "write the entity type in parentheses: `READ (TYPE)`"),
        ("READ shop", "write the entity type in parentheses: `READ (shop)`"),
        ("owner of shop", "write the entity type in parentheses: `owner (shop)`"),
        ("can read", "write the entity type in parentheses: `can read (TYPE)`"),
        ("READ (shop) && WRITE (shop)", "write `and`"),
        ("READ (shop) if override", "write `when`"),
        ("READ, WRITE (shop)", "write `READ/WRITE (TYPE)` for any of them"),
        ("READ (*)", "there are no wildcards: name each entity type"),
        ("* (shop)", "there are no wildcards: name the privileges"),
        ("READ (shop/shelf)", "separate entity types by commas"),
        ("allow READ (shop)", "leave `allow` out"),
        ("deny READ (shop)", "denials are rows of the state"),
        ("self (user)", "`self`, `anyone` and `nobody` take no parentheses"),
    ],
)
def test_cells_of_other_languages(only: Callable[..., Any], cell: str, advice: str) -> None:
    found = only(f"tables: {{shop: {{open: '{cell}'}}}}\n", "P011")
    assert advice in found.help


@pytest.mark.parametrize(
    ("text", "message", "advice"),
    [
        ("semantics: {inheritance: true}", "`inheritance` must be `none` or `down`, not `true`", "write `down`"),
        ("semantics: {inheritance: false}", "`inheritance` must be `none` or `down`, not `false`", "write `none`"),
        ("semantics: {inheritance: yes}", "`yes` is not a value of `inheritance`", "write `down`"),
        ("semantics: {deny: true}", "`deny` must be `none` or `overrides`, not `true`", "write `overrides`"),
        ("semantics: {groups: true}", "`groups` must be `state` or `request`, not `true`", None),
        ("types: {shop: {single: yes}}", "`single` must be `true` or `false`, not text", "write `true`"),
        (
            "tables: {shop: {open: true}}",
            "the row `open` must be a condition, not `true`",
            "write `anyone` to allow every caller",
        ),
        (
            "tables: {shop: {open: {requires: READ (shop), becomes: true}}}",
            "`becomes` must be an effect, not `true`",
            "an effect reads `owner`",
        ),
        ("inheritance: down", "unknown key `inheritance` in a policy file", "it belongs under `semantics`"),
        ("permissions: [READ]", "unknown key `permissions` in a policy file", "write `privileges`"),
        ("rules: {shop: {open: READ (shop)}}", "unknown key `rules` in a policy file", "write `tables`"),
        (
            "grants: []",
            "unknown key `grants` in a policy file",
            "grants and memberships are not part of a policy: they are tables of the state, which commands read from `--state`",
        ),
        ("tables: {shop: {open: {if: READ (shop)}}}", "unknown key `if` in a row", "write `requires`"),
        (
            "tables: {shop: {open: {requires: READ (shop), effect: deny}}}",
            "unknown key `effect` in a row",
            "rows only require: denials are rows of the state, with `effect: deny`",
        ),
        (
            "roles: [admin]",
            "`roles` must be a mapping, not a list",
            "write `roles: {NAME: {grants: {TYPE: [PRIVILEGE]}}}`",
        ),
        (
            "roles: {admin: [READ]}",
            "the role `admin` must be a mapping, not a list",
            "write `admin: {grants: {TYPE: [PRIVILEGE]}}`",
        ),
        (
            "tables: {shop: {open: {requires: READ (shop), with: shelf}}}",
            "`with` must be a mapping, not text",
            "write `with: {NAME: TYPE}`",
        ),
        (
            "tables: {shop: {open: role (shop)}}",
            "unknown privilege `role`",
            "roles are not conditions; write the privilege that the role is granted, as in `READ (TYPE)`",
        ),
        ("tables: {shop: {open: READ (this)}}", "undefined object `this`", "the row's own entity is `entity`"),
        ("tables: {shop: {open: READ (self)}}", "undefined object `self`", "the row's own entity is `entity`"),
        (
            "tables: {shop: {open: can READ (shop)}}",
            "unknown operation `READ` on `shop`",
            "`READ` is a privilege: leave `can` out",
        ),
    ],
)
def test_words_and_shapes_of_other_languages(
    find: Callable[[str], list[Diagnostic]], text: str, message: str, advice: str | None
) -> None:
    messages = {d.message: d.help for d in find(text + "\n")}
    assert message in messages, messages
    assert messages[message] == advice
    assert not [help_ for help_ in messages.values() if help_ and "quotes" in help_]
