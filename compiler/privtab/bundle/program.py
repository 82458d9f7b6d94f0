"""Read the program of a policy from its bundle, whatever compiled it. Only texts are lost: notes, titles of types, positions in files."""

from __future__ import annotations

import io

from privtab.base import strict_json
from privtab.base.errors import BrokenBundle, FileError
from privtab.bundle.archive import archive_entries
from privtab.ir.deserialise import program_from_json
from privtab.ir.nodes import Program
from privtab.ir.serialise import FORMAT


def program_in(bundle: bytes, shown: str) -> Program:
    """The program of a policy bundle; `shown` is its name in messages. Raises FileError if there is no readable program.

    For example:

        program = program_in(Path("policy.tar.gz").read_bytes(), "policy.tar.gz")
    """
    try:
        texts = [
            file.read() for name, _, file in archive_entries(io.BytesIO(bundle)) if name.startswith("privtab_program/")
        ]
        if len(texts) != 1:
            raise ValueError(f"it holds {f'{len(texts)} programs' if texts else f'no program of format {FORMAT}'}")
        return program_from_json(strict_json.strict_loads(texts[0]), shown)
    except (BrokenBundle, ValueError, RecursionError) as error:
        raise FileError(f"the program of {shown} cannot be read: {error}") from error
