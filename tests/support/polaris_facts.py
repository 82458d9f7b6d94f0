"""Write the facts about Apache Polaris that its table is tested against: `polaris_facts.py OPERATIONS.json PRIVILEGES.json OUT.json`.

The first two are the documents that the policy cites. Kept are the lines, the privileges, and the words for what they are needed on.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path


def lines(text: str) -> dict[str, int]:
    """The line of each entry."""
    found = ((number, re.match(r'\s+"([A-Z_]+)": \{', line)) for number, line in enumerate(text.split("\n"), 1))
    return {match[1]: number for number, match in found if match}


def main(operations: Path, privileges: Path, out: Path) -> None:
    """Write one line for each operation and each privilege."""
    texts = [path.read_text(encoding="utf-8") for path in (operations, privileges)]
    versions = [lines(text) for text in texts]
    facts = {
        "operations": {
            name: {
                "line": versions[0][name],
                **{key: fact[key] for key in ("target", "secondary", "rooting")},
                "on": fact["target_securable"],
                "beside": fact["secondary_securable"],
            }
            for name, fact in json.loads(texts[0])["operations"].items()
        },
        "privileges": {
            name: {"line": versions[1][name], "satisfied_by": fact["satisfied_by"]}
            for name, fact in json.loads(texts[1])["privileges"].items()
        },
    }
    parts = (
        f'"{part}": {{\n'
        + ",\n".join(f"  {json.dumps(name)}: {json.dumps(fact)}" for name, fact in entries.items())
        + "\n}"
        for part, entries in facts.items()
    )
    out.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
