"""Read a registry over HTTP. The server is not trusted: everything that it sends is bounded."""

from __future__ import annotations

import re
from urllib.parse import unquote

from privtab.client._sender import Sender, SendError
from privtab.errors import RegistryError, UsageError
from privtab.registry.storage import Missing

TIMEOUT = (5.0, 60.0)
"""Seconds to connect, and between two pieces of an answer."""
LONGEST = 600.0
"""Seconds for a whole answer."""
LARGEST = 2 << 30
"""Maximum bytes of a bundle."""
LARGEST_RECORD = 16 << 20
"""Maximum bytes of other files: records, releases, listings."""
MOST_NAMES = 20_000
"""Maximum names in a folder."""
MOST_ASKED = 50_000
"""Maximum requests between two calls of `renew`."""
MOST_RECORDS = 512 << 20
"""Maximum bytes of records between two calls of `renew`."""

_LINK = re.compile(rb"""href\s*=\s*["']([^"'?#]{1,1000})["']""", re.IGNORECASE)


class HttpStore:
    """A registry behind a static server or `privtab serve registry`, read only.

    `token`: a bearer token; `verify`: False or a file of CA certificates. Folders need a server that lists them.
    """

    writable = False

    def __init__(self, url: str, *, token: str | None = None, verify: bool | str = True) -> None:
        self.url = url.rstrip("/")
        self._bundles = Sender(timeout=TIMEOUT, seconds=LONGEST, largest=LARGEST, token=token, verify=verify)
        self._records = Sender(timeout=TIMEOUT, seconds=LONGEST, largest=LARGEST_RECORD, token=token, verify=verify)
        self.renew()

    def renew(self) -> None:
        """As Store.renew."""
        self._requests = self._record_bytes = 0

    def read(self, path: str) -> bytes:
        """As Store.read."""
        url = f"{self.url}/{path}"
        bundle = path.endswith(".tar.gz")
        self._requests += 1
        if self._requests > MOST_ASKED:
            raise RegistryError(f"{self.url} refers to more than {MOST_ASKED:,} files, the most that is read")
        try:
            answer = (self._bundles if bundle else self._records).get(url)
        except SendError as error:
            raise RegistryError(str(error)) from error
        if answer.status in (404, 410):
            raise Missing(path)
        if answer.status != 200:
            raise RegistryError(f"{url} answered {answer.status} {answer.reason}")
        if bundle:
            return answer.body  # Some servers declare `.gz` files as gzip-encoded.
        if answer.encoded:
            raise RegistryError(f"{url} is sent as {answer.encoded[:20]}, which was not requested")
        self._record_bytes += len(answer.body)
        if self._record_bytes > MOST_RECORDS:
            raise RegistryError(f"{self.url} sent more than {MOST_RECORDS >> 20} MiB of records, the most that is read")
        return answer.body

    def size(self, path: str) -> int:
        """As Store.size."""
        return len(self.read(path))

    def create(self, path: str, content: bytes) -> None:  # noqa: ARG002
        """Raises: the storage is read only."""
        raise self._read_only(path)

    def replace(self, path: str, content: bytes) -> None:  # noqa: ARG002
        """Raises: the storage is read only."""
        raise self._read_only(path)

    def remove(self, path: str) -> None:
        """Raises: the storage is read only."""
        raise self._read_only(path)

    def abandoned_files(self, seconds: float) -> list[str]:  # noqa: ARG002
        """As Store.abandoned_files."""
        return []

    def names(self, path: str) -> list[str]:
        """As Store.names, from the links in the server's listing."""
        try:
            page = self.read(f"{path}/" if path else "")
        except Missing:
            return []
        found = {unquote(link.decode("utf-8", "replace")).rstrip("/") for link in _LINK.findall(page)}
        names = sorted(name for name in found if name and "/" not in name and not name.startswith("."))
        if len(names) > MOST_NAMES:
            raise RegistryError(f"{self.url}/{path} lists more than {MOST_NAMES:,} names")
        return names

    def _read_only(self, path: str) -> UsageError:
        return UsageError(f"{self.url} is read-only, and so is its {path}: write to the registry itself")
