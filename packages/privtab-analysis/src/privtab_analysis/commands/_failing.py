"""Reasons for which commands that compare fail: the words of `--fail-on`, and logs with gaps."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated

from privtab.base import UsageError
from privtab.command import option

IncompleteLogsOption = Annotated[
    bool, option("--allow-incomplete-logs", "Go on although parts of the logs cannot be used.")
]
EmptyLogsOption = Annotated[bool, option("--allow-empty", "Succeed although the logs have no decision to look at.")]


def failing_words(texts: Iterable[str] | None, known: Sequence[str], *, allow_incomplete: bool = False) -> list[str]:
    """The words of `--fail-on`; raises UsageError for one that is neither known nor `any`, or is allowed as well."""
    words = [word for text in texts or () for part in text.split(",") if (word := part.strip())]
    for word in words:
        if word not in (*known, "any"):
            raise UsageError(f"`--fail-on {word}`: there are {', '.join(known)} and any")
    if allow_incomplete and "incomplete" in words:
        raise UsageError("leave `--fail-on incomplete` or `--allow-incomplete-logs` off")
    return words
