"""Pages of a search. The opaque token holds the search, the page size, and the name after which to continue.

Tokens are not signed: every result is decided again, so a forged one can only change where the page begins.
"""

from __future__ import annotations

import base64
import hashlib
import json
from dataclasses import dataclass

from privtab import strict_json
from privtab.authzen.messages import Malformed, Search

MOST_RESULTS = 1000
"""Maximum results of a page, regardless of `limit`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePosition:
    """Where a page begins: after which name (None: at the start), and its maximum number of results."""

    after: str | None
    limit: int
    search_hash: str
    """A hash of everything that must stay the same from page to page."""

    def token(self, after: str | None) -> str:
        """The token for the page that begins after this name."""
        content = json.dumps([self.search_hash, self.limit, after], ensure_ascii=False, separators=(",", ":"))
        return base64.urlsafe_b64encode(content.encode()).decode().rstrip("=")


def page_position(search: Search, system: str, default_limit: int) -> PagePosition:
    """Where a page begins; raises Malformed for a token of another search or a changed limit (§8.2)."""
    search_hash = _search_hash(search, system)
    page = search.page
    if page.token is None:
        return PagePosition(
            after=None,
            limit=min(page.limit if page.limit is not None else default_limit, MOST_RESULTS),
            search_hash=search_hash,
        )
    page_hash, limit, after = _read(page.token)
    if page_hash != search_hash:
        raise Malformed("`page.token` is of another search: everything but the page must stay as it was")
    if page.limit is not None and min(page.limit, MOST_RESULTS) != limit:
        raise Malformed(f"`page.limit` is {page.limit}, and was {limit} on the page before; it must stay as it was")
    return PagePosition(after=after, limit=limit, search_hash=search_hash)


def _read(token: str) -> tuple[str, int, str | None]:
    try:
        padded = token + "=" * (-len(token) % 4)
        content = strict_json.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        match content:
            case [str(search_hash), int(limit), (str() | None) as after] if 0 <= limit <= MOST_RESULTS:
                return search_hash, limit, after
    except ValueError:
        pass
    raise Malformed("`page.token` is not valid: send the `next_token` of the previous page")


def _search_hash(search: Search, system: str) -> str:
    """A hash of the search, without the id of what is searched for, which is ignored and may change."""
    parts = {part: search.body[part] for part in ("subject", "action", "resource", "context") if part in search.body}
    target = parts.pop(search.kind.value, None)
    if isinstance(target, dict):  # A search for actions has none; any value is ignored.
        parts[search.kind.value] = {key: value for key, value in target.items() if key != "id"}
    page = search.body.get("page", {})
    content = [system, search.kind, parts, page.get("properties")]
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]
