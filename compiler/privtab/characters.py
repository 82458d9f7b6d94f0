"""Which characters and what length names may have. Standard library only, shared by readers of states and requests."""

from __future__ import annotations

import re

LONGEST_NAME = 65_536
"""Maximum length of a name, or of the path of an entity, in a state."""
_UNUSABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
"""Controls (C0, DEL, C1), line and paragraph separators, surrogates, and two noncharacters.

Formats disagree about them: YAML folds raw line breaks such as U+0085 into a space and cannot hold others, CSV and terminals
interpret some, and lone surrogates cannot be encoded in UTF-8. A name with one would be another name elsewhere. All other
characters are part of a name and compared as they are, including formatting characters, and composed and decomposed forms.
"""
_SURROGATE = re.compile("[\ud800-\udfff]")


def unusable(text: str) -> str | None:
    r"""The first character that no name of a state may contain, as `U+0085`; None if there is none.

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
