"""A small policy and state to look at, with names that would break a page that does not escape, and what a page is made of."""

from __future__ import annotations

from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from time import time_ns
from typing import Any

from privtab.engines.python import OpenEngine
from privtab.ir.nodes import Program
from privtab.pipeline import load_program, policy_artifacts
from privtab.state.index import index_document
from privtab.state.load import from_tables, validate_with_places
from privtab.state.nodes import State
from privtab_pages.explore.world import World, caller_of, linked, request_of

MARKUP = "<script>alert(1)</script>"
QUOTES = "\"'><img src=x onerror=alert(2)>&amp;"
LONG = "n" * 10_000
HOSTILE = (MARKUP, QUOTES, "a\ue000\U0010fffdb", "{{ 7 * 7 }}{% raw %}", LONG)
"""Names of users, groups, roles and entities."""

POLICY = """\
privtab: 1
system: shop
version: "1"
title: A shop
entities: {store: {shelf: {item: }}}
privileges: [READ, WRITE]
semantics: {inheritance: down, deny: overrides, groups: state, owner: {creator: true}}
tables:
  store:
    open: READ (store)
  shelf:
    create: WRITE (store)
    list: READ (shelf)
  item:
    create: WRITE (shelf)
    read:
      requires: READ (item) or owner (shelf, item)
      ambiguous: {cell: reader, readings: {owners: "owner (shelf, item)", writers: "WRITE (item)"}, why: open}
    move: {with: {to: shelf}, requires: WRITE (item) and WRITE (to)}
variants:
  strict:
    tables:
      item:
        read: READ (item) and WRITE (shelf)
"""


def encoded(name: str) -> str:
    """A name as paths write it."""
    return name.replace("%", "%25").replace("/", "%2F")


def tables() -> dict[str, list[dict[str, Any]]]:
    """Rows about ann, ben, cleo, and hostile names."""
    rows: dict[str, list[dict[str, Any]]] = {
        "memberships": [{"user": "ann", "group": "crew"}, {"user": "ben", "group": "crew"}],
        "assignments": [{"principal": "group:crew", "role": "clerk"}],
        "grants": [
            {"grantee": "role:clerk", "effect": "allow", "privilege": "READ", "entity": "store:s"},
            {"grantee": "user:ann", "effect": "allow", "privilege": "WRITE", "entity": "shelf:s/a"},
            {"grantee": "user:ben", "effect": "deny", "privilege": "READ", "entity": "item:s/a/x"},
        ],
        "owners": [{"entity": "item:s/a/y", "owner": "user:cleo"}, {"entity": "shelf:s/b", "owner": "user:ann"}],
    }
    for name in HOSTILE:
        path = encoded(name)
        rows["memberships"].append({"user": name, "group": name})
        rows["assignments"].append({"principal": f"group:{name}", "role": name})
        rows["grants"] += [
            {"grantee": f"role:{name}", "effect": "allow", "privilege": "READ", "entity": f"shelf:s/{path}"},
            {"grantee": f"user:{name}", "effect": "allow", "privilege": "WRITE", "entity": f"item:s/{path}/{path}"},
        ]
    return rows


def world_of(program: Program, rows: dict[str, list[dict[str, Any]]], **more: Any) -> World:
    """A world of a program and rows, which must all be right."""
    state, places, findings = validate_with_places(program, from_tables(rows, "state.yaml"))
    assert [finding for finding in findings if finding.severity == "error"] == []
    return world_in(program, state, places=places, **more)


def world_in(program: Program, state: State, **more: Any) -> World:
    """A world of a program and a state."""
    moment = time_ns()
    return World(
        program=program,
        shown="shop.yaml",
        state=state,
        state_shown="state.yaml",
        moment=moment,
        request=request_of(program),
        caller=caller_of(program),
        engine=lambda: OpenEngine.of(policy_artifacts(program).program, index_document(program, state), moment),
        **more,
    )


def shop(folder: Path) -> World:
    """The shop, with its variant and readings, and an earlier state."""
    path = folder / "shop.yaml"
    path.write_text(POLICY, encoding="utf-8")
    program, rows = load_program(path), tables()
    earlier = world_of(program, {**rows, "owners": []})
    return world_of(
        program,
        rows,
        variants=("strict",),
        chosen=lambda variant, readings: load_program(path, variant=variant, readings=readings),
        versions={"older": lambda: load_program(path, variant="strict")},
        states={"earlier.yaml": (earlier.rows, earlier.places)},
        texts={"policy": POLICY},
    )


def url(name: str, **values: str) -> str:
    """A page of the explorer, with `_` for `-` in names of values."""
    return "/" + linked(name, [(key.replace("_", "-"), value) for key, value in values.items()])


PLAIN = (
    "/",
    "/table",
    url("decision", user="ann", operation="read", entity="item:s/a/x"),
    url("decision", user="ben", operation="read", entity="item:s/a/x"),
    url("decision", user="dan", operation="move", entity="item:s/a/x", **{"with": "to=shelf:s/b"}),
    url("decision", user="dan", operation="reed", entity="item:s/a/x"),
    url("who-can", operation="read", entity="item:s/a/x"),
    url("who-can", operation="read", entity="item:s/a/x", by="principal"),
    url("what-can", user="ann"),
    url("what-can", user="role:clerk", entity="shelf:s/a"),
    "/heat",
    url("heat", within="store:s", type="item"),
    url("heat", within="nothing:s"),
    url("what-if", about="user:ann"),
    url("what-if", add="grants?grantee=user:dan&effect=allow&privilege=READ&entity=shelf:s/a"),
    url("what-if", remove="memberships?user=ann&group=crew"),
    url("what-if", reading="item/read=writers"),
    url("compare", version="older"),
    url("compare", variant="strict"),
    url("compare", state="earlier.yaml"),
    url("filter", user="ann", operation="read", type="item", dialect="postgres"),
    url("edit", user="ann", operation="read", entity="item:s/a/x"),
)
"""A page of each kind, with what is asked and without."""


class Html(HTMLParser):
    """The elements of a page."""

    VOID = frozenset(["meta", "input", "br", "wbr", "img", "link"])

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.labelled: list[dict[str, str]] = []
        self.text = ""
        self._open_labels = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.elements.append((tag, given))
        self._open_labels += tag == "label"
        if tag in ("input", "select") and (self._open_labels or given.get("type") == "hidden" or "aria-label" in given):
            self.labelled.append(given)

    def handle_endtag(self, tag: str) -> None:
        self._open_labels -= tag == "label"

    def handle_data(self, data: str) -> None:
        self.text += data

    def all(self, *tags: str) -> list[dict[str, str]]:
        """The attributes of each element with one of these names."""
        return [attributes for tag, attributes in self.elements if tag in tags]

    @property
    def links(self) -> list[str]:
        """Where links lead."""
        return [attributes["href"] for attributes in self.all("a") if "href" in attributes]


def problems(html: Html) -> list[str]:
    """What is wrong with the structure of a page, for people who do not see it, and for anybody's safety."""
    found = []
    ids = [attributes["id"] for _, attributes in html.elements if "id" in attributes]
    found += [f"id {id_} twice" for id_ in set(ids) if ids.count(id_) > 1]
    found += ["no lang"] if html.all("html")[0].get("lang") != "en" else []
    found += [f"{len(html.all(tag))} {tag}" for tag in ("h1", "main") if len(html.all(tag)) != 1]
    levels = [int(tag[1]) for tag, _ in html.elements if tag in ("h1", "h2", "h3", "h4")]
    found += [f"h{b} after h{a}" for a, b in pairwise(levels) if b > a + 1]
    found += [f"input without a label: {x}" for x in html.all("input", "select") if x not in html.labelled]
    found += [f"th without a scope: {x}" for x in html.all("th") if "scope" not in x]
    found += [f"svg without a name: {x}" for x in html.all("svg") if not x.get("aria-label")]
    found += [f"link to nowhere: {x}" for x in html.links if x.startswith("#") and x[1:] not in ids]
    found += [f"label for nothing: {x}" for _, x in html.elements if x.get("aria-labelledby", ids[0]) not in ids]
    found += [f"script {x}" for x in html.all("script") if x.get("src") not in ("explore.js", "edit.js", "find.js")]
    found += [f"<{tag}>" for tag, _ in html.elements if tag in ("img", "iframe", "object", "embed", "link", "base")]
    found += [f"handler {x}" for _, attributes in html.elements for x in attributes if x.startswith("on")]
    return found
