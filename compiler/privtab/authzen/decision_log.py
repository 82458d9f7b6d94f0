"""Write what a server decides as entries of OPA's decision log, one line each, which `privtab replay` and `unused` read."""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from privtab import moments
from privtab.client import Revision
from privtab.errors import DecisionUnavailable, FileError
from privtab.request import Request


class DecisionLog:
    """A file to which entries are appended. What cannot be logged is not answered."""

    def __init__(self, path: Path) -> None:
        """Raises FileError if the file cannot be written."""
        self._path = path
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        except OSError as error:
            raise FileError(f"decisions cannot be logged in {path}: {error.strerror}") from error

    def write(
        self, system: str, requests: Sequence[Request], answers: Sequence[bool], revision: Revision, began: int
    ) -> None:
        """Log the answers to some requests. Raises DecisionUnavailable if that fails.

        `revision`: what decided. `began`: when the requests were to be decided, a moment.
        """
        bundles = {"policy": revision.policy, "state": revision.state}
        entry: Mapping[str, Any] = {
            "msg": "Decision Log",
            "decision_id": str(uuid.uuid4()),
            "timestamp": moments.text(began),
            "path": f"privtab/{system}/decisions",
            "input": {"requests": [request.to_json() for request in requests]},
            "result": list(answers),
            "bundles": {name: {"revision": text} for name, text in bundles.items() if text is not None},
            "metrics": {"timer_server_handler_ns": moments.now() - began},
        }
        line = json.dumps(entry, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + b"\n"
        try:
            written = os.write(self._file, line)
            if written < len(line):
                # The rest of a line cannot follow the line of another thread.
                os.write(self._file, b"\n")
                raise OSError(0, "only a part was written")
        except OSError as error:
            raise DecisionUnavailable(f"the decision cannot be logged in {self._path}: {error.strerror}") from error
