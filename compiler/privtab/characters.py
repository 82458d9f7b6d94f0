"""Which characters and what length names may have. Standard library only, shared by readers of states and requests."""

from __future__ import annotations

import re
from string import ascii_lowercase, ascii_uppercase, digits

LONGEST_NAME = 65_536
"""Maximum length of a name, or of the path of an entity, in a state."""
RANGES = ((0x00, 0x1F), (0x7F, 0x9F), (0x2028, 0x2029), (0xFFFE, 0xFFFF))
"""Controls (C0, DEL, C1), line and paragraph separators, and two noncharacters. With surrogates, no name may contain them.

Formats disagree about them: YAML folds raw line breaks such as U+0085 into a space and cannot hold others, CSV and terminals
interpret some, routers of web services end a path before a line feed, and lone surrogates cannot be encoded in UTF-8. A name
with one would be another name elsewhere. All other characters are part of a name and compared as they are, including
formatting characters, and composed and decomposed forms.
"""
UNUSABLE = "".join(rf"\x{{{first:x}}}-\x{{{last:x}}}" for first, last in RANGES)
"""These characters as part of a class in a regular expression of Go, RE2 or Java; UTF-8 cannot encode surrogates."""
PLAIN = f"{ascii_lowercase}/{digits}_-.{ascii_uppercase} !#$&'()+,:;<=>@[]^`{{|}}~"
"""Printable ASCII but for the signs of escapes, wildcards and quoted texts: what nearly all names consist of, common ones first."""
_UNUSABLE = re.compile(f"[{''.join(f'{chr(first)}-{chr(last)}' for first, last in RANGES)}\ud800-\udfff]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def unusable(text: str) -> str | None:
    r"""The first character that no name in a state or a request may contain, as `U+0085`; None if there is none.

    >>> unusable("a\tb"), unusable("caf\u00e9 \u202e")
    ('U+0009', None)
    """
    if text.isprintable():
        return None  # true for nearly all names
    found = _UNUSABLE.search(text)
    return code_point(found[0]) if found else None


def code_point(character: str) -> str:
    r"""The code point of a character, in Unicode's notation.

    >>> code_point("\t")
    'U+0009'
    """
    return f"U+{ord(character):04X}"


def is_unicode(text: str) -> bool:
    r"""Whether a text can be encoded in UTF-8: JSON and Python allow lone surrogates, `\ud800`."""
    return text.isascii() or not _SURROGATE.search(text)
