"""Names for the shards of a state and for what is in them, and one revision for all of its parts that are loaded."""

from __future__ import annotations

from collections.abc import Mapping

GRANTS = ("allow", "deny")
CONCERNED = (*GRANTS, "owners")
"""The content of a shard that windows concern."""
HELD = (*CONCERNED, "members")
"""The content of a shard, besides its revision."""
FURTHER_HELD = ("below", "entity_attributes", "owned_below")
"""Parts of a shard which only some policies have."""
BY_PRIVILEGE = (*GRANTS, "below")
"""The parts of a shard in which entities are listed by privilege."""


def shard_name(root: str) -> str:
    """The name of a root entity's shard below `at`, in manifests and in patches, from the entity's key.

    OPA compares the roots of bundles as written and then decodes them as URLs, so data below a key with `%` would never be
    written. In a patch, `~` is an escape too.

    >>> shard_name("lake:a%2Fb!"), shard_name("lake:plain")
    ('lake:a!12Fb!0', 'lake:plain')
    """
    return root.replace("!", "!0").replace("%", "!1").replace("~", "!2")


def sharded_revision(people: str, shards: Mapping[str, str]) -> str:
    """The revision of a sharded state: of its people, and of each loaded shard by root key. The policy's Rego computes the same.

    >>> len(sharded_revision("0f", {"lake:a": "1b"}))
    16
    """
    import hashlib  # for whoever has shards: loading it takes milliseconds

    text = "\n".join([people, *(f"{root} {shards[root]}" for root in sorted(shards))])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
