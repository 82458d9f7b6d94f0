"""Names of entities and principals: how they are written in paths, and which there cannot be.

Standard library only. Names in columns (Arrow, Spark) are written by the same `ESCAPES`.
"""

from __future__ import annotations

import re

from privtab.characters import is_unicode
from privtab.errors import InvalidRequest

KINDS = ("user", "group", "role")
"""The kinds of principals."""
WILDCARDS = "*?%"
"""What other systems write for any name. Here it would be one name as any other, so it is taken for none."""
ESCAPES = (("%", "%25"), ("/", "%2F"))
"""Signs that a name of a path does not hold as they are, and what stands for each: in this order they are written."""
WILDCARD_ESCAPES = (("*", "%2A"), ("?", "%3F"))
"""The same for names that are nothing but wildcards."""
_WRONG_ESCAPE = re.compile(r"%(?!2F|25).{0,2}")
_ESCAPED_WILDCARD = re.compile(r"(?:%2A|%3F)+")
_KIND = re.compile(r"(user|group|role):", re.IGNORECASE)


def encode_name(name: str) -> str:
    """One name of a path, percent-encoded where it holds `/` or `%`, or is nothing but `*` and `?`.

    >>> encode_name("a/b 100%"), encode_name("*"), encode_name("a*")
    ('a%2Fb 100%25', '%2A', 'a*')
    """
    if not name.strip("*?"):
        return escape_wildcard(name)
    for sign, escape in ESCAPES:
        name = name.replace(sign, escape)
    return name


def decode_name(name: str) -> str:
    """A name of a path as the name of a principal is written: there `%2A` and `%3F` stay as they are.

    >>> decode_name("a%2Fb 100%25"), decode_name("%2A")
    ('a/b 100%', '%2A')
    """
    if "%" in name:
        for sign, escape in reversed(ESCAPES):
            name = name.replace(escape, sign)
    return name


def last_name(path: str) -> str:
    """The last name of a path, as the name of a principal is written.

    >>> last_name("m/a%2Fb")
    'a/b'
    """
    return decode_name(path.rpartition("/")[2])


def refers_to(principal: str, path: str) -> bool:
    """Whether the name of a principal stands for the entity at a path: it is its last name, or spells the whole path.

    >>> refers_to("eng", "m/eng"), refers_to("m/eng", "m/eng"), refers_to("m", "m/eng")
    (True, True, False)
    """
    return principal == path or principal == last_name(path)


def path_of(key: str) -> str:
    """The path of a key.

    >>> path_of("table:m/c/s/t")
    'm/c/s/t'
    """
    return key.partition(":")[2]


def is_wildcard(name: str) -> bool:
    """Whether a name is nothing but wildcards of other systems.

    >>> is_wildcard("*"), is_wildcard("%"), is_wildcard("sales_*"), is_wildcard("%2A"), is_wildcard("")
    (True, True, False, False, False)
    """
    return bool(name) and not name.strip(WILDCARDS)


def wrong_escape(name: str) -> str | None:
    """The first `%` of a name in a path that begins no escape, with what follows it."""
    if "%" not in name or _ESCAPED_WILDCARD.fullmatch(name):
        return None
    found = _WRONG_ESCAPE.search(name)
    return found[0] if found else None


def bare_name(text: str, kind: str) -> str:
    """A principal's name, written alone or as `kind:name`; reading it twice is reading it once.

    >>> bare_name("user:alice", "user"), bare_name("alice", "user"), bare_name("user:user:alice", "user")
    ('alice', 'alice', 'user:user:alice')
    """
    name = text.removeprefix(f"{kind}:")
    return text if not name or name.startswith(f"{kind}:") or (kind == "user" and _KIND.match(name)) else name


def check_user(name: str) -> None:
    """Raise InvalidRequest for a name that cannot be a user's: a wildcard, another principal, a doubled `user:`."""
    if is_wildcard(name):
        raise InvalidRequest(
            f"`{name}` is no user: there are no wildcards; a user of this name is written `{escape_wildcard(name)}`"
        )
    kind = _KIND.match(name)
    if kind is None:
        return
    if kind[1] in ("group", "role"):
        raise InvalidRequest(f"`{name}` is a {kind[1]}: only a user can ask")
    if kind[1] != "user":
        raise InvalidRequest(f"`{name}` is no user: write the kind in lower case, as in `user:alice`")
    raise InvalidRequest(f"`{name}` is no user: write `alice` or `user:alice`; no user's name begins with `user:`")


def escape_wildcard(name: str) -> str:
    """How a name that is nothing but wildcards is written, in a path and as a principal."""
    for sign, escape in (*ESCAPES, *WILDCARD_ESCAPES):
        name = name.replace(sign, escape)
    return name


def check_unicode(name: str) -> None:
    """Raise InvalidRequest for half of a surrogate pair: OPA reads any of those as U+FFFD, and takes one name for another."""
    if not is_unicode(name):
        raise InvalidRequest(f"a name is not valid Unicode: {name!a:.80}")
