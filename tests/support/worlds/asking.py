"""Random requests about a policy's operations."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from unusual_names import UNUSABLE

from privtab.base.names import LEFT_OUT, is_unicode
from privtab.base.request import NOT_SET, Entity, Request
from privtab.ir.nodes import Program, Rule, WithSlot
from privtab.ir.serialise import vocabulary
from privtab_analysis.entitlements.universe import Universe
from worlds import active, attributes, flat
from worlds.names import entity, names


def requests(program: Program, seed: int, per_rule: int) -> list[Request]:
    """Random valid requests for every operation, named and unnamed, with objects, flags and groups."""
    rnd = random.Random(seed)
    known = names(program)
    found = []
    values = random.Random(f"attributes {seed}")
    endings = random.Random(f"endings {seed}")
    leaving_out = random.Random(f"left out {seed}")
    for rule in program.rules.values():
        for _ in range(per_rule):
            resource = entity(program, rule.entity, rnd)
            if rule.unnamed and not program.entities[rule.entity].single and rnd.random() < 0.4:
                if vocabulary(program).lies_in_state(rule.entity):
                    resource = flat.unnamed(program, resource, rnd)
                else:
                    container = resource.id.rpartition("/")[0]
                    end = _end(program, rule) or ("/" if container and endings.random() < 0.5 else "")
                    resource = Entity(rule.entity, container + end)
            found.append(
                Request(
                    user=rnd.choice([*known.users, *known.strangers]),
                    action=rule.operation,
                    resource=resource,
                    groups=tuple(g for g in (*known.groups, "other") if rnd.random() < 0.2),
                    with_={
                        w.name: named
                        for w in rule.withs
                        for named in [entity(program, rnd.choice(w.named), rnd)]
                        if not (LEFT_OUT in w.types and leaving_out.random() < 0.5)
                    },
                    flags=stated_flags(rule, frozenset(f for f in ("force", "Force", "unheard") if rnd.random() < 0.3)),
                )
            )
            if program.attributes:
                last = found[-1]
                attribute_values = attributes.request_attributes(program, values, last.resource, last.with_)
                found[-1] = replace(last, attributes=attribute_values)
    return active.narrowed(program, found, seed) if program.semantics.active_roles == "request" else found


def with_unusable_names(program: Program, requests: Sequence[Request], seed: int) -> list[Request]:
    """The same requests, each with a character in one of its names that no name may contain: every engine refuses them."""
    rnd = random.Random(f"unusable {seed}")
    characters = [character for character in UNUSABLE if is_unicode(character)]

    def spoilt(text: str) -> str:
        at = rnd.randint(0, len(text))
        return text[:at] + rnd.choice(characters) + text[at:]

    found = []
    for request in requests:
        resource = request.resource
        ways: list[dict[str, Any]] = [
            {"user": spoilt(request.user)},
            {"resource": Entity(resource.type, spoilt(resource.id))},
        ]
        ways += [{"with_": {**request.with_, slot: Entity(e.type, spoilt(e.id))}} for slot, e in request.with_.items()]
        if "request" in program.semantics.groups and request.groups:
            ways.append({"groups": (*request.groups, spoilt("hr"))})
        if request.active_roles:
            ways.append({"active_roles": (*request.active_roles[1:], spoilt(request.active_roles[0]))})
        found.append(replace(request, **rnd.choice(ways)))
    return found


def _end(program: Program, rule: Rule) -> str:
    """How an id without its last name ends."""
    return "/" if any(program.entities[link].nested for link in program.chain(rule.entity)) else ""


def stated_flags(rule: Rule, flags: frozenset[str]) -> frozenset[str]:
    """The flags, completed with the rule's other required flags as not set."""
    return flags | {f"{flag}{NOT_SET}" for flag in rule.required_flags if flag not in flags}


def choices(slot: WithSlot, universe: Universe) -> list[Entity | None]:
    """The entities of a universe that a `with` object may be, and None if a request may leave it out."""
    none: list[Entity | None] = [None] if LEFT_OUT in slot.types else []
    return [e for type_ in slot.named for e in universe.by_type[type_].values()] + none
