"""Read the program of a bundle from its JSON, for comparisons.

The running policy is compared from its own bundle, so that nothing else has to be stored and bundles from any source can
be compared. Only texts are lost (notes, titles of types, positions in files).
"""

from __future__ import annotations

import io
from dataclasses import replace

from privtab import strict_json
from privtab.bundle.archive import entries, json_bytes
from privtab.errors import BrokenBundle, FileError
from privtab.ir.deserialise import program_from_json
from privtab.ir.nodes import Program
from privtab.ir.serialise import FORMAT, program_json
from privtab.pipeline import optimised


def program_in(bundle: bytes, shown: str) -> Program:
    """The program of a policy bundle; `shown` is its name in messages. Raises FileError if there is no readable program."""
    return program_with_doors(bundle, shown)[0]


def program_with_doors(bundle: bytes, shown: str) -> tuple[Program, frozenset[str]]:
    """As `program_in`, and the names of the doors by which the bundle answers other systems."""
    try:
        texts = [file.read() for name, _, file in entries(io.BytesIO(bundle)) if name.startswith("privtab_program/")]
        if len(texts) != 1:
            raise ValueError(f"it holds {f'{len(texts)} programs' if texts else f'no program of format {FORMAT}'}")
        document = strict_json.loads(texts[0])
        return program_from_json(document, shown), frozenset(document.get("doors", ()))
    except (BrokenBundle, ValueError, RecursionError) as error:
        raise FileError(f"the program of {shown} cannot be read: {error}") from error


def comparable(program: Program) -> Program:
    """A program as read back from its own bundle, with positions in its file: two of these differ only if the bundles do."""
    # Go through the bundle's JSON, so that types and operations have its order on both sides.
    document = strict_json.loads(json_bytes(program_json(program, optimised(program))))
    restored = program_from_json(document, f"{program.system}/{program.version}")
    return replace(
        restored, rules={pair: replace(rule, span=program.rules[pair].span) for pair, rule in restored.rules.items()}
    )
