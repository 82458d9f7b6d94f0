"""Which characters and how long a text a name may have; standard library only, shared by readers of states and requests."""

from __future__ import annotations

import re

LONGEST_NAME = 65_536
"""Characters of a name, or of the path of an entity, in a state."""
_UNUSABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufffe\uffff]")
"""Controls (C0, DEL, C1), separators of lines and paragraphs, halves of surrogate pairs, and two noncharacters.

Formats disagree about them: YAML folds raw line breaks such as U+0085 into a space and cannot hold others, CSV and terminals
have meanings of their own for some, and halves of pairs cannot be written in UTF-8. A name with one would be another name
elsewhere. All other characters are part of a name and compared as they are: formatting characters, and composed and
decomposed forms too.
"""
_HALF = re.compile("[\ud800-\udfff]")


def unusable(text: str) -> str | None:
    r"""The first character that no name of a state may hold, as `U+0085`; None where there is none.

    >>> unusable("a\tb"), unusable("caf\u00e9 \u202e")
    ('U+0009', None)
    """
    if text.isprintable():
        return None  # as nearly all are
    found = _UNUSABLE.search(text)
    return code_point(found[0]) if found else None


def code_point(character: str) -> str:
    r"""A character by its number, as Unicode writes it.

    >>> code_point("\t")
    'U+0009'
    """
    return f"U+{ord(character):04X}"


def is_unicode(text: str) -> bool:
    r"""Whether a text can be written as UTF-8: JSON and Python can spell half a surrogate pair, `\ud800`."""
    return text.isascii() or not _HALF.search(text)
