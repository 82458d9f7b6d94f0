"""Read the program of a bundle from its JSON, for comparisons.

The running policy is compared from its own bundle, so that nothing else has to be stored and bundles from any source can
be compared. Only texts are lost (notes, titles of types, positions in files).
"""

from __future__ import annotations

from dataclasses import replace

from privtab import strict_json
from privtab.bundle.archive import json_bytes
from privtab.ir.deserialise import program_from_json
from privtab.ir.nodes import Program
from privtab.ir.serialise import program_json
from privtab.pipeline import optimised


def comparable(program: Program) -> Program:
    """A program as read back from its own bundle, with positions in its file: two of these differ only if the bundles do."""
    # Go through the bundle's JSON, so that types and operations have its order on both sides.
    document = strict_json.loads(json_bytes(program_json(program, optimised(program))))
    restored = program_from_json(document, f"{program.system}/{program.version}")
    return replace(
        restored, rules={pair: replace(rule, span=program.rules[pair].span) for pair, rule in restored.rules.items()}
    )
