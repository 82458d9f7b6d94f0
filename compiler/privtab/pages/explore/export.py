"""The pages as a folder of files for any web server: those of which there are few enough, without forms."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from privtab.errors import UsageError
from privtab.pages.explore import changes, views
from privtab.pages.explore.site import rendered
from privtab.pages.explore.world import Asked, World, entity_of
from privtab.printable import count

MOST = 5_000
"""Maximum questions of `who-can` in a folder."""


def exported(world: World, entities: Sequence[str]) -> Mapping[str, bytes]:
    """The files of the folder, by path. `entities`: those of which the folder tells who may do what. Raises UsageError for too many."""
    questions = [(key, operation) for key in dict.fromkeys(entities) for operation in _operations(world, key)]
    if len(questions) > MOST:
        raise UsageError(f"{count(len(questions), 'page')} of who can what: {MOST:,} are the most, name fewer entities")
    links: list[tuple[str, str, str]] = []
    files: dict[str, str] = {}
    for number, (key, operation) in enumerate(questions, start=1):
        asked = Asked([("operation", operation), ("entity", key)])
        file = f"who-can-{number}.html"
        links.append((file, key, operation))
        files[file] = rendered(world, "who-can", asked, views.who(world, asked), static=True)
    for number, (name, kind) in enumerate(_others(world), start=1):
        asked = Asked([(kind, name)])
        file = f"compare-{number}.html"
        links.append((file, name, "compare"))
        files[file] = rendered(world, "compare", asked, changes.compare(world, asked), static=True)
    files["table.html"] = rendered(world, "table", Asked(), {}, static=True)
    start = views.start(world, Asked()) | {"links": links}
    files["index.html"] = rendered(world, "", Asked(), start, static=True)
    return {name: text.encode("utf-8", "replace") for name, text in sorted(files.items())}


def _operations(world: World, key: str) -> Iterator[str]:
    """The operations on an entity that need no further object; raises UsageError for another type."""
    entity = entity_of(key)
    if entity.type not in world.program.entities:
        raise UsageError(f"`{world.program.system}` has no type `{entity.type}`")
    for rule in world.program.rules.values():
        if rule.entity == entity.type and not rule.creates and not rule.withs and not rule.required_flags:
            yield rule.operation


def _others(world: World) -> Iterator[tuple[str, str]]:
    yield from ((name, "version") for name in world.versions)
    yield from ((name, "variant") for name in world.variants if world.chosen is not None)
    yield from ((name, "state") for name in world.states if world.state is not None)
