"""Names of entities and principals: how paths encode them, and which are invalid.

Standard library only. Columns of names in Arrow use the same `ESCAPES`, and Spark derives its own from `encode_name`.
"""

from __future__ import annotations

import re
import unicodedata
from string import ascii_lowercase, ascii_uppercase, digits
from typing import Literal, TypeAlias

from privtab.base.errors import InvalidRequest
from privtab.base.lazy import pattern

LONGEST_NAME = 65_536
"""Maximum length of a name, or of the path of an entity, in a state."""
RANGES = ((0x00, 0x1F), (0x7F, 0x9F), (0x2028, 0x2029), (0xFFFE, 0xFFFF))
"""Controls (C0, DEL, C1), line and paragraph separators, and two noncharacters. With surrogates, no name may contain them.

Formats disagree about them: YAML folds raw line breaks such as U+0085 into a space and cannot hold others, CSV and terminals
interpret some, routers of web services end a path before a line feed, and lone surrogates cannot be encoded in UTF-8. A name
with one would be another name elsewhere. All other characters are compared as they are, including composed and decomposed
forms. What policies and states may not hold either, since nobody sees it, is `invisible`; requests may.
"""
UNUSABLE = "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in RANGES)
"""These characters as part of a class in a regular expression of Go, RE2 or Java; UTF-8 cannot encode surrogates."""
PLAIN_CHARACTERS = f"{ascii_lowercase}/{digits}_-.{ascii_uppercase} !#$&'()+,:;<=>@[]^`{{|}}~"
"""Printable ASCII but for the signs of escapes, wildcards and quoted texts: what nearly all names consist of, common ones first."""
_UNUSABLE = pattern(f"[{''.join(f'{chr(first)}-{chr(last)}' for first, last in RANGES)}\ud800-\udfff]")
_SURROGATE = pattern("[\ud800-\udfff]")
FILLERS = (
    "\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2065\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufff8"
    "\U00016fe4\U0001d159\U000e0000-\U000e0fff"
)
"""Letters, marks and signs that show nothing: fillers, joiners, variation selectors, what Unicode keeps for more; a part of a class in a regular expression."""
_FILLER = pattern(f"[{FILLERS}]")
_ONE_SCRIPT = pattern(
    "CJK|HIRA|KATA|HANG|BOPO|HALF|IDEO|MODI|SUPERSCR|SUBSCR|MICRO|FEMININE|MASCULINE|KELVIN|ANGSTR|OHM|TURNED|ROMAN"
)
"""How Unicode's names of letters begin that are usual beside those of other scripts."""


def unusable_character(text: str) -> str | None:
    r"""The first character that no name in a state or a request may contain, as `U+0085`; None if there is none.

    >>> unusable_character("a\tb"), unusable_character("caf\u00e9 \u202e")
    ('U+0009', None)
    """
    if text.isprintable():
        return None  # true for nearly all names
    found = _UNUSABLE.search(text)
    return code_point(found[0]) if found else None


def invisible(text: str) -> str | None:
    r"""The first character of a name that shows nothing, or another blank than U+0020; None if there is none.

    >>> invisible("a\u200bb"), invisible("Ann Smith")
    ('U+200B ZERO WIDTH SPACE', None)
    """
    if text.isascii():
        return None
    hidden = (c for c in text if (unicodedata.category(c) in {"Cf", "Zs"} and c != " ") or _FILLER.match(c))
    return next(map(named_code_point, hidden), None)


def mixed_scripts(text: str) -> str | None:
    r"""The letter by which a name in a text mixes scripts, whose letters look alike; None if none does.

    >>> mixed_scripts("user:\u0430nn"), mixed_scripts("user:\u0430")
    ('U+0430 CYRILLIC SMALL LETTER A beside LATIN letters', None)
    """
    return None if text.isascii() else next(filter(None, map(_mixed, re.split("[:/]", text))), None)


def _mixed(name: str) -> str | None:
    scripts: dict[str, list[str]] = {}
    for letter in name:
        if unicodedata.category(letter)[0] == "L":
            words = unicodedata.name(letter, "UNKNOWN").replace("-", " ").split()
            scripts.setdefault("LATIN" if "LATIN" in words else words[0], []).append(letter)
    counts = sorted((len(letters), script) for script, letters in scripts.items() if not _ONE_SCRIPT.match(script))
    few, most = (counts[0][1], counts[-1][1]) if counts else ("", "")
    return None if few == most else f"{named_code_point(scripts[few][0])} beside {most} letters"


def named_code_point(character: str) -> str:
    """The code point of a character and its name in Unicode."""
    return f"{code_point(character)} {unicodedata.name(character, 'without a name')}"


def code_point(character: str) -> str:
    r"""The code point of a character, in Unicode's notation.

    >>> code_point("\t")
    'U+0009'
    """
    return f"U+{ord(character):04X}"


def is_unicode(text: str) -> bool:
    r"""Return whether a text can be encoded in UTF-8: JSON and Python allow lone surrogates, `\ud800`."""
    return text.isascii() or not _SURROGATE.search(text)


PrincipalKind: TypeAlias = Literal["user", "group", "role"]
PRINCIPAL_KINDS: tuple[PrincipalKind, ...] = ("user", "group", "role")
"""The kinds of principals, as in `group:hr`."""
LEFT_OUT = ""
"""The type of an object that a request leaves out, as `Request.types` returns it."""
NO_OBJECT = "none"
"""How a row says among the types of an object that requests may leave it out."""
WILDCARDS = "*?%"
"""Wildcards of other systems. Here they would be ordinary names, so names that consist of them are refused."""
ANY_PRIVILEGE = "any privilege"
"""How conditions ask for at least one privilege, whichever it is: `any privilege (table)`."""
NAMED_PRIVILEGE = "named privilege"
"""How conditions ask for the privilege that the request names."""
PRIVILEGE_ATTRIBUTE = "privilege"
"""The attribute in which a request names it."""
SCOPED = "scoped:"
"""How principals of an index begin that stand for a role within a scope."""
ESCAPES = (("%", "%25"), ("/", "%2F"))
"""Characters that names in a path cannot contain, with their escapes, in the order of encoding."""
WILDCARD_ESCAPES = (("*", "%2A"), ("?", "%3F"))
"""The same for names that consist only of wildcards."""
_NEXT_WORD = pattern(r"(?<=[a-z0-9])(?=[A-Z])")
_WRONG_ESCAPE = pattern(r"%(?!2F|25).{0,2}")
_ESCAPED_WILDCARD = pattern(r"(?:%2A|%3F)+")
_KIND = pattern(r"(user|group|role):", re.IGNORECASE)
_MISSPELT = pattern(r"(user|group|role)s:", re.IGNORECASE)


def small_letters(name: str) -> str:
    """A name with `_` between words that begin with a capital, in small letters.

    >>> small_letters("SelectFromColumns"), small_letters("ownerID"), small_letters("GET")
    ('select_from_columns', 'owner_id', 'get')
    """
    return _NEXT_WORD.sub("_", name).lower()


def quoted_privilege(privilege: str) -> str:
    """A privilege's name as conditions spell it: in quotes if it has several words, but for `any privilege`.

    >>> quoted_privilege("READ"), quoted_privilege("USE CATALOG")
    ('READ', '"USE CATALOG"')
    """
    return f'"{privilege}"' if " " in privilege and privilege != ANY_PRIVILEGE else privilege


def encode_name(name: str) -> str:
    """Encode a name for a path: percent-encode `/` and `%`, and a name that consists only of `*` and `?`.

    >>> encode_name("a/b 100%"), encode_name("*"), encode_name("a*")
    ('a%2Fb 100%25', '%2A', 'a*')
    """
    if not name.strip("*?"):
        return escape_wildcard(name)
    for sign, escape in ESCAPES:
        name = name.replace(sign, escape)
    return name


def decode_name(name: str) -> str:
    """Decode a name of a path to the form of principals' names, in which `%2A` and `%3F` remain.

    >>> decode_name("a%2Fb 100%25"), decode_name("%2A")
    ('a/b 100%', '%2A')
    """
    if "%" in name:
        for sign, escape in reversed(ESCAPES):
            name = name.replace(escape, sign)
    return name


def unencoded_name(name: str) -> str:
    """The name that a path encodes; the inverse of `encode_name`.

    >>> unencoded_name("a%2Fb"), unencoded_name("%2A"), unencoded_name("%252A")
    ('a/b', '*', '%2A')
    """
    if not _ESCAPED_WILDCARD.fullmatch(name):
        return decode_name(name)
    for sign, escape in WILDCARD_ESCAPES:
        name = name.replace(escape, sign)
    return name


def last_name(path: str) -> str:
    """The last name of a path, decoded to the form of principals' names.

    >>> last_name("m/a%2Fb")
    'a/b'
    """
    return decode_name(path.rpartition("/")[2])


def refers_to(principal: str, path: str) -> bool:
    """Return whether a principal's name refers to the entity at a path: it is the last name, or the whole path.

    >>> refers_to("eng", "m/eng"), refers_to("m/eng", "m/eng"), refers_to("m", "m/eng")
    (True, True, False)
    """
    return principal == path or principal == last_name(path)


def is_wildcard(name: str) -> bool:
    """Return whether a name consists only of wildcards of other systems.

    >>> is_wildcard("*"), is_wildcard("%"), is_wildcard("sales_*"), is_wildcard("%2A"), is_wildcard("")
    (True, True, False, False, False)
    """
    return bool(name) and not name.strip(WILDCARDS)


def wrong_escape(name: str) -> str | None:
    """The first `%` in a name of a path that does not begin an escape, with the characters that follow it."""
    if "%" not in name or _ESCAPED_WILDCARD.fullmatch(name):
        return None
    found = _WRONG_ESCAPE.search(name)
    return found[0] if found else None


def bare_name(text: str, kind: str) -> str:
    """The name of a principal given as a name or as `kind:name`; applying it twice changes nothing.

    >>> bare_name("user:alice", "user"), bare_name("alice", "user"), bare_name("user:user:alice", "user")
    ('alice', 'alice', 'user:user:alice')
    """
    name = text.removeprefix(f"{kind}:")
    return text if not name or name.startswith(f"{kind}:") or (kind == "user" and _KIND.match(name)) else name


def misspelt_kind(text: str) -> str | None:
    """The beginning of a name that is nearly a kind of principal, as in `groups:eng`, and so no name of its own.

    >>> misspelt_kind("groups:eng"), misspelt_kind("urn:eng")
    ('group', None)
    """
    found = _MISSPELT.match(text)
    return found[1].lower() if found else None


def check_principal(name: str, kind: PrincipalKind = "user") -> None:
    """Raise InvalidRequest for a name, without its prefix, that no principal of a kind can have.

    Such are wildcards, another kind's prefix, a doubled one, and an unusable character.

    >>> check_principal("ann")
    >>> check_principal("group:hr")
    Traceback (most recent call last):
    privtab.base.errors.InvalidRequest: `group:hr` is a group: only a user can be a subject
    """
    check_characters(name, kind)
    if (misspelt := misspelt_kind(name)) is not None:
        rest = name.partition(":")[2]
        raise InvalidRequest(f"`{name}` is not a {kind}: did you mean `{misspelt}:{rest}`?")
    if is_wildcard(name):
        raise InvalidRequest(
            f"`{name}` is not a {kind}: there are no wildcards; a {kind} of this name is written `{escape_wildcard(name)}`"
        )
    found = _KIND.match(name)
    if found is None:
        return
    if found[1] not in PRINCIPAL_KINDS:
        raise InvalidRequest(f"`{name}` is not a {kind}: write the kind in lower case, as in `{kind}:alice`")
    if found[1] != kind:
        advice = ": only a user can be a subject" if kind == "user" else f", not a {kind}"
        raise InvalidRequest(f"`{name}` is a {found[1]}{advice}")
    raise InvalidRequest(
        f"`{name}` is not a {kind}: write `alice` or `{kind}:alice`; no {kind}'s name begins with `{kind}:`"
    )


def escape_wildcard(name: str) -> str:
    """Escape a name that consists only of wildcards, for a path and for a principal."""
    for sign, escape in (*ESCAPES, *WILDCARD_ESCAPES):
        name = name.replace(sign, escape)
    return name


def check_characters(name: str, what: str) -> None:
    """Raise InvalidRequest for a name or a path with a character that no name may contain. `what` it names is for the message."""
    if (character := unusable_character(name)) is not None:
        raise InvalidRequest(f"malformed {what} {name!a:.80}: a name cannot contain the character {character}")
