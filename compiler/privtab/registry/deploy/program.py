"""The program of a bundle: what the JSON in it says, as the comparison reads programs.

What runs is compared as it runs: nothing has to be kept beside the bundles, and a bundle that somebody else put into the
registry is compared too. Only words are lost on this road (notes, titles of types, where a row stands in its file).
"""

from __future__ import annotations

import io
from dataclasses import replace

from privtab import strict_json
from privtab.bundle.archive import json_bytes
from privtab.bundle.stream import entries
from privtab.errors import BrokenBundle, FileError
from privtab.ir.deserialise import program_from_json
from privtab.ir.nodes import Program
from privtab.ir.serialise import FORMAT, program_json
from privtab.pipeline import optimised


def program_in(bundle: bytes, shown: str) -> Program:
    """The program of a policy bundle; `shown` names it. Raises FileError where there is none that can be read."""
    try:
        texts = [file.read() for name, _, file in entries(io.BytesIO(bundle)) if name.startswith("privtab_program/")]
        if len(texts) != 1:
            raise ValueError(f"it holds {f'{len(texts)} programs' if texts else f'no program of format {FORMAT}'}")
        return program_from_json(strict_json.loads(texts[0]), shown)
    except (BrokenBundle, ValueError, RecursionError) as error:
        raise FileError(f"the program of {shown} cannot be read: {error}") from error


def comparable(program: Program) -> Program:
    """A program as it comes out of its own bundle, with the places of its file: two of these differ where bundles would."""
    # Through the bundle's JSON, so that types and operations come in its order on both sides.
    document = strict_json.loads(json_bytes(program_json(program, optimised(program))))
    made = program_from_json(document, f"{program.system}/{program.version}")
    return replace(made, rules={pair: replace(r, span=program.rules[pair].span) for pair, r in made.rules.items()})
