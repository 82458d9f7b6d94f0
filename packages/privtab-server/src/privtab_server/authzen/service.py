"""Answer checked bodies for one system, in the format of the specification. Independent of HTTP. What was decided may be logged as OPA logs it."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import time
import uuid
from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import time_ns
from typing import Any, TypeAlias

from privtab.base import (
    Decision,
    DecisionUnavailable,
    Entity,
    FileError,
    InvalidRequest,
    PrivtabError,
    Request,
    Vocabulary,
    last_name,
    moment_text,
    strict_loads,
)
from privtab_server.authzen import messages
from privtab_server.authzen.messages import Body, Evaluations, Malformed, Search, SearchKind, Semantic, request
from privtab_server.authzen.points import DecisionPoint, Directory


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
        self,
        system: str,
        requests: Sequence[Request],
        answers: Sequence[bool],
        bundles: Mapping[str, str | None],
        began: int,
    ) -> None:
        """Log the answers to some requests. Raises DecisionUnavailable if that fails.

        `bundles`: the revisions of what decided, by kind. `began`: when the requests were to be decided, a moment.
        """
        entry: Mapping[str, Any] = {
            "msg": "Decision Log",
            "decision_id": str(uuid.uuid4()),
            "timestamp": moment_text(began),
            "path": f"privtab/{system}/decisions",
            "input": {"requests": [request.to_json() for request in requests]},
            "result": list(answers),
            "bundles": {name: {"revision": text} for name, text in bundles.items() if text is not None},
            "metrics": {"timer_server_handler_ns": time_ns() - began},
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


ResponseBody: TypeAlias = dict[str, Any]

USUAL_RESULTS = 100
"""Default number of results of a page."""
_FIRST = 8
"""Size of the first chunk if evaluation stops at the first denial or permit; each further chunk is twice as large."""


class Unsupported(PrivtabError):
    """The PDP does not support this: HTTP 501."""


class Service:
    """The five methods of the API for one system.

    All raise Malformed for an invalid body, PolicyError and DecisionUnavailable if there is no decision. `brief` answers
    without explanations, which is faster and does not disclose the policy.
    """

    def __init__(
        self,
        point: DecisionPoint,
        *,
        system: str = "",
        brief: bool = False,
        page_size: int = USUAL_RESULTS,
        decision_log: DecisionLog | None = None,
    ) -> None:
        self.point = point
        self.system = system
        self._brief = brief
        self._page_size = page_size
        self._decision_log = decision_log

    async def evaluation(self, body: Body) -> ResponseBody:
        """Access Evaluation (§6)."""
        (answer,) = await self._answers([messages.evaluation(body)], await self.point.vocabulary())
        return answer

    async def evaluations(self, body: Body) -> ResponseBody:
        """Access Evaluations (§7)."""
        batch = messages.evaluations(body)
        if batch is None:
            return await self.evaluation(body)
        vocabulary = await self.point.vocabulary()
        answers: list[ResponseBody] = []
        for chunk in _chunks(batch):
            for answer in await self._answers(chunk, vocabulary):
                answers.append(answer)
                if batch.semantic is Semantic.DENY_ON_FIRST_DENY and not answer["decision"]:
                    answer["context"] = {**answer.get("context", {}), "reason": str(batch.semantic)}
                    return {"evaluations": answers}
                if batch.semantic is Semantic.PERMIT_ON_FIRST_PERMIT and answer["decision"]:
                    return {"evaluations": answers}
        return {"evaluations": answers}

    async def search(self, kind: SearchKind, body: Body) -> ResponseBody:
        """Subject, Resource and Action Search (§8). For names unknown to the policy there are no results, and `context` says why."""
        search = messages.search(kind, body)
        position = page_position(search, self.system, self._page_size)
        vocabulary = await self.point.vocabulary()
        try:
            plan = await self._plan(search, vocabulary)
            page, anyone = await self._page(search, plan, position, vocabulary.subjects)
        except InvalidRequest as error:
            return {"page": {"next_token": "", "count": 0}, "context": self._error(error), "results": []}
        answer: ResponseBody = {"page": {"next_token": page.next_token, "count": len(page.names)}}
        if anyone:
            answer["context"] = {"anyone": True}
        return answer | {"results": entries(search, page, vocabulary)}

    # --- private ---

    async def _answers(self, bodies: Sequence[Body | Malformed], vocabulary: Vocabulary) -> list[ResponseBody]:
        """One answer for each body; an invalid one is denied, with an error in its context."""
        parsed: list[Request | Malformed | InvalidRequest] = []
        for body in bodies:
            try:
                parsed.append(body if isinstance(body, Malformed) else messages.request(body, vocabulary))
            except InvalidRequest as error:
                parsed.append(error)
        requests = [item for item in parsed if isinstance(item, Request)]
        answers = iter(await self._decide(requests, vocabulary))
        return [next(answers) if isinstance(item, Request) else self._denied(item) for item in parsed]

    async def _decide(self, requests: Sequence[Request], vocabulary: Vocabulary) -> list[ResponseBody]:
        if not requests:
            return []
        try:
            return await self._decide_all(requests)
        except InvalidRequest as error:
            if len(requests) == 1:
                return [self._denied(error)]
        # Some have names that the policy does not declare. Ask those alone: the policy may be newer than the vocabulary.
        invalid = {index for index, request in enumerate(requests) if not _is_valid(request, vocabulary)}
        separate = invalid or set(range(len(requests)))
        answers = iter(
            await self._decide([item for index, item in enumerate(requests) if index not in separate], vocabulary)
        )
        return [
            (await self._decide([request], vocabulary))[0] if index in separate else next(answers)
            for index, request in enumerate(requests)
        ]

    async def _decide_all(self, requests: Sequence[Request]) -> list[ResponseBody]:
        if self._decision_log is None:
            return await self._decide_unlogged(requests)
        began, before = time_ns(), await self.point.revision()
        answers = await self._decide_unlogged(requests)
        # While a bundle was exchanged, nobody can tell which of the two decided.
        bundles = before if await self.point.revision() == before else {}
        allowed = [answer["decision"] for answer in answers]
        self._decision_log.write(self.system, requests, allowed, bundles, began)
        return answers

    async def _decide_unlogged(self, requests: Sequence[Request]) -> list[ResponseBody]:
        if self._brief:
            return [{"decision": answer} for answer in await self.point.check_many(requests)]
        decisions: Sequence[Decision] = await self.point.decide_many(requests)
        return [_decision_json(decision, request) for decision, request in zip(decisions, requests, strict=True)]

    async def _plan(self, search: Search, vocabulary: Vocabulary) -> SearchPlan:
        if search.kind is SearchKind.ACTION:
            return action_plan(search, vocabulary)
        directory = await self.point.directory()
        if directory is None:
            raise Unsupported(
                f"this decision point cannot search for a {search.kind}: it cannot list users and entities"
            )
        if search.kind is SearchKind.SUBJECT:
            return await asyncio.to_thread(subject_plan, search, vocabulary, directory)
        plan = await asyncio.to_thread(resource_plan, search, vocabulary, directory)
        return replace(plan, allowed=partial(self.point.allowed, plan.request_for("")))

    async def _page(
        self, search: Search, plan: SearchPlan, position: PagePosition, subjects: Sequence[str]
    ) -> tuple[Page, bool]:
        page = await read_page(plan, position, self.point.check_many)
        # Only the first page has it, since it applies to all.
        is_first_page = search.kind is SearchKind.SUBJECT and position.after is None and search.type in subjects
        return page, is_first_page and await anyone(plan, self.point.check_many)

    def _denied(self, error: Malformed | InvalidRequest) -> ResponseBody:
        return {"decision": False, "context": self._error(error)}

    def _error(self, error: Malformed | InvalidRequest) -> ResponseBody:
        """The context of the answer to an invalid request."""
        malformed = isinstance(error, Malformed)
        message = str(error) if malformed or not self._brief else "the policy cannot make sense of the request"
        kind = "malformed" if malformed else "invalid_request"
        return {"error": {"status": 400, "kind": kind, "message": message}}


def _chunks(batch: Evaluations) -> Iterator[Sequence[Body | Malformed]]:
    """All evaluations at once, or growing chunks if later ones may not be needed."""
    if batch.semantic is Semantic.EXECUTE_ALL:
        yield batch.items
        return
    start, size = 0, _FIRST
    while start < len(batch.items):
        yield batch.items[start : start + size]
        start, size = start + size, size * 2


def _is_valid(request: Request, vocabulary: Vocabulary) -> bool:
    try:
        vocabulary.check(request)
    except InvalidRequest:
        return False
    return True


def _decision_json(decision: Decision, request: Request) -> dict[str, Any]:
    """A decision as JSON; a denial includes a sentence with the reason, for administrators (§5.5.2)."""
    answer = decision.to_json()
    if not decision.allowed:
        answer["context"]["reason_admin"] = {"en": decision.describe(request)}
    return answer


# --- searches --------------------------------------------------------------------------------------------------------


MOST_RESULTS = 1000
"""Maximum results of a page, regardless of `limit`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PagePosition:
    """The start of a page: the name before it (None: none), and the page's maximum number of results.

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
    """Return the start of a page; raises Malformed for a token of another search or a changed limit (§8.2)."""
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
        content = strict_loads(base64.b64decode(padded, altchars=b"-_", validate=True))
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
TRIED = 10 * AT_ONCE
"""Names decided for a page before a filter looks for the allowed ones among the others."""
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
    allowed: Callable[[Sequence[str]], Awaitable[Sequence[str] | None]] | None = None
    """Return the allowed names without a decision for each, if that is possible: used where few of many are allowed."""


def subject_plan(search: Search, vocabulary: Vocabulary, directory: Directory) -> SearchPlan:
    """Subject search (§8.4): all users that the state or the objects of the request name."""
    if search.type not in vocabulary.subjects:
        return SearchPlan(names=(), request_for=_no_request)
    subject = {**search.body["subject"], "id": _NOBODY}
    template = request({**search.body, "subject": subject}, vocabulary)
    vocabulary.check(template)
    objects = (template.resource, *template.with_.values())
    named_users = {last_name(entity.id) for entity in objects if entity.type in directory.people} - {""}
    names = sorted({*directory.users, *named_users}) if named_users else directory.users
    return SearchPlan(names=names, request_for=lambda name: replace(template, user=name))


def resource_plan(search: Search, vocabulary: Vocabulary, directory: Directory) -> SearchPlan:
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


def action_plan(search: Search, vocabulary: Vocabulary) -> SearchPlan:
    """Action search (§8.6): the operations of the resource's type that are valid with the given objects; filters are none."""
    type_ = search.body["resource"]["type"]
    template = request({**search.body, "action": {"name": "-"}}, vocabulary)
    if type_ not in vocabulary.chains:
        raise InvalidRequest(f"unknown entity type `{type_:.80}` in system `{vocabulary.system}`")
    names: list[str] = []
    first_error: InvalidRequest | None = None
    filters = {f"{k}.{name}" for k, listed in vocabulary.filters.items() for name in listed.get(type_, ())}
    for name in sorted(vocabulary.operations.get(type_, {}).keys() - filters):
        try:
            vocabulary.check(replace(template, action=name))
            names.append(name)
        except InvalidRequest as error:
            first_error = first_error or error
    if first_error is not None and not names:
        raise first_error
    return SearchPlan(names=names, request_for=lambda name: replace(template, action=name))


async def read_page(
    plan: SearchPlan, position: PagePosition, check_many: CheckMany, *, clock: Clock = time.monotonic
) -> Page:
    """The results of one page. Looks one result further, to find out whether there is another page."""
    allowed: list[str] = []
    deadline = clock() + SECONDS
    every = plan.names
    start = bisect_right(every, position.after) if position.after is not None else 0
    last, tried = position.after, 0
    while start < len(every):
        if tried == TRIED and plan.allowed is not None:
            found = await plan.allowed(every[start:])
            every, start = (every, start) if found is None else (found, 0)
        tried += AT_ONCE
        names = every[start : start + AT_ONCE]
        for name, answer in zip(names, await check_many([plan.request_for(name) for name in names]), strict=True):
            if answer and len(allowed) == position.limit:
                return Page(names=tuple(allowed), next_token=position.token(last))
            if answer:
                allowed.append(name)
            last = name
        start += len(names)
        if clock() >= deadline and start < len(every):
            return Page(names=tuple(allowed), next_token=position.token(last))
    return Page(names=tuple(allowed), next_token="")


async def anyone(plan: SearchPlan, check_many: CheckMany) -> bool:
    """Return whether a user that no row names is allowed."""
    return (await check_many([plan.request_for(f"{_NOBODY}{uuid.uuid4()}")]))[0]


def entries(search: Search, results: Page, vocabulary: Vocabulary) -> list[dict[str, Any]]:
    """The results in the format of the specification."""
    if search.kind is SearchKind.ACTION:
        return [{"name": name} for name in results.names]
    if search.kind is SearchKind.SUBJECT:
        return [{"type": search.type, "id": name} for name in results.names]
    return [{"type": search.type, "id": vocabulary.written(Entity(search.type, name))} for name in results.names]


def _no_request(name: str) -> Request:
    raise Malformed(f"nothing can be asked about `{name}`")
