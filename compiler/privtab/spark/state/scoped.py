"""Compute the index entries of roles held within scopes: where their grants take effect."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from privtab.arrow import Codes
from privtab.ir.nodes import Program
from privtab.ir.serialise import vocabulary
from privtab.request import Entity
from privtab.spark.state.encoding import Texts
from privtab.state.principal_texts import scoped_principal


def scoped_entries(
    program: Program,
    grants: tuple[Codes, Codes, Codes],
    privileges: Sequence[str],
    keys: Texts,
    names: Texts,
    scopes: Codes,
    roles: Codes,
) -> list[tuple[str, str, str, tuple[str, ...]]]:
    """(privilege, key, principal, entities of the rows) for each role within a scope, as entered by `state.index`.

    `scopes` and `roles`: the assigned pairs, by number of key and name. A grant at or below a scope counts at its own entity; one
    above it counts at the scope, if the policy has inheritance.
    """
    privilege, key, name = grants
    if not len(scopes) or not len(name):
        return []
    mask = np.isin(name, np.unique(roles))
    privilege, key, name = privilege[mask], key[mask], name[mask]
    if not len(name):
        return []
    inherits = program.semantics.inheritance == "down"
    count = len(keys)
    above = vocabulary(program).keys
    text = {int(code): keys[int(code)].as_py() for code in np.unique(np.concatenate([key, scopes]))}
    code_of = {value: code for code, value in text.items()}
    upper = {code: [code_of[k] for k in above(Entity.parse(value)) if k in code_of] for code, value in text.items()}
    scope_codes = set(scopes.tolist())

    # (role, entity of a grant) → pairs of the entity where it counts and the scope.
    at_or_below = [(k, s) for k in np.unique(key).tolist() for s in upper[k] if s in scope_codes]
    held = set(zip(roles.tolist(), scopes.tolist(), strict=True))
    granted = np.unique(name * count + key)
    pairs = {(int(p) // count, int(p) % count) for p in granted}
    by_key: dict[int, list[int]] = {}
    for k, s in at_or_below:
        by_key.setdefault(k, []).append(s)
    places: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for role, k in pairs:
        for s in by_key.get(k, ()):
            if (role, s) in held:
                places.setdefault((role, k), []).append((k, s))
    if inherits:
        for role, s in held:
            for k in upper[s]:
                if (role, k) in pairs and s not in upper[k]:
                    places.setdefault((role, k), []).append((s, s))
    if not places:
        return []
    wanted_keys = np.array(sorted(role * count + k for role, k in places), np.int64)
    hits = np.isin(name * count + key, wanted_keys)
    found: dict[tuple[str, str, str], set[str]] = {}
    for p, k, n in zip(privilege[hits].tolist(), key[hits].tolist(), name[hits].tolist(), strict=True):
        role = names[n].as_py()
        for position, s in places[n, k]:
            entry = (privileges[p], text[position], scoped_principal(role, text[s]))
            found.setdefault(entry, set()).add(text[k])
    return [(*entry, tuple(sorted(entities))) for entry, entities in sorted(found.items())]
