"""Answer checked bodies for one system, in the format of the specification. Independent of HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from privtab.authzen import messages, searching
from privtab.authzen.messages import Body, Evaluations, Malformed, Search, SearchKind, Semantic
from privtab.authzen.points import DecisionPoint
from privtab.authzen.searching import PagePosition
from privtab.errors import InvalidRequest, PrivtabError
from privtab.request import Decision, Request
from privtab.vocabulary import Vocabulary

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
        self, point: DecisionPoint, *, system: str = "", brief: bool = False, page_size: int = USUAL_RESULTS
    ) -> None:
        self.point = point
        self.system = system
        self._brief = brief
        self._page_size = page_size

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
        position = searching.page_position(search, self.system, self._page_size)
        vocabulary = await self.point.vocabulary()
        try:
            plan = await self._plan(search, vocabulary)
            page, anyone = await self._page(search, plan, position, vocabulary.subjects)
        except InvalidRequest as error:
            return {"page": {"next_token": "", "count": 0}, "context": self._error(error), "results": []}
        answer: ResponseBody = {"page": {"next_token": page.next_token, "count": len(page.names)}}
        if anyone:
            answer["context"] = {"anyone": True}
        return answer | {"results": searching.entries(search, page, vocabulary)}

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
        if self._brief:
            return [{"decision": answer} for answer in await self.point.check_many(requests)]
        decisions: Sequence[Decision] = await self.point.decide_many(requests)
        return [_decision_json(decision, request) for decision, request in zip(decisions, requests, strict=True)]

    async def _plan(self, search: Search, vocabulary: Vocabulary) -> searching.SearchPlan:
        if search.kind is SearchKind.ACTION:
            return searching.actions(search, vocabulary)
        directory = await self.point.directory()
        if directory is None:
            raise Unsupported(
                f"this decision point cannot search for a {search.kind}: it cannot list users and entities"
            )
        plan_for = searching.subjects if search.kind is SearchKind.SUBJECT else searching.resources
        return await asyncio.to_thread(plan_for, search, vocabulary, directory)

    async def _page(
        self, search: Search, plan: searching.SearchPlan, position: PagePosition, subjects: Sequence[str]
    ) -> tuple[searching.Page, bool]:
        page = await searching.page(plan, position, self.point.check_many)
        # Only the first page has it, since it applies to all.
        is_first_page = search.kind is SearchKind.SUBJECT and position.after is None and search.type in subjects
        return page, is_first_page and await searching.anyone(plan, self.point.check_many)

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
