"""P224: ownership for the creator's active role, in a file whose requests name none or whose roles may not own."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from privtab.diagnostics import Diagnostic, FindingKind, Severity, Span

KIND = FindingKind("P224", "creator-without-role", Severity.ERROR)


def findings(span: Span, kinds: Collection[str], active_roles: str) -> Iterator[Diagnostic]:
    """What `creator: active_role` at `span` lacks in the `kinds` of owners and in `semantics.active_roles`."""
    if "role" not in kinds:
        message = (
            f"`creator: active_role` makes a role the owner, and a state refuses it: `kinds` has {' and '.join(kinds)}"
        )
        yield KIND.at(span, message, "add `role` to `kinds`")
    if active_roles == "none":
        message = "`creator: active_role` makes an active role the owner, and no request can name one"
        yield KIND.at(span, message, "let requests name them: `semantics: {active_roles: request}`")
