"""Searches: walk over sorted names and decide each like an evaluation; the results are the allowed ones."""

from __future__ import annotations

import base64
import hashlib
import json
import time
import uuid
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from privtab import strict_json
from privtab.authzen.messages import Malformed, Search, SearchKind, request
from privtab.authzen.points import Directory
from privtab.errors import InvalidRequest
from privtab.names import last_name
from privtab.request import Entity, Request
from privtab.vocabulary import Vocabulary

MOST_RESULTS = 1000
"""Maximum results of a page, regardless of `limit`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePosition:
    """Where a page begins: after which name (None: at the start), and its maximum number of results.

    Its opaque token is not signed: every result is decided again, so a forged one can only change where the page begins.
    """

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
    if search.token is None:
        return PagePosition(
            after=None,
            limit=min(default_limit if search.limit is None else search.limit, MOST_RESULTS),
            search_hash=search_hash,
        )
    page_hash, limit, after = _read(search.token)
    if page_hash != search_hash:
        raise Malformed("`page.token` is of another search: everything but the page must stay as it was")
    if search.limit is not None and min(search.limit, MOST_RESULTS) != limit:
        raise Malformed(f"`page.limit` is {search.limit}, and was {limit} on the page before; it must stay as it was")
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


CheckMany: TypeAlias = Callable[[Sequence[Request]], Awaitable[Sequence[bool]]]
Clock: TypeAlias = Callable[[], float]

AT_ONCE = 500
"""Names decided at once; building their requests blocks the event loop for a millisecond."""
SECONDS = 2.0
"""Seconds after which a page ends, even if it is not full."""
_NOBODY = "nobody-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """The results of a search: sorted names, and the token of the next page, empty at the end."""

    names: tuple[str, ...]
    next_token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPlan:
    """The names to decide, in order, and the request for each."""

    names: Sequence[str]
    request_for: Callable[[str], Request]


def subjects(search: Search, vocabulary: Vocabulary, directory: Directory) -> SearchPlan:
    """Subject search (§8.4): all users that the state or the objects of the request name."""
    if search.type not in vocabulary.subjects:
        return SearchPlan(names=(), request_for=_no_request)
    body = dict(search.body)
    template = _with_subject(body, _NOBODY, vocabulary)
    vocabulary.check(template)
    objects = (template.resource, *template.with_.values())
    named_users = {last_name(entity.id) for entity in objects if entity.type in directory.people} - {""}
    names = sorted({*directory.users, *named_users}) if named_users else directory.users
    return SearchPlan(names=names, request_for=lambda name: replace(template, user=name))


def resources(search: Search, vocabulary: Vocabulary, directory: Directory) -> SearchPlan:
    """Resource search (§8.5): the entities of a type that the state names."""
    shape = vocabulary.check_operation(search.type, search.body["action"]["name"])
    body = {**search.body, "resource": {"type": search.type, "id": ""}}
    template = request(body, vocabulary)
    vocabulary.check_context(template, shape)
    vocabulary.check_active_roles(template)
    return SearchPlan(
        names=directory.paths(search.type),
        request_for=lambda name: replace(template, resource=Entity(search.type, name)),
    )


def actions(search: Search, vocabulary: Vocabulary) -> SearchPlan:
    """Action search (§8.6): the operations of the resource's type that are valid with the given objects."""
    type_ = search.body["resource"]["type"]
    template = request({**search.body, "action": {"name": "-"}}, vocabulary)
    if type_ not in vocabulary.chains:
        raise InvalidRequest(f"unknown entity type `{type_:.80}` in system `{vocabulary.system}`")
    names: list[str] = []
    first_error: InvalidRequest | None = None
    for name in sorted(vocabulary.operations.get(type_, {})):
        try:
            vocabulary.check(replace(template, action=name))
            names.append(name)
        except InvalidRequest as error:
            first_error = first_error or error
    if first_error is not None and not names:
        raise first_error
    return SearchPlan(names=names, request_for=lambda name: replace(template, action=name))


async def page(
    plan: SearchPlan, position: PagePosition, check_many: CheckMany, *, clock: Clock = time.monotonic
) -> Page:
    """The results of one page. Looks one result further, to find out whether there is another page."""
    allowed: list[str] = []
    deadline = clock() + SECONDS
    start = bisect_right(plan.names, position.after) if position.after is not None else 0
    last = position.after
    while start < len(plan.names):
        names = plan.names[start : start + AT_ONCE]
        for name, answer in zip(names, await check_many([plan.request_for(name) for name in names]), strict=True):
            if answer and len(allowed) == position.limit:
                return Page(names=tuple(allowed), next_token=position.token(last))
            if answer:
                allowed.append(name)
            last = name
        start += len(names)
        if clock() >= deadline and start < len(plan.names):
            return Page(names=tuple(allowed), next_token=position.token(last))
    return Page(names=tuple(allowed), next_token="")


async def anyone(plan: SearchPlan, check_many: CheckMany) -> bool:
    """Whether a user that no row names is allowed."""
    return (await check_many([plan.request_for(f"{_NOBODY}{uuid.uuid4()}")]))[0]


def entries(search: Search, results: Page, vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """The results in the format of the specification."""
    if search.kind is SearchKind.ACTION:
        return [{"name": name} for name in results.names]
    if search.kind is SearchKind.SUBJECT:
        return [{"type": search.type, "id": name} for name in results.names]
    return [{"type": search.type, "id": vocabulary.written(Entity(search.type, name))} for name in results.names]


def _with_subject(body: dict[str, Any], user: str, vocabulary: Vocabulary) -> Request:
    return request({**body, "subject": {**body["subject"], "id": user}}, vocabulary)


def _no_request(name: str) -> Request:
    raise Malformed(f"nothing can be asked about `{name}`")
