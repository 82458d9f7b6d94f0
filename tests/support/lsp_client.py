"""A client of the Language Server Protocol, by its words: messages over standard input and output of the real process."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SECONDS = 20
"""The longest wait for a message."""


class RefusedRequest(Exception):
    """The server answered a request with an error."""


class LspClient:
    """One session with a server."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.number = 0
        self.versions: dict[str, int] = {}
        self.answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self.notes: queue.Queue[dict[str, Any]] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        stream = self.process.stdout
        assert stream is not None
        while header := stream.readline():
            length = int(header.split(b":")[1]) if header.lower().startswith(b"content-length") else 0
            while stream.readline().strip():
                pass
            message = json.loads(stream.read(length))
            (self.answers if "id" in message and "method" not in message else self.notes).put(message)

    def _send(self, message: dict[str, Any]) -> None:
        body = json.dumps({"jsonrpc": "2.0", **message}).encode()
        assert self.process.stdin is not None
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def notify(self, method: str, **params: Any) -> None:
        self._send({"method": method, "params": params})

    def ask(self, method: str, **params: Any) -> Any:
        self.number += 1
        self._send({"id": self.number, "method": method, "params": params})
        answer = self.answers.get(timeout=SECONDS)
        assert answer["id"] == self.number
        if "error" in answer:
            raise RefusedRequest(answer["error"]["message"])
        return answer["result"]

    def open(self, path: Path, text: str | None = None) -> str:
        uri, content = path.as_uri(), path.read_text(encoding="utf-8") if text is None else text
        self.versions[uri] = 1
        self.notify(
            "textDocument/didOpen", textDocument={"uri": uri, "languageId": "privtab", "version": 1, "text": content}
        )
        return uri

    def change(self, uri: str, text: str) -> None:
        self.versions[uri] += 1
        self.notify(
            "textDocument/didChange",
            textDocument={"uri": uri, "version": self.versions[uri]},
            contentChanges=[{"text": text}],
        )

    def findings(self, uri: str) -> list[dict[str, Any]]:
        """Those of the last text that was sent."""
        while True:
            message = self.notes.get(timeout=SECONDS)
            if message["method"] == "textDocument/publishDiagnostics":
                params = message["params"]
                if params["uri"] == uri and params.get("version") == self.versions[uri]:
                    return list(params["diagnostics"])

    def at(self, method: str, uri: str, text: str, mark: str, **more: Any) -> Any:
        """Ask about the position of `|` in a mark, which occurs once in the text without it."""
        plain = mark.replace("|", "")
        assert text.count(plain) == 1, plain
        before = text[: text.index(plain) + mark.index("|")]
        line = before.count("\n")
        character = len(before.rpartition("\n")[2].encode("utf-16-le")) // 2
        return self.ask(
            f"textDocument/{method}", textDocument={"uri": uri}, position={"line": line, "character": character}, **more
        )


@contextmanager
def lsp_client(folder: Path, **capabilities: Any) -> Iterator[LspClient]:
    """A client of a server that was started for it, and must end as the protocol says."""
    command = [sys.executable, "-m", "privtab", "lsp"]
    process = subprocess.Popen(command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        client = LspClient(process)
        client.ask("initialize", processId=None, rootUri=folder.as_uri(), capabilities=capabilities)
        client.notify("initialized")
        yield client
        client.ask("shutdown")
        client.notify("exit")
        assert process.wait(SECONDS) == 0
    finally:
        process.kill()
        process.wait()


def edited(text: str, edits: list[dict[str, Any]]) -> str:
    """A text with the edits of an answer, whose positions count units of UTF-16."""
    units = text.encode("utf-16-le")
    starts = [0]
    for line in text.split("\n"):
        starts.append(starts[-1] + len((line + "\n").encode("utf-16-le")))

    def offset(position: dict[str, int]) -> int:
        return min(starts[position["line"]] + 2 * position["character"], len(units))

    for edit in sorted(edits, key=lambda edit: offset(edit["range"]["start"]), reverse=True):
        start, end = offset(edit["range"]["start"]), offset(edit["range"]["end"])
        units = units[:start] + edit["newText"].encode("utf-16-le") + units[end:]
    return units.decode("utf-16-le")
