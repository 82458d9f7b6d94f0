"""Maps URLs to pages, and renders their HTML; errors of the tools are on the page, with their advice.

Also writes the pages as a folder of files for any web server: only pages of which there are few enough, without forms.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from privtab.base import PrivtabError, UsageError, count, text_templates
from privtab_analysis.html import page
from privtab_analysis.permissions import questions
from privtab_pages.explore import changes, views
from privtab_pages.explore.portable import archive
from privtab_pages.explore.views import View
from privtab_pages.explore.world import LONGEST_TEXT, Query, World, entity_of


class Page(NamedTuple):
    """A kind of page: its title in the navigation, its view, and whether it needs a state."""

    title: str
    view: View
    needs_state: bool = True


PAGES: Mapping[str, Page] = {
    "": Page("Start", views.start, needs_state=False),
    "table": Page("Table", lambda _world, _asked: {}, needs_state=False),
    "decision": Page("Decision", views.decision),
    "who-can": Page("Who can", views.who),
    "what-can": Page("What can", views.what),
    "heat": Page("Heat map", views.heat),
    "what-if": Page("What if", changes.what_if),
    "compare": Page("Compare", changes.compare, needs_state=False),
    "filter": Page("Filter", views.where),
    "edit": Page("Edit", views.edit, needs_state=False),
}
EDIT = "edit"
SCRIPTS = ("explore.js", "edit.js", "find.js")
PORTABLE = "privtab.zip"
"""What reads texts where there is no server, for `edit-worker.js`."""
EMPTY = "# who holds what: rows of these tables\nmemberships: []\nassignments: []\ngrants: []\nowners: []\n"
MOST_EXPORTED = 5_000
"""Maximum questions of `who-can` in a folder."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answer to a URL."""

    text: str
    status: int = 200
    media: str = "text/html"
    location: str = ""


def answer(world: World, name: str, pairs: list[tuple[str, str]]) -> Answer | None:
    """The answer to a path below the root; None if there is no such page. `pairs`: the parameters of the URL."""
    if name in SCRIPTS:
        return Answer(_script(name), media="text/javascript")
    if name == "names":
        query = Query(pairs)
        found = world.suggestions(query.one("kind"), query.one("text")) if world.state is not None else []
        return Answer(json.dumps(found), media="application/json")
    if name not in PAGES:
        return None
    return _page(world, name, pairs)


def _script(name: str) -> str:
    return text_templates("explore").get_template(name).render()


def _page(world: World, name: str, pairs: list[tuple[str, str]]) -> Answer:
    problem, values = "", views.Values()
    query = Query()
    try:
        query = Query(pairs)
        if name == "what-if" and (location := changes.added_row(query)) is not None:
            return Answer("", 303, location=location)
        values = PAGES[name].view(world, query)
    except PrivtabError as error:
        problem = str(error)
    return Answer(rendered(world, name, query, values, problem), 400 if problem else 200)


def rendered(
    world: World, name: str, query: Query, values: views.Values, problem: str = "", *, static: bool = False
) -> str:
    """The HTML of a page. `static`: for a folder of files, without forms."""
    pages = {key: found for key, found in PAGES.items() if world.state is not None or not found.needs_state}
    shown = {
        "world": world,
        "query": query,
        "name": name,
        "pages": {key: PAGES[key] for key in ("table", EDIT)} if static else pages,
        "title": PAGES[name].title,
        "problem": problem,
        "static": static,
    }
    if name == "table":
        return world.page.html("explore/table", **shown)
    if problem and name == "heat":
        return page("explore/problem", **shown)
    template = "index" if static and not name else name or "start"
    return page(f"explore/{template}", **{**shown, **values, "empty": not values or bool(problem)})


def exported(world: World, entities: Sequence[str]) -> Mapping[str, bytes]:
    """The files of the folder, by path. `entities`: the entities for which the folder tells who may do what. Raises UsageError for too many."""
    questions = [(key, operation) for key in dict.fromkeys(entities) for operation in _operations(world, key)]
    if len(questions) > MOST_EXPORTED:
        raise UsageError(
            f"{count(len(questions), 'page')} of who can what: {MOST_EXPORTED:,} are the most, name fewer entities"
        )
    links: list[tuple[str, str, str]] = []
    files: dict[str, str] = {}
    for number, (key, operation) in enumerate(questions, start=1):
        query = Query([("operation", operation), ("entity", key)])
        file = f"who-can-{number}.html"
        links.append((file, key, operation))
        files[file] = rendered(world, "who-can", query, views.who(world, query), static=True)
    for number, (name, kind) in enumerate(_others(world), start=1):
        query = Query([(kind, name)])
        file = f"compare-{number}.html"
        links.append((file, name, "compare"))
        files[file] = rendered(world, "compare", query, changes.compare(world, query), static=True)
    files["table.html"] = rendered(world, "table", Query(), {}, static=True)
    # Of the state nothing is written but what was asked for.
    texts = views.edit(world, Query())["texts"] | {"state": EMPTY}
    files[f"{EDIT}.html"] = rendered(world, EDIT, Query(), {"texts": texts, "most": LONGEST_TEXT}, static=True)
    files |= {name: _script(name) for name in (f"{EDIT}.js", f"{EDIT}-worker.js", "find.js")}
    start = views.start(world, Query()) | {"links": links}
    files["index.html"] = rendered(world, "", Query(), start, static=True)
    encoded = {name: text.encode("utf-8", "replace") for name, text in files.items()} | {PORTABLE: archive()}
    return dict(sorted(encoded.items()))


def _operations(world: World, key: str) -> Iterator[str]:
    """The operations on an entity that need no further object; raises UsageError for another type."""
    entity = entity_of(key)
    if entity.type not in world.program.entities:
        raise UsageError(f"`{world.program.system}` has no type `{entity.type}`")
    for rule, unnamed in questions(world.program, entity.type):
        if not unnamed and not rule.withs and not rule.required_flags:
            yield rule.operation


def _others(world: World) -> Iterator[tuple[str, str]]:
    yield from ((name, "version") for name in world.versions)
    yield from ((name, "variant") for name in world.variants if world.chosen is not None)
    yield from ((name, "state") for name in world.states if world.state is not None)
