"""Decide by the Wasm that OPA compiles a policy to, run by wasmtime: OPA's ABI 1.2 or a later 1.x, for modules of our own."""

from __future__ import annotations

import ctypes
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import wasmtime

from privtab.base.errors import UsageError
from privtab.base.request import Decision, Entity, Request
from privtab.base.sql_text import AppliedFilter
from privtab.base.vocabulary import OperationShape, Vocabulary
from privtab.client import Asker
from privtab.client._protocol import ActiveSystem, Revision, applied, read_active_system
from privtab.engines.opa.binary import build_wasm
from privtab.filters.filter import Filter
from privtab.ir.nodes import Program
from privtab.pipeline import policy_artifacts, wasm_modules
from privtab.state.index import index_document
from privtab.state.nodes import State

ENTRYPOINTS = ("allow", "decision", "decisions", "explained", "visible")
IMPORTED = {"opa_abort": 1, "opa_println": 1, **{f"opa_builtin{n}": n + 2 for n in range(5)}}
"""The functions that a module imports, by name, with their numbers of parameters."""
PAGES = 4096
"""Pages of memory at the start: 256 MiB, more than the initial data of any policy."""


class AbortedError(Exception):
    """The module gave up."""


class Instance:
    """A module with its data."""

    def __init__(self, module: bytes, data: object, clock: Callable[[], int]) -> None:
        """`data`: the document below `data`. `clock`: the moment, in nanoseconds, at which a call is answered."""
        engine, i32 = wasmtime.Engine(), wasmtime.ValType.i32()
        self.store = store = wasmtime.Store(engine)
        self.memory = wasmtime.Memory(store, wasmtime.MemoryType(wasmtime.Limits(PAGES, None)))
        linker = wasmtime.Linker(engine)
        linker.define(store, "env", "memory", self.memory)
        for name, count in IMPORTED.items():
            results = [i32] if "builtin" in name else []
            linker.define_func(
                "env", name, wasmtime.FuncType([i32] * count, results), getattr(self, name, self.opa_abort)
            )
        self.exports = linker.instantiate(store, wasmtime.Module(engine, module)).exports(store)
        assert self.json_of("builtins").keys() <= {"time.now_ns"}
        self.entrypoints: dict[str, int] = self.json_of("entrypoints")
        self.clock = clock
        self.data = self.value(data)
        self.heap: int = self.call("opa_heap_ptr_get")

    def opa_abort(self, address: int, *_: int) -> int:
        """End the call: also for functions of the host that policies never need."""
        raise AbortedError(self.text(address))

    def opa_builtin0(self, number: int, context: int) -> int:
        """`time.now_ns`, the one function of the host that has no argument."""
        del number, context
        return self.now

    def call(self, name: str, *arguments: int) -> int:
        """Call a function of the module, whose addresses are unsigned."""
        function = self.exports[name]
        assert isinstance(function, wasmtime.Func)
        return int(function(self.store, *arguments)) & 0xFFFFFFFF

    def json_of(self, name: str) -> Any:
        """The value that a function of the module gives."""
        return json.loads(self.text(self.call("opa_json_dump", self.call(name))))

    def value(self, document: object) -> int:
        """The address of a document in the module: written as UTF-8, since OPA's Wasm misreads surrogate pairs in ASCII."""
        text = json.dumps(document, ensure_ascii=False).encode()
        address = self.call("opa_malloc", len(text))
        self.write(address, text)
        return self.call("opa_json_parse", address, len(text))

    def write(self, address: int, content: bytes) -> None:
        """Put bytes at an address."""
        if (missing := address + len(content) - self.memory.data_len(self.store)) > 0:
            self.memory.grow(self.store, missing // 65536 + 1)
        start = ctypes.addressof(self.memory.data_ptr(self.store).contents)
        ctypes.memmove(start + address, content, len(content))

    def text(self, address: int) -> bytes:
        """The bytes at an address, up to a zero byte."""
        return ctypes.string_at(ctypes.addressof(self.memory.data_ptr(self.store).contents) + (address & 0xFFFFFFFF))

    def evaluate(self, entrypoint: str, document: object) -> Any:
        """The result set of an entrypoint for an input."""
        function = self.exports["opa_heap_ptr_set"]
        assert isinstance(function, wasmtime.Func)
        function(self.store, self.heap)
        self.now = self.value(self.clock())
        heap, sent = self.call("opa_heap_ptr_get"), json.dumps(document, ensure_ascii=False).encode()
        self.write(heap, sent)
        end = heap + len(sent)
        return json.loads(
            self.text(self.call("opa_eval", 0, self.entrypoints[entrypoint], self.data, heap, len(sent), end, 0))
        )


class WasmEngine:
    """Decides requests whose names were checked, as `privtab.client._engine.ClientEngine`."""

    name = "wasm"
    circuit = None

    def __init__(
        self, program: Program, state: State, binary: Path | None = None, *, clock: Callable[[], int] = time.time_ns
    ) -> None:
        """Compile the policy with the OPA at `binary`, or with that of the machine."""
        artifacts = policy_artifacts(program)
        self.package = f"privtab/{artifacts.program['name']}"
        self.document = artifacts.program
        self.vocabulary = Vocabulary.from_program(artifacts.program)
        self.state = index_document(program, state)
        data = {
            "privtab_program": {artifacts.program["name"]: artifacts.program},
            "privtab_state": {artifacts.program["system"]: self.state},
        }
        self.instance = Instance(build_wasm(wasm_modules(program), artifacts.entrypoints, binary), data, clock)

    def ask(self, entrypoint: str, document: object) -> Any:
        """The value of an entrypoint; None if it is undefined."""
        results = self.instance.evaluate(f"{self.package}/{entrypoint}", document)
        return results[0]["result"] if results else None

    def allow(self, request: Request) -> bool:
        """Whether the request is allowed."""
        answer = self.ask("allow", request.to_json())
        assert isinstance(answer, bool)
        return answer

    def allow_many(self, requests: Sequence[Request], shapes: Sequence[OperationShape] = ()) -> list[bool]:
        """Whether each request is allowed, by position: as a whole, and where it is plain also in the form of items."""
        del shapes
        answers: list[bool] = self.ask("decisions", {"requests": [request.to_json() for request in requests]})
        assert len(answers) == len(requests)
        groups: dict[tuple[str, str], list[int]] = {}
        for position, request in enumerate(requests):
            if request.plain and not self.vocabulary.lies_in_state(request.resource.type):
                groups.setdefault((request.action, request.resource.type), []).append(position)
        for (action, type_), positions in groups.items():
            asked = [requests[position] for position in positions]
            items = [[request.user, self.vocabulary.item_keys(request.resource)] for request in asked]
            body = {"action": {"name": action}, "resource": {"type": type_}, "items": items}
            assert self.ask("decisions", body) == [answers[position] for position in positions]
        return answers

    def decide(self, request: Request) -> Decision:
        """The decision with its explanation."""
        return Decision.from_engine(self.ask("decision", request.to_json()), request)

    def decide_many(self, requests: Sequence[Request]) -> list[Decision]:
        """Decisions with explanations, by position."""
        answers = self.ask("explained", {"requests": [request.to_json() for request in requests]})
        return [Decision.from_engine(answer, request) for answer, request in zip(answers, requests, strict=True)]

    def filter(self, request: Request) -> Filter:  # noqa: ARG002  (the protocol's)
        """As ClientEngine.filter."""
        raise UsageError("a module of Wasm decides about entities that it is given")

    def applied(self, requests: Sequence[Request]) -> list[AppliedFilter]:
        """As ClientEngine.applied."""
        answers = self.ask("filters/applied_many", {"requests": [request.to_json() for request in requests]})
        return applied(self.vocabulary.system, requests).read(json.dumps({"result": answers}).encode())

    def visible(self, request: Request, items: Sequence[Entity]) -> list[int]:
        """The positions of the allowed items, ascending; only the type of the request's resource is used."""
        if self.vocabulary.lies_in_state(request.resource.type):
            answers = self.allow_many([replace(request, resource=item) for item in items])
            return [position for position, answer in enumerate(answers) if answer]
        document = request.to_json()
        del document["resource"]["id"]
        found = self.ask("visible", document | {"items": [self.vocabulary.keys(item) for item in items]})
        assert isinstance(found, list)
        return found

    def active_system(self) -> ActiveSystem:
        """The vocabulary and the revision of the policy."""
        return read_active_system(self.document["name"], self.document)

    def newer(self, active: ActiveSystem) -> ActiveSystem:
        """The same policy: it never changes."""
        return active

    def revision(self) -> Revision:
        """The revisions of policy and state."""
        return Revision(policy=self.active_system().revision, state=self.state.get("revision"))

    def healthy(self) -> bool:
        """Whether it can answer."""
        return True

    def close(self) -> None:
        """Nothing is held open."""


def wasm_client(program: Program, state: State, binary: Path | None = None) -> Asker:
    """A client whose requests are checked as those to any engine are, and decided by Wasm."""
    return Asker(WasmEngine(program, state, binary))
