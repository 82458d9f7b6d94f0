"""What a state in parts goes by: the names of its shards, and one revision for all that is there of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping


def shard_name(root: str) -> str:
    """A root entity's key as the name of its shard below `at`, in manifests and in patches.

    OPA compares the roots of bundles as they are written and then reads them as URLs: what has a `%` in its key would
    never be written. In a patch `~` is an escape too.

    >>> shard_name("lake:a%2Fb!"), shard_name("lake:plain")
    ('lake:a!12Fb!0', 'lake:plain')
    """
    return root.replace("!", "!0").replace("%", "!1").replace("~", "!2")


def combined(people: str, shards: Mapping[str, str]) -> str:
    """The revision of a state in parts: of its people, and of each shard that is there, by root key. The policy's Rego has the same."""
    text = "\n".join([people, *(f"{root} {shards[root]}" for root in sorted(shards))])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
