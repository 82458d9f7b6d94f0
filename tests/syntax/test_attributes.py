"""Declarations of attributes: each type, in short and in full, and what is wrong with others."""

from __future__ import annotations

import pytest

from privtab import model
from privtab.base.attributes import Attribute
from privtab.base.source import SourceFile
from privtab.language import syntax
from privtab.model.nodes import Policy

HEAD = """\
privtab: 1
system: shop
version: "1"
entities: {shop: {shelf: }}
privileges: [READ]
tables: {shelf: {look: READ (shelf)}}
"""


def read(text: str) -> tuple[Policy | None, list[str]]:
    tables, found = syntax.read_policy(SourceFile.of("shop.yaml", HEAD + text))
    assert tables is not None
    policy, of_model = model.resolve(tables)
    return policy, [f"{d.code} {d.message}" for d in (*found, *of_model)]


def test_every_type() -> None:
    policy, found = read("""\
attributes:
  user: {name: text, rank: {integer: [0, 9], from: request}}
  entity: {class: {enum: [a, b], on: [shelf], from: request}, tags: {set: [x, y], from: [state, request]}}
  request: {mfa: bool, hour: integer, mode: {enum: [read, list], default: list}}
""")
    assert found == []
    assert policy is not None
    assert policy.attributes.user == {
        "name": Attribute(type="text", origins=("state",)),
        "rank": Attribute(type="integer", lowest=0, highest=9),
    }
    assert policy.attributes.entity == {
        "class": Attribute(type="enum", values=("a", "b"), on=("shelf",)),
        "tags": Attribute(type="set", values=("x", "y"), on=("shop", "shelf"), origins=("state", "request")),
    }
    assert policy.attributes.request == {
        "mfa": Attribute(type="bool"),
        "hour": Attribute(type="integer"),
        "mode": Attribute(type="enum", values=("read", "list"), default="list"),
    }


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("request: {mfa: {bool: true, from: request}}", "P009 an attribute of the request has no `from`"),
        (
            "request: {mfa: {bool: true, on: [shelf]}}",
            "P009 the attribute `mfa` is not of an entity, so it has no `on`",
        ),
        ("request: {mfa: {note: what}}", "P009 the attribute `mfa` has no type"),
        ("request: {mfa: {bool: true, text: true}}", "P009 the attribute `mfa` has two types"),
        ("request: {mfa: {enum: [a], from: stat}}", "P009"),
        ("request: {hour: {integer: [9, 0]}}", "P008"),
        ("request: {hour: number}", "P008"),
        ("entity: {class: {enum: [a], on: [shelv], from: request}}", "P102 unknown entity type `shelv`"),
        ("request: {with: text}", "P009 `with` has a meaning of its own in the context of a request"),
        ("user: {groups: {text: true, from: request}}", "P009 `groups` has a meaning of its own in the properties"),
        ("request: {mode: {enum: [a], default: b}}", "P008 the default of the attribute `mode` must be one of `a`"),
        ("request: {mfa: {bool: true, default: 1}}", "P008 the default of the attribute `mfa` must be true or false"),
        ("request: {how: {set: [a], default: a}}", "P009 the attribute `how` is a set, so it has no `default`"),
        ("user: {rank: {integer: true, default: 1}}", "P009 the attribute `rank` is not of the request, so it has no"),
        ("users: {name: text}", "P006 unknown key `users` in `attributes`"),
    ],
)
def test_mistakes_in_attributes(text: str, finding: str) -> None:
    policy, found = read(f"attributes: {{{text}}}\n")
    assert policy is None
    assert any(line.startswith(finding) for line in found), found
