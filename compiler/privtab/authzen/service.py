"""Answer checked bodies for one system, in the format of the specification. Independent of HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from privtab.authzen import messages, paging, searching
from privtab.authzen.messages import Body, Evaluations, Malformed, Search, Searched, Semantic
from privtab.authzen.paging import PagePosition
from privtab.authzen.points import DecisionPoint
from privtab.errors import InvalidRequest, PrivtabError
from privtab.request import Decision, Request
from privtab.vocabulary import Vocabulary

Answer: TypeAlias = dict[str, Any]

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
        self, point: DecisionPoint, *, system: str = "", brief: bool = False, page_size: int = USUAL_RESULTS
    ) -> None:
        self.point = point
        self.system = system
        self._brief = brief
        self._page_size = page_size

    async def evaluation(self, body: Body) -> Answer:
        """Access Evaluation (§6)."""
        (answer,) = await self._answers([messages.evaluation(body)], await self.point.vocabulary())
        return answer

    async def evaluations(self, body: Body) -> Answer:
        """Access Evaluations (§7)."""
        asked = messages.evaluations(body)
        if asked is None:
            return await self.evaluation(body)
        vocabulary = await self.point.vocabulary()
        answers: list[Answer] = []
        for chunk in _chunks(asked):
            for answer in await self._answers(chunk, vocabulary):
                answers.append(answer)
                if asked.semantic is Semantic.DENY_ON_FIRST_DENY and not answer["decision"]:
                    answer["context"] = {**answer.get("context", {}), "reason": str(asked.semantic)}
                    return {"evaluations": answers}
                if asked.semantic is Semantic.PERMIT_ON_FIRST_PERMIT and answer["decision"]:
                    return {"evaluations": answers}
        return {"evaluations": answers}

    async def search(self, kind: Searched, body: Body) -> Answer:
        """Subject, Resource and Action Search (§8). For names unknown to the policy there are no results, and `context` says why."""
        asked = messages.search(kind, body)
        at = paging.place(asked, self.system, self._page_size)
        vocabulary = await self.point.vocabulary()
        try:
            walk = await self._walk(asked, vocabulary)
            found, anyone = await self._found(asked, walk, at)
        except InvalidRequest as error:
            return {"page": {"next_token": "", "count": 0}, "context": self._error(error), "results": []}
        answer: Answer = {"page": {"next_token": found.next_token, "count": len(found.names)}}
        if anyone:
            answer["context"] = {"anyone": True}
        return answer | {"results": searching.entries(asked, found)}

    # --- private ---

    async def _answers(self, bodies: Sequence[Body | Malformed], vocabulary: Vocabulary) -> list[Answer]:
        """One answer for each body; an invalid one is denied, with an error in its context."""
        asked: list[Request | Malformed | InvalidRequest] = []
        for body in bodies:
            try:
                asked.append(
                    body
                    if isinstance(body, Malformed)
                    else messages.request(body, reads_groups=vocabulary.request_groups)
                )
            except InvalidRequest as error:
                asked.append(error)
        requests = [one for one in asked if isinstance(one, Request)]
        decided = iter(await self._decided(requests, vocabulary))
        return [next(decided) if isinstance(one, Request) else self._refused(one) for one in asked]

    async def _decided(self, requests: Sequence[Request], vocabulary: Vocabulary) -> list[Answer]:
        if not requests:
            return []
        try:
            return await self._all(requests)
        except InvalidRequest as error:
            if len(requests) == 1:
                return [self._refused(error)]
        # Some have names that the policy does not declare. Ask those alone: the policy may be newer than the vocabulary.
        wrong = {at for at, request in enumerate(requests) if not _fits(request, vocabulary)}
        alone = wrong or set(range(len(requests)))
        together = iter(await self._decided([r for at, r in enumerate(requests) if at not in alone], vocabulary))
        return [
            (await self._decided([request], vocabulary))[0] if at in alone else next(together)
            for at, request in enumerate(requests)
        ]

    async def _all(self, requests: Sequence[Request]) -> list[Answer]:
        if self._brief:
            return [{"decision": answer} for answer in await self.point.check_many(requests)]
        decisions: Sequence[Decision] = await self.point.decide_many(requests)
        return [_told(decision, request) for decision, request in zip(decisions, requests, strict=True)]

    async def _walk(self, asked: Search, vocabulary: Vocabulary) -> searching.SearchPlan:
        if asked.kind is Searched.ACTION:
            return searching.actions(asked, vocabulary)
        directory = await self.point.directory()
        if directory is None:
            raise Unsupported(
                f"this decision point cannot search for a {asked.kind}: it cannot list users and entities"
            )
        search = searching.subjects if asked.kind is Searched.SUBJECT else searching.resources
        return await asyncio.to_thread(search, asked, vocabulary, directory)

    async def _found(self, asked: Search, walk: searching.SearchPlan, at: PagePosition) -> tuple[searching.Page, bool]:
        found = await searching.page(walk, at, self.point.check_many)
        # Only the first page has it, since it applies to all.
        first = asked.kind is Searched.SUBJECT and at.after is None and asked.type == "user"
        return found, first and await searching.anyone(walk, self.point.check_many)

    def _refused(self, error: Malformed | InvalidRequest) -> Answer:
        return {"decision": False, "context": self._error(error)}

    def _error(self, error: Malformed | InvalidRequest) -> Answer:
        """The context of the answer to an invalid request."""
        shape = isinstance(error, Malformed)
        message = str(error) if shape or not self._brief else "the policy cannot make sense of the request"
        kind = "malformed" if shape else "invalid_request"
        return {"error": {"status": 400, "kind": kind, "message": message}}


def _chunks(asked: Evaluations) -> Iterator[Sequence[Body | Malformed]]:
    """All evaluations at once, or growing chunks if later ones may not be needed."""
    if asked.semantic is Semantic.EXECUTE_ALL:
        yield asked.items
        return
    start, size = 0, _FIRST
    while start < len(asked.items):
        yield asked.items[start : start + size]
        start, size = start + size, size * 2


def _fits(request: Request, vocabulary: Vocabulary) -> bool:
    try:
        vocabulary.check(request)
    except InvalidRequest:
        return False
    return True


def _told(decision: Decision, request: Request) -> dict[str, Any]:
    """A decision as JSON; a denial includes a sentence with the reason, for administrators (§5.5.2)."""
    answer = decision.to_json()
    if not decision.allowed:
        answer["context"]["reason_admin"] = {"en": decision.describe(request)}
    return answer
