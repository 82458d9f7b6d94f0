"""The `wasm` engine: the policy's Rego as OPA compiled it to WebAssembly, in this process, with OPA's own meaning.

Instances are made by opa-py-wasm. Calls go straight to the one-shot `opa_eval` of the module, a few writes to its memory
around it: for a single decision the rest of a call would cost more than the decision.
"""

from __future__ import annotations

import ctypes
import json
import logging
import math
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from privtab._install import how_to_install
from privtab.errors import DecisionUnavailable, InvalidRequest, PolicyError, UsageError
from privtab.request import Decision, Entity, Request
from privtab.vocabulary import Vocabulary

if TYPE_CHECKING:
    from opapywasm.runtime import WasmtimeRuntime

ENTRYPOINTS = ("allow", "decision", "decisions", "explained", "visible")
BATCH = 1000
"""Requests of one call into the module: its memory grows with them and does not shrink."""

_quoted = json.encoder.encode_basestring
FEW = 100
"""Requests up to which nothing is won by asking for all of them unchecked."""

_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), check_circular=False).encode
"""All JSON for a module is written by this, as UTF-8: OPA's Wasm misreads the surrogate pairs that ASCII needs beyond U+FFFF."""
_ADDRESSES = (1 << 32) - 1
"""Addresses come as signed numbers."""
_PAGE = 64 * 1024
LONGEST = 60.0
"""Seconds that a call into a module may take: one that somebody tampered with may never end."""
_TICK = 1.0
"""Seconds between two looks at that."""


class WasmEngine:
    """Answers requests whose names were checked. Threads take turns; a pickled one is instantiated anew."""

    name = "wasm"

    def __init__(self, module: bytes | None, program: Mapping[str, Any], state: Mapping[str, Any]) -> None:
        """`module` is the bundle's; `program` and `state` what the bundles carry. PolicyError, UsageError."""
        if module is None:
            raise UsageError("the policy's bundle has no Wasm: make one with `privtab compile --wasm`")
        self._package = f"privtab/{program['name']}"
        self._vocabulary = Vocabulary.from_program(program)
        data = {
            "privtab_program": {program["name"]: program},
            "privtab_state": {program["system"]: state},
        }
        wanted = [f"{self._package}/{entrypoint}" for entrypoint in ENTRYPOINTS]
        try:
            encoded = _text(data).encode()
        except UnicodeEncodeError as error:
            raise PolicyError(f"a name of the bundles is not valid Unicode: {error.object[error.start]!a}") from None
        self._instance = Instance(module, encoded, wanted)

    def allow(self, request: Request) -> bool:
        """Yes or no."""
        answer = self._ask("allow", request.to_json())
        if not isinstance(answer, bool):
            raise PolicyError("`allow` is not a boolean")
        return answer

    def allow_many(self, requests: Sequence[Request]) -> list[bool]:
        """Yes or no, by position. Requests that share operation and type, with nothing beside them, go in the faster form."""
        answers = [False] * len(requests)
        plain, mixed = _sorted_out(requests)
        for (action, type_), positions in plain.items():
            self._fill(answers, positions, self._items(requests, type_, checked=True), _shared(action, type_))
        self._fill(answers, mixed, lambda at: _text(requests[at].to_json()), None)
        return answers

    def columns(self, requests: Sequence[Request]) -> list[bool] | None:
        """As `allow_many` for requests that nobody has checked; None where one of them is in any way unusual."""
        if len(requests) < FEW or not set(map(type, requests)) <= {Request}:
            return None
        try:
            plain, mixed = _sorted_out(requests)
            if mixed or any(not self._alone(type_, action) for action, type_ in plain):
                return None
            answers = [False] * len(requests)
            for (action, type_), positions in plain.items():
                self._fill(answers, positions, self._items(requests, type_, checked=False), _shared(action, type_))
        except (_UnusualError, AttributeError, TypeError):
            return None
        return answers

    def _alone(self, type_: str, action: str) -> bool:
        """Whether the policy has an operation, and a request for it needs nothing beside its resource."""
        shape = self._vocabulary.operations.get(type_, {}).get(action)
        return shape is not None and not shape.withs and not shape.required_flags

    def _items(self, requests: Sequence[Request], type_: str, *, checked: bool) -> Callable[[int], str]:
        """`[user, [keys from the root to the resource]]` as JSON; what the entities of a batch have in common is made once.

        Unless `checked`, whatever may be no request raises.
        """
        chain = self._vocabulary.chains[type_]
        straight = [depth for _, depth in chain] == list(range(1, len(chain) + 1))
        types = [name for name, _ in chain]
        slashes, opening = len(types) - 1, f'"{type_}:'
        known: dict[str, str] = {}

        def begun(path: str, depth: int) -> str:
            """The keys down to an entity, open to more."""
            if not depth:
                return ""
            found = known.get(path)
            if found is None:
                above, _, name = path.rpartition("/")
                if not name:
                    raise _UnusualError
                found = known[path] = f"{begun(above, depth - 1)}{_quoted(f'{types[depth - 1]}:{path}')},"
            return found

        def odd(request: Request) -> str:
            if not checked:
                raise _UnusualError
            return _text((request.user, self._vocabulary.keys(request.resource)))

        def item(at: int) -> str:
            request = requests[at]
            user, path = request.user, request.resource.id
            if path.count("/") != slashes or "%" in path or not (user and user.isascii() and path.isascii()):
                return odd(request)
            above, _, name = path.rpartition("/")
            keys = known.get(above) if above else None
            if keys is None:
                try:
                    keys = begun(above, slashes)
                except _UnusualError:
                    return odd(request)
            if not name:
                return odd(request)
            return f"[{_quoted(user)},[{keys}{opening}{_quoted(path)[1:]}]]"

        return item if straight else lambda at: odd(requests[at])

    def decide(self, request: Request) -> Decision:
        """The answer with its explanation."""
        return _decision(self._ask("decision", request.to_json()))

    def decide_many(self, requests: Sequence[Request]) -> list[Decision]:
        """Answers with explanations, by position."""
        found: list[Decision] = []
        for start in range(0, len(requests), BATCH):
            chunk = requests[start : start + BATCH]
            answers = self._ask("explained", {"requests": [request.to_json() for request in chunk]})
            if not isinstance(answers, list) or len(answers) != len(chunk):
                raise PolicyError(f"`explained` is not a list of {len(chunk)} decisions")
            found += map(_decision, answers)
        return found

    def visible(self, request: Request, items: Sequence[Entity]) -> list[int]:
        """The positions of the items that pass, ascending; the request's resource gives the type alone."""
        document = request.to_json()
        del document["resource"]["id"]
        found: list[int] = []
        for start in range(0, len(items), BATCH):
            chunk = items[start : start + BATCH]
            positions = self._ask("visible", document | {"items": [self._vocabulary.keys(item) for item in chunk]})
            right = isinstance(positions, list) and all(type(at) is int and 0 <= at < len(chunk) for at in positions)
            if not right or not all(a < b for a, b in pairwise(positions)):
                raise PolicyError(f"`visible` is not a list of positions below {len(chunk)}")
            found += [start + at for at in positions]
        return found

    def _fill(
        self,
        answers: list[bool],
        positions: Sequence[int],
        item: Callable[[int], str],
        shared: Mapping[str, Any] | None,
    ) -> None:
        """Ask for the requests at some positions: as items of what they share, or each whole."""
        begin = '{"requests":[' if shared is None else f'{_text(shared)[:-1]},"items":['
        for start in range(0, len(positions), BATCH):
            chunk = positions[start : start + BATCH]
            found = self._send("decisions", f"{begin}{','.join(map(item, chunk))}]}}")
            if not isinstance(found, list) or len(found) != len(chunk) or not set(map(type, found)) <= {bool}:
                raise PolicyError(f"`decisions` is not a list of {len(chunk)} answers")
            for at, answer in zip(chunk, found, strict=True):
                answers[at] = answer

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
    """A request that may be none, or not of the usual form."""


def _shared(action: str, type_: str) -> dict[str, Any]:
    return {"action": {"name": action}, "resource": {"type": type_}}


def _sorted_out(requests: Sequence[Request]) -> tuple[dict[tuple[str, str], Sequence[int]], Sequence[int]]:
    """Positions of requests with nothing beside them, by (operation, type), and of the others."""
    kinds = {request.action for request in requests}, {request.resource.type for request in requests}
    if all(len(kind) == 1 for kind in kinds) and not [1 for r in requests if r.with_ or r.groups or r.flags]:
        ((action,), (type_,)) = kinds
        return {(action, type_): range(len(requests))}, ()
    plain: dict[tuple[str, str], list[int]] = {}
    mixed: list[int] = []
    for at, request in enumerate(requests):
        if request.with_ or request.groups or request.flags:
            mixed.append(at)
        else:
            plain.setdefault((request.action, request.resource.type), []).append(at)
    return dict(plain), mixed


class Instance:
    """One instance with its data; callers take turns."""

    def __init__(self, module: bytes, data: bytes, entrypoints: Sequence[str]) -> None:
        """`data`: the document below `data`, as JSON in UTF-8. `entrypoints`: those that there must be, `privtab/cdap/allow`."""
        self._module = module
        self._data = data
        self._wanted = tuple(entrypoints)
        self._lock = threading.Lock()
        self._close: Callable[[], object] = lambda: None
        self._start()

    def _start(self) -> None:
        try:
            from opapywasm import OpaWasmError
            from opapywasm.abi import OpaAbi
            from opapywasm.memory import MemoryCodec
            from opapywasm.runtime import WasmtimeRuntimeFactory
        except ImportError as error:
            raise UsageError(f"the engine `wasm` needs the extra `wasm`: {how_to_install('wasm')}") from error
        # It warns of each module that needs more than the least memory, which they all do.
        logging.getLogger("opapywasm").addHandler(logging.NullHandler())
        most = 2**31 - 1
        try:
            factory = WasmtimeRuntimeFactory(self._module)
            self._runtime: WasmtimeRuntime = factory.create_runtime()
            factory.epoch.tick_seconds = _TICK
            factory.epoch.ensure_running()
            self._close()
            self._close = weakref.finalize(self, factory.close)
            self._limit(10 * LONGEST)
            abi = OpaAbi(self._runtime)
            codec = MemoryCodec(
                abi, max_input_bytes=most, max_data_bytes=most, max_result_bytes=most, max_cstring_scan_bytes=most
            )
            self._entrypoints = codec.decode_entrypoints()
            if needed := codec.decode_builtins():
                raise PolicyError(f"the Wasm needs functions of its host: {', '.join(sorted(needed))}")
            self._address = codec.python_to_opa_value(self._data, limit=most, kind="data", validate=False)
            self._heap = abi.opa_heap_ptr_get() & _ADDRESSES
        except (OpaWasmError, ValueError) as error:
            raise PolicyError(f"the Wasm of the policy cannot be run: {error}") from error
        if not 0 < self._heap <= self._runtime.memory.data_len(self._runtime.store):
            raise PolicyError("the Wasm of the policy cannot be run: its heap begins outside of its memory")
        missing = [name for name in self._wanted if name not in self._entrypoints]
        if missing:
            raise PolicyError(f"the Wasm has no entrypoint `{missing[0]}`")
        self._eval = self._runtime.get_func("opa_eval")
        self._failed = False

    def __getstate__(self) -> dict[str, Any]:
        return {"module": self._module, "data": self._data, "wanted": self._wanted}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["module"], state["data"], state["wanted"])  # type: ignore[misc]

    def call(self, entrypoint: str, sent: bytes) -> Any:
        """The result set of an entrypoint for an input, as JSON gives it."""
        with self._lock:
            if self._failed:
                # What a call that broke off leaves in its memory is anybody's guess.
                self._start()
            self._failed = True
            self._limit(LONGEST)
            try:
                answer = self._evaluated(self._entrypoints[entrypoint], sent)
            except Exception as error:
                raise DecisionUnavailable(f"the Wasm of the policy broke off: {error}") from error
            self._failed = False
        try:
            return json.loads(answer)
        except (ValueError, RecursionError) as error:
            raise PolicyError(f"the Wasm of the policy answered with no JSON: {error}") from None

    def _limit(self, seconds: float) -> None:
        """Let a call into the module end in time."""
        self._runtime.set_epoch_deadline(math.ceil(seconds / _TICK) + 1)

    def _evaluated(self, number: int, sent: bytes) -> bytes:
        store, memory, heap = self._runtime.store, self._runtime.memory, self._heap
        end = heap + len(sent)
        if (missing := end - memory.data_len(store)) > 0:
            memory.grow(store, missing // _PAGE + 1)
        ctypes.memmove(ctypes.addressof(memory.data_ptr(store).contents) + heap, sent, len(sent))
        at = self._eval(store, 0, number, self._address, heap, len(sent), end, 0)
        # The memory may have moved. The module ends its answer with a zero byte, unless it was made to do harm: what lies behind
        # its memory is this process's.
        at, size = at & _ADDRESSES, memory.data_len(store)
        if not 0 < at < size:
            raise ValueError("its answer lies outside of its memory")
        start = ctypes.addressof(memory.data_ptr(store).contents)
        if ctypes.string_at(start + size - 1, 1) == b"\0":
            return ctypes.string_at(start + at)
        answer, zero, _ = ctypes.string_at(start + at, size - at).partition(b"\0")
        if not zero:
            raise ValueError("its answer does not end in its memory")
        return answer


def _decision(value: object) -> Decision:
    try:
        return Decision.from_json(value)
    except ValueError as error:
        raise PolicyError(f"the Wasm gave no decision: {error}") from None
