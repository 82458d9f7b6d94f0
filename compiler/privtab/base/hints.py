"""Computed advice: the nearest name, and lists of names as text. Standard library only, used by every room."""

from __future__ import annotations

from collections.abc import Iterable

from privtab.base.names import PRINCIPAL_KINDS

_MOST_CANDIDATES = 2000
_MOST_LISTED = 12


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.7) -> str | None:
    """The known name that was most likely meant by `name`. Ignores case, and differences between spaces, `-` and `_`.

    >>> nearest("MODIFIY", ["MODIFY", "CREATE"])
    'MODIFY'
    """
    names = list(known)
    folded = _folded("\0".join(names)).split("\0")  # all at once: there may be 100,000
    if len(folded) != len(names):
        folded = list(map(_folded, names))
    by_fold = dict(zip(reversed(folded), reversed(names), strict=True))
    folded_name = _folded(name)
    if folded_name in by_fold:
        return by_fold[folded_name]
    candidates: list[str] = list(by_fold)
    if len(candidates) > _MOST_CANDIDATES:
        candidates = sorted(c for c in candidates if abs(len(c) - len(folded_name)) <= 2 and c[:1] == folded_name[:1])[
            :_MOST_CANDIDATES
        ]
    from difflib import get_close_matches

    near = get_close_matches(folded_name, candidates, n=1, cutoff=cutoff)
    return by_fold[near[0]] if near else None


def did_you_mean(name: str, known: Iterable[str], *, cutoff: float = 0.7) -> str | None:
    """`did you mean …?`, or None if no name is near.

    >>> did_you_mean("MODIFIY", ["MODIFY", "CREATE"])
    'did you mean `MODIFY`?'
    """
    near = nearest(name, known, cutoff=cutoff)
    return f"did you mean `{near}`?" if near else None


def hint(name: str, known: Iterable[str]) -> str:
    """`; did you mean …?` for the end of a message; empty if no name is near.

    >>> hint("MODIFIY", ["MODIFY", "CREATE"]), hint("x", ["MODIFY"])
    ('; did you mean `MODIFY`?', '')
    """
    advice = did_you_mean(name, known, cutoff=0.6)
    return f"; {advice}" if advice else ""


def listed_names(names: Iterable[str], *, last: str = "and") -> str:
    """Names in backticks, as text; a long list is cut short.

    >>> listed_names(["a", "b", "c"], last="or")
    '`a`, `b` or `c`'
    """
    quoted = [f"`{name}`" for name in names]
    if len(quoted) > _MOST_LISTED:
        quoted = [*quoted[: _MOST_LISTED - 1], f"{len(quoted) - _MOST_LISTED + 1} more"]
    return f" {last} ".join(filter(None, (", ".join(quoted[:-1]), *quoted[-1:])))


def not_a_condition(name: str) -> str | None:
    """The advice for a kind of principal in a condition; None for other names.

    >>> not_a_condition("Role")
    'roles are not conditions; write the privilege that the role is granted, as in `READ (TYPE)`'
    """
    kind = name.lower().removesuffix("s")
    if kind not in PRINCIPAL_KINDS:
        return None
    return f"{kind}s are not conditions; write the privilege that the {kind} is granted, as in `READ (TYPE)`"


def _folded(name: str) -> str:
    return name.casefold().replace(" ", "_").replace("-", "_")
