"""What rows of a state are checked by, from the JSON of a compiled policy: its names, without its conditions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from privtab.ir.nodes import Alias, EntityType, OwnerSemantics, Privilege, Program, Role, Semantics


def program_from_json(document: Mapping[str, Any]) -> Program:
    """A program without rules: enough to tell good rows from wrong ones, not to index or decide."""
    semantics = document["semantics"]
    owner = semantics["owner"]
    return Program(
        system=document["system"],
        version=document["version"],
        title=document.get("title"),
        entities={
            name: EntityType(name=name, parent=e["parent"], single=e["single"])
            for name, e in document["entities"].items()
        },
        privileges={name: Privilege(name=name, on=tuple(p["on"])) for name, p in document["privileges"].items()},
        aliases={name: Alias(name=name, of=of) for name, of in document["aliases"].items()},
        sets={name: tuple(members) for name, members in document["sets"].items()},
        roles={
            name: Role(name=name, scope=r["scope"], grants=tuple((t, tuple(ps)) for t, ps in r["grants"].items()))
            for name, r in document["roles"].items()
        },
        semantics=Semantics(
            inheritance=semantics["inheritance"],
            deny=semantics["deny"],
            owner=owner
            and OwnerSemantics(kinds=tuple(owner["kinds"]), creator=owner["creator"], holds=tuple(owner["holds"])),
            groups=tuple(semantics["groups"]),
        ),
        rules={},
    )
