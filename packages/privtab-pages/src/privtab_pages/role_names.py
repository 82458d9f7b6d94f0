"""The roles that a text of a page names: one, several, or one and all above it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from privtab_pages.names import identifier

ROLE = re.compile(
    r"\b(?:admins?|administrators?|owners?|editors?|viewers?|guests?|members?|developers?|maintainers?|managers?|users?|moderators?|operators?|analysts?|contributors?|readers?|writers?|authors?|auditors?|reviewers?|reporters?|engineers?|collaborators?|anonymous|everyone|leaders?|staff|superusers?|roles?|agents?|publishers?|experimenters?|planners?|customers?|employees?|creators?|interactive|no access|read[ -]only|full access|supervisors?|support|principals?|masters?|observers?|bots?|livechat|can (?:view|edit))\b",
    re.IGNORECASE,
)
_UP = "(?:above|higher|up|greater)"
AND_ABOVE = re.compile(rf"\s*(?:\+|\b(?:and|or) {_UP})\Z", re.IGNORECASE)
_BETWEEN = re.compile(rf"\s*(?:[,;/&\n]|\b(?:and|or)\b(?! {_UP}\b))\s*", re.IGNORECASE)
_NAME = re.compile(r"[A-Za-z][\w.-]*(?: [A-Za-z][\w.-]*){0,2}")
_NO_ROLE = re.compile(
    r"\b(?:any|any(?:one|body)|every(?:one|body)|all|public|own|only|if|no|none|nobody|not|never|except|see|who|with|yes|varies|same|tbd|partial(?:ly)?|limited|conditional\w*|depend\w*|optional\w*|some|unknown)\b",
    re.IGNORECASE,
)
_READ_ONLY = re.compile(r"(?:read|view)[ -]only|no access", re.IGNORECASE)
"""Names of roles with words that else say more than a name."""
_CHAIN = re.compile(
    r"(?<![\w -])[\w -]+(?:(?:<[\w -]+)+|(?:>[\w -]+)+)"
)  # from the first word on: long texts stay quick
_ORDER = re.compile(
    r"(?:.*\b(?:(?P<up>(?:lowest|least)\b[^:]*\b(?:highest|most)|ascending)|(?:highest|most)\b[^:]*\b(?:lowest|least)|descending)\b[^:]*):(?P<names>(?:[\w -]+,)+[\w -]+)\.?",
    re.IGNORECASE,
)
_EVERYTHING = re.compile(
    r"(?:(?P<of>[\w.-]+) )?(?P<role>administrator|admin|super-?user)s? (?:ha(?:ve|s) (?:all|full) (?:access|permissions|privileges|rights)|can (?:do|perform) (?:anything|everything|(?:all|any) (?:actions?|operations?)))[.!]?",
    re.IGNORECASE,
)
_EVERYWHERE = frozenset(["", "global", "instance", "server", "site", "system"])
_NUMBER = re.compile(r"\s*\([^()]*\)|(?<=[<>])=")


def roles_in(text: str, ranks: Sequence[str] = ()) -> list[str] | None:
    """The roles that a text names; None for other texts, and for a role and all above it if the page ranks it nowhere.

    >>> roles_in("Owner, Admin"), roles_in("Guest and above", ["guest", "owner"]), roles_in("Owner (own)")
    (['Owner', 'Admin'], ['guest', 'owner'], None)
    """
    found: list[str] = []
    names = [*map(identifier, ranks)]
    for part in filter(None, _BETWEEN.split(text)):
        name = AND_ABOVE.sub("", part)
        if not _NAME.fullmatch(name) or _NO_ROLE.search(_READ_ONLY.sub("", name)):
            return None
        if name == part:
            found.append(name)
        elif identifier(name) in names:
            found += ranks[names.index(identifier(name)) :]
        else:
            return None
    return found


def ranked(lines: Iterable[str]) -> list[str]:
    """The roles from the lowest up, as a line of the page says: `guest < editor`, or `From lowest to highest: guest, editor`."""
    for line in lines:
        if said := _ORDER.fullmatch(line):
            listed = roles_in(said["names"].strip()) or []
            return listed if said["up"] else listed[::-1]
        for chain in _CHAIN.findall(_NUMBER.sub("", line)):
            names = [name.strip() for name in re.split("[<>]", chain)]
            if all(map(_NAME.fullmatch, names)):
                return names if "<" in chain else names[::-1]
    return []


def all_powerful(lines: Iterable[str], system: str) -> str:
    """The role that a sentence of the page gives everything, not only within something else than the system; empty if none does.

    >>> all_powerful(["Roles. Shop administrators have all permissions."], "shop"), all_powerful(["Project admins can do anything."], "shop")
    ('administrator', '')
    """
    sentences = (sentence for line in lines for sentence in re.split(r"(?<=[.!]) ", line))
    found = filter(None, map(_EVERYTHING.fullmatch, sentences))
    of = {identifier(match["role"]): (match["of"] or "").lower() for match in found}
    return next((role for role, where in of.items() if where in _EVERYWHERE | {system.lower()}), "")
