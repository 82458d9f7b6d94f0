"""The faults for which every YAML reader here refuses a text before it parses the text."""

from __future__ import annotations

import yaml

from privtab.base.diagnostics import LINE_END
from privtab.base.lazy import pattern
from privtab.base.names import code_point

DEEPEST = 100
"""Limit on the levels of nested values: readers are recursive, and libyaml's time grows with the square of the depth."""
_BREAKS = pattern("[\x85\u2028\u2029]")


def check_line_breaks(text: str) -> None:
    """Raise yaml.MarkedYAMLError for a raw U+0085, U+2028 or U+2029.

    They end a line in YAML 1.1, which the parsers follow, and are plain characters in YAML 1.2 and to other tools: a name with
    one would be folded into another name, and text after one in a comment would be read as content.
    """
    found = _BREAKS.search(text)
    if found is None:
        return
    offset = found.start()
    ends = list(LINE_END.finditer(text, 0, offset))
    column = offset - (ends[-1].end() if ends else 0)
    raise yaml.MarkedYAMLError(
        problem=f"the raw character {code_point(found[0])} ends a line for some readers of YAML and not for others",
        problem_mark=yaml.Mark("", offset, len(ends), column, None, 0),
    )
