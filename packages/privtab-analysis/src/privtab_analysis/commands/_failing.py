"""Reasons for which commands that compare fail: the words of `--fail-on`, and logs with gaps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

from privtab.base import UsageError, hint
from privtab.command import option

INCOMPLETE, EMPTY = "incomplete-logs", "empty-logs"
"""Logs of which parts cannot be used, and logs that have no decision to look at."""
LogsOption = Annotated[
    list[str] | None,
    option("--accept KIND", f"Go on although logs have gaps ({INCOMPLETE}) or no decision ({EMPTY}); repeatable."),
]


def accepted(
    texts: Iterable[str] | None, kinds: Sequence[str] = (INCOMPLETE, EMPTY), reasons: Sequence[str] = ()
) -> dict[str, str]:
    """What `--accept` accepts, with the reason of each of `reasons`, which needs one. Raises UsageError.

    >>> accepted(["empty-logs", "gains=olga leads the team now"], reasons=["gains"])
    {'empty-logs': '', 'gains': 'olga leads the team now'}
    """
    found: dict[str, str] = {}
    for text in texts or ():
        kind, sign, why = text.partition("=")
        if kind not in (*kinds, *reasons):
            known = [*(f"{name}=WHY" for name in reasons), *kinds]
            raise UsageError(f"`--accept {text}`: there are {', '.join(known)}" + hint(kind, [*kinds, *reasons]))
        if kind in found:
            raise UsageError(f"`--accept` is given twice for `{kind}`")
        if kind in reasons and not why.strip():
            raise UsageError(f"`--accept {kind}=WHY`: say why; the reason is kept in the channel's history")
        if kind in kinds and sign:
            raise UsageError(f"`--accept {kind}` takes no reason")
        found[kind] = why
    return found


def failing_words(texts: Iterable[str] | None, known: Sequence[str], *, allow_incomplete: bool = False) -> list[str]:
    """The words of `--fail-on`; raises UsageError for one that is neither known nor `any`, or is allowed as well."""
    words = [word for text in texts or () for part in text.split(",") if (word := part.strip())]
    for word in words or texts or ():  # an empty word must not switch the check off
        if word not in (*known, "any"):
            raise UsageError(f"`--fail-on {word}`: there are {', '.join(known)} and any")
    if allow_incomplete and "incomplete" in words:
        raise UsageError("leave `--fail-on incomplete` or `--accept incomplete-logs` off")
    return words
