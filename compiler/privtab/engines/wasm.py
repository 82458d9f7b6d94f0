"""The `wasm` engine: the policy's Rego, compiled to WebAssembly by OPA and run in this process, with OPA's own semantics.

`opa_wasm` runs the module.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from privtab.engines import OpenEngine
from privtab.engines.index import combined_document, in_parts
from privtab.engines.opa_wasm import Instance
from privtab.engines.windowed import is_windowed, revision_of
from privtab.errors import InvalidRequest, PolicyError, UsageError
from privtab.request import Decision, Entity, Request
from privtab.vocabulary import Vocabulary

ENTRYPOINTS = ("allow", "decision", "decisions", "explained", "visible")
BATCH = 1000
"""Requests in one call into the module, whose memory grows with them and does not shrink."""

_quoted = json.encoder.encode_basestring
FEW = 100
"""Requests up to which deciding all of them unchecked gains nothing."""

_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
"""Writes all JSON for a module, as UTF-8: OPA's Wasm misreads the surrogate pairs that ASCII needs beyond U+FFFF."""


class WasmEngine:
    """Decides requests whose names were checked. Threads take turns; a pickled one is instantiated again."""

    name = "wasm"

    def __init__(
        self,
        module: bytes | None,
        program: Mapping[str, Any],
        state: Mapping[str, Any],
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        """`module` is the bundle's; `program` and `state` are the documents of the bundles. Raises PolicyError, UsageError."""
        if module is None:
            raise UsageError("the policy's bundle has no Wasm: make one with `privtab compile --wasm`")
        self._package = f"privtab/{program['name']}"
        self._vocabulary = Vocabulary.from_program(program)
        data = {
            "privtab_program": {program["name"]: program},
            "privtab_state": {program["system"]: state},
        }
        names = [f"{self._package}/{entrypoint}" for entrypoint in ENTRYPOINTS]
        try:
            encoded = _text(data).encode()
        except UnicodeEncodeError as error:
            raise PolicyError(f"a name of the bundles is not valid Unicode: {error.object[error.start]!a}") from None
        self._instance = Instance(module, encoded, names, clock if is_windowed(state) else None)

    def allow(self, request: Request) -> bool:
        """Whether the request is allowed."""
        answer = self._ask("allow", request.to_json())
        if not isinstance(answer, bool):
            raise PolicyError("`allow` is not a boolean")
        return answer

    def allow_many(self, requests: Sequence[Request]) -> list[bool]:
        """Whether each request is allowed, by position. Plain requests that share operation and type are sent in a faster form."""
        answers = [False] * len(requests)
        plain, mixed = _split_plain(requests)
        if self._vocabulary.flat:  # only the state tells the keys of items
            plain, mixed = {}, range(len(requests))
        for (action, type_), positions in plain.items():
            self._decide_into(
                answers, positions, self._items(requests, type_, checked=True), _shared_fields(action, type_)
            )
        self._decide_into(answers, mixed, lambda position: _text(requests[position].to_json()), None)
        return answers

    def columns(self, requests: Sequence[Request]) -> list[bool] | None:
        """As `allow_many`, for unchecked requests; None if one of them is in any way unusual."""
        if len(requests) < FEW or self._vocabulary.flat or not set(map(type, requests)) <= {Request}:
            return None
        try:
            plain, mixed = _split_plain(requests)
            if mixed or any(not self._needs_only_resource(type_, action) for action, type_ in plain):
                return None
            answers = [False] * len(requests)
            for (action, type_), positions in plain.items():
                self._decide_into(
                    answers, positions, self._items(requests, type_, checked=False), _shared_fields(action, type_)
                )
        except (_UnusualError, AttributeError, TypeError):
            return None
        return answers

    def _needs_only_resource(self, type_: str, action: str) -> bool:
        """Whether the policy has an operation, and a request for it needs nothing besides its resource."""
        shape = self._vocabulary.operations.get(type_, {}).get(action)
        return shape is not None and not (shape.withs or shape.required_flags or shape.needs_active_role)

    def _items(self, requests: Sequence[Request], type_: str, *, checked: bool) -> Callable[[int], str]:
        """`[user, [keys from the root to the resource]]` as JSON; what the entities of a batch have in common is built once.

        Unless `checked`, raises for any request that may not be valid.
        """
        chain = self._vocabulary.chains[type_]
        straight = [depth for _, depth in chain] == list(range(1, len(chain) + 1))
        types = [name for name, _ in chain]
        slashes, opening = len(types) - 1, f'"{type_}:'
        keys_by_path: dict[str, str] = {}

        def keys_down_to(path: str, depth: int) -> str:
            """The keys down to an entity, ready for more to be appended."""
            if not depth:
                return ""
            found = keys_by_path.get(path)
            if found is None:
                above, _, name = path.rpartition("/")
                if not name:
                    raise _UnusualError
                found = keys_by_path[path] = f"{keys_down_to(above, depth - 1)}{_quoted(f'{types[depth - 1]}:{path}')},"
            return found

        def as_fallback(request: Request) -> str:
            if not checked:
                raise _UnusualError
            return _text((request.user, self._vocabulary.item_keys(request.resource)))

        def item(position: int) -> str:
            request = requests[position]
            user, path = request.user, request.resource.id
            if path.count("/") != slashes or "%" in path or not (user and user.isascii() and path.isascii()):
                return as_fallback(request)
            above, _, name = path.rpartition("/")
            keys = keys_by_path.get(above) if above else None
            if keys is None:
                try:
                    keys = keys_down_to(above, slashes)
                except _UnusualError:
                    return as_fallback(request)
            if not name:
                return as_fallback(request)
            return f"[{_quoted(user)},[{keys}{opening}{_quoted(path)[1:]}]]"

        return item if straight else lambda position: as_fallback(requests[position])

    def decide(self, request: Request) -> Decision:
        """The decision with its explanation."""
        return _decision(self._ask("decision", request.to_json()), request)

    def decide_many(self, requests: Sequence[Request]) -> list[Decision]:
        """Decisions with explanations, by position."""
        found: list[Decision] = []
        for start in range(0, len(requests), BATCH):
            chunk = requests[start : start + BATCH]
            answers = self._ask("explained", {"requests": [request.to_json() for request in chunk]})
            if not isinstance(answers, list) or len(answers) != len(chunk):
                raise PolicyError(f"`explained` is not a list of {len(chunk)} decisions")
            found += map(_decision, answers, chunk)
        return found

    def visible(self, request: Request, items: Sequence[Entity]) -> list[int]:
        """The positions of the allowed items, ascending; only the type of the request's resource is used."""
        if self._vocabulary.lies_in_state(request.resource.type):
            answers = self.allow_many([replace(request, resource=item) for item in items])
            return [position for position, answer in enumerate(answers) if answer]
        document = request.to_json()
        del document["resource"]["id"]
        found: list[int] = []
        for start in range(0, len(items), BATCH):
            chunk = items[start : start + BATCH]
            positions = self._ask("visible", document | {"items": [self._vocabulary.keys(item) for item in chunk]})
            valid = isinstance(positions, list) and all(
                type(position) is int and 0 <= position < len(chunk) for position in positions
            )
            if not valid or not all(a < b for a, b in pairwise(positions)):
                raise PolicyError(f"`visible` is not a list of positions below {len(chunk)}")
            found += [start + position for position in positions]
        return found

    def _decide_into(
        self,
        answers: list[bool],
        positions: Sequence[int],
        item: Callable[[int], str],
        shared: Mapping[str, Any] | None,
    ) -> None:
        """Decide the requests at some positions: as items with shared fields, or each as a whole."""
        begin = '{"requests":[' if shared is None else f'{_text(shared)[:-1]},"items":['
        for start in range(0, len(positions), BATCH):
            chunk = positions[start : start + BATCH]
            found = self._send("decisions", f"{begin}{','.join(map(item, chunk))}]}}")
            if not isinstance(found, list) or len(found) != len(chunk) or not set(map(type, found)) <= {bool}:
                raise PolicyError(f"`decisions` is not a list of {len(chunk)} answers")
            for position, answer in zip(chunk, found, strict=True):
                answers[position] = answer

    def _ask(self, entrypoint: str, document: object) -> Any:
        return self._send(entrypoint, _text(document))

    def _send(self, entrypoint: str, document: str) -> Any:
        try:
            sent = document.encode()
        except UnicodeEncodeError as error:
            raise InvalidRequest(f"a name is not valid Unicode: {error.object!r:.80}") from None
        results = self._instance.call(f"{self._package}/{entrypoint}", sent)
        if not isinstance(results, list) or not results:
            raise PolicyError(f"the Wasm has no `{entrypoint}` for this request: undefined")
        return results[0]["result"]


class _UnusualError(Exception):
    """A request that may not be valid, or does not have the usual form."""


def _shared_fields(action: str, type_: str) -> dict[str, Any]:
    return {"action": {"name": action}, "resource": {"type": type_}}


def _split_plain(requests: Sequence[Request]) -> tuple[dict[tuple[str, str], Sequence[int]], Sequence[int]]:
    """The positions of plain requests by (operation, type), and those of the others."""
    kinds = {request.action for request in requests}, {request.resource.type for request in requests}
    if all(len(kind) == 1 for kind in kinds) and all(request.plain for request in requests):
        ((action,), (type_,)) = kinds
        return {(action, type_): range(len(requests))}, ()
    plain: dict[tuple[str, str], list[int]] = {}
    mixed: list[int] = []
    for position, request in enumerate(requests):
        if request.plain:
            plain.setdefault((request.action, request.resource.type), []).append(position)
        else:
            mixed.append(position)
    return dict(plain), mixed


def _decision(value: object, request: Request) -> Decision:
    try:
        return Decision.from_engine(value, request)
    except ValueError as error:
        raise PolicyError(f"the Wasm gave no decision: {error}") from None


class Opener:
    """As engines.Opener."""

    takes_wasm = True

    def keep(self, document: Mapping[str, Any]) -> Mapping[str, Any]:
        """Keep the document itself, which is loaded into the module's memory."""
        return document

    def open(self, program: Mapping[str, Any], state: Sequence[Any], module: bytes | None, moment: int) -> OpenEngine:
        """As engines.Opener.open; each call is answered for the moment at which it is made."""
        del moment
        document, missing = combined_document(state) if in_parts(state[0]) else (state[0], frozenset[str]())
        return OpenEngine(engine=WasmEngine(module, program, document), revision=revision_of(document), missing=missing)
