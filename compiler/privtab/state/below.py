"""What is held below entities: the parts of an index by which `or below` is one look-up."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from privtab.ir.formula import atoms, item_condition, types_of
from privtab.ir.nodes import HasBelow, OwnsBelow, Program
from privtab.moments import ALWAYS, Window
from privtab.request import Entity
from privtab.shard_names import GRANTS
from privtab.state import windowed

Entry = Any
"""`true`, or alternatives: each a list of principals whom a caller must not have, since they are denied the privilege."""


def parts(program: Program, document: Mapping[str, Any], keys: Callable[[Entity], list[str]]) -> dict[str, Any]:
    """The parts `below` and `owned_below` of an index, from its finished `allow`, `deny` and `owners`; `keys`: the keys on a path.

    `below`: privilege → entity → principal → entry, for the entities of the types that conditions ask about.
    `owned_below`: entity → owners of something below it, each with `true`.

    In a document with windows (`windowed.py`), for `windows` in the index: an entry is by entity of the row below the `times` of the row,
    and `denied`, principals whom a denial concerns there, each with its times. Owners have times.
    """
    privileges, owned = types_asked_below(program)
    windows: Mapping[str, Any] | None = document.get("windows")
    below: dict[str, Any] = {}
    for privilege in sorted(privileges):
        inherited = program.inherits(privilege)
        found: dict[str, dict[str, Any]] = {}
        allowed, denied = (_times(document, effect, privilege) for effect in GRANTS)
        for key, holders in allowed.items():
            path = keys(Entity.parse(key))
            above = [upper for upper in path[:-1] if upper.partition(":")[0] in privileges[privilege]]
            blockers: dict[str, list[Window]] = {}
            for on in (path if inherited else path[-1:]) if above else ():
                for principal, times in denied.get(on, {}).items():
                    blockers.setdefault(principal, []).extend(times)
            blocked = {principal: windowed.spans(blockers[principal]) for principal in sorted(blockers)}
            for entries in (found.setdefault(upper, {}) for upper in above):
                for principal, times in holders.items():
                    if windows is None:
                        entries[principal] = _either(entries.get(principal), [list(blocked)] if blocked else True)
                    else:
                        entry = {"times": windowed.spans(times), "denied": blocked}
                        entries.setdefault(principal, {})[key] = entry
        if found:
            below[privilege] = _ordered(found)
    owners: dict[str, dict[str, list[Window]]] = {}
    for key, holders in _times(document, "owners").items() if owned else ():
        for upper in keys(Entity.parse(key))[:-1]:
            if upper.partition(":")[0] in owned:
                for principal, times in holders.items():
                    owners.setdefault(upper, {}).setdefault(principal, []).extend(times)
    owning = {
        key: {principal: windows is None or windowed.spans(times) for principal, times in own.items()}
        for key, own in owners.items()
    }
    return {"below": below, "owned_below": _ordered(owning)}


def _times(document: Mapping[str, Any], part: str, *privilege: str) -> dict[str, dict[str, list[Window]]]:
    """Entity → principal → windows, of a part, or of one privilege in it."""
    always, timed = (
        own.get(part, {}).get(*privilege, {}) if privilege else own.get(part, {})
        for own in (document, document.get("windows", {}))
    )
    found = {key: {principal: [ALWAYS] for principal in holders} for key, holders in always.items()}
    for key, holders in timed.items():
        for principal, entry in holders.items():
            # Grants have the times of each row apart, since those of a role within a scope are elsewhere.
            spans = [span for times in entry.values() for span in times] if privilege else entry
            found.setdefault(key, {}).setdefault(principal, []).extend(Window(*span) for span in spans)
    return found


def _ordered(value: Any) -> Any:
    """Nested maps, sorted."""
    return {key: _ordered(value[key]) for key in sorted(value)} if isinstance(value, Mapping) else value


def types_asked_below(program: Program) -> tuple[dict[str, frozenset[str]], frozenset[str]]:
    """The types on which conditions ask for each privilege `or below`, and those on which ownership below counts."""
    privileges: dict[str, frozenset[str]] = {}
    owned: set[str] = set()
    owner = program.semantics.owner
    for atom in _atoms(program):
        if isinstance(atom, OwnsBelow) or (owner is not None and atom.privilege in owner.holds):
            owned.update(types_of(program, atom.target))
        if isinstance(atom, HasBelow):
            privileges[atom.privilege] = privileges.get(atom.privilege, frozenset()).union(
                types_of(program, atom.target)
            )
    return privileges, frozenset(owned)


def _atoms(program: Program) -> Iterator[HasBelow | OwnsBelow]:
    for rule in program.rules.values():
        yield from (atom for atom in atoms(item_condition(rule)) if isinstance(atom, HasBelow | OwnsBelow))


def _either(known: Entry, entry: Entry) -> Entry:
    """Two entries together: alternatives that ask for no less than another are left out."""
    if known is None or known is True or entry is True:
        return entry if known is None else True
    sets = {frozenset(alternative) for alternative in (*known, *entry)}
    return sorted(sorted(alternative) for alternative in sets if not any(other < alternative for other in sets))
