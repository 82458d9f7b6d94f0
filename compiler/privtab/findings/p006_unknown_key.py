"""P006: an unknown key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span
from privtab.hints import did_you_mean, listed, nearest

KIND = FindingKind("P006", "unknown-key", Severity.ERROR)


_STATE = (
    "grants and memberships are not part of a policy: they are tables of the state, which commands read from `--state`"
)
_SEMANTICS = "it belongs under `semantics`"
_CONDITION = "write `requires`"
INSTEAD: Mapping[str, Mapping[str, str]] = {
    "a policy file": {
        **dict.fromkeys(("grants", "users", "groups", "members", "memberships", "assignments", "owners"), _STATE),
        **dict.fromkeys(("inheritance", "deny", "owner", "gate"), _SEMANTICS),
        **dict.fromkeys(("rules", "operations", "policies", "policy", "resources", "rows"), "write `tables`"),
        **dict.fromkeys(("permissions", "actions", "rights", "scopes"), "write `privileges`"),
        **dict.fromkeys(("types_of_entities", "hierarchy", "objects"), "write `entities`"),
    },
    "a row": {
        **dict.fromkeys(("if", "when", "condition", "allow", "permission", "permissions", "privileges"), _CONDITION),
        **dict.fromkeys(("deny", "effect"), "rows only require: denials are rows of the state, with `effect: deny`"),
        "parameters": "write `with`",
        "description": "write `title` or `note`",
    },
}
"""What to write instead of keys known from other tools, by the kind of mapping."""


def finding(span: Span, key: str, where: str, known: Sequence[str]) -> Diagnostic:
    """Build the finding for `key`, which `where` does not have."""
    return KIND.at(
        span,
        f"unknown key `{key}` in {where}",
        INSTEAD.get(where, {}).get(key) or did_you_mean(key, known) or f"the keys of {where} are {listed(known)}",
        fix=None if key in INSTEAD.get(where, {}) else nearest(key, known),
    )
