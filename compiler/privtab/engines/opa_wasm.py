"""Run a module that OPA compiled to WebAssembly, with wasmtime: OPA's Wasm ABI, 1.2 or a later 1.x.

A call is one write to the module's memory, its one-shot `opa_eval`, and one read: for a single decision, anything more would
cost more than the decision.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from privtab._install import how_to_install
from privtab.errors import DecisionUnavailable, PolicyError, UsageError

if TYPE_CHECKING:
    import wasmtime

_ADDRESSES = (1 << 32) - 1
"""Mask for addresses, which arrive as signed numbers."""
_PAGE = 64 * 1024
LONGEST = 60.0
"""Seconds that a call into a module may take; a manipulated module may never return."""
_TICK = 1.0
"""Seconds between two checks of that limit."""
_MOST_PAGES = 16384
"""Limit on the memory that a module may need before it runs: 1 GiB."""
NOW = "time.now_ns"
_HOST = f"""
(module
  (global (export "message") (mut i32) (i32.const 0))
  (func (export "opa_abort") (param i32) (global.set 0 (local.get 0)) unreachable)
  (func (export "opa_println") (param i32))
  (global (export "now") (mut i32) (i32.const 0))
  (func (export "opa_builtin0") (param i32 i32) (result i32)
    (if (i32.eqz (global.get 1)) (then unreachable)) (global.get 1))
  {" ".join(f'(func (export "opa_builtin{n}") (param {"i32 " * (n + 2)}) (result i32) unreachable)' for n in range(1, 5))})
"""
"""What OPA's modules import besides memory. The only function without arguments is `time.now_ns`: it gives the value at the address
`now`, which is there before a call. Not Python functions, since wasmtime keeps those in a list without a lock."""


class Instance:
    """One instance with its data; concurrent calls wait for each other."""

    def __init__(
        self, module: bytes, data: bytes, entrypoints: Sequence[str], clock: Callable[[], int] | None = None
    ) -> None:
        """`data`: the document below `data`, as JSON in UTF-8. `entrypoints`: those that must exist, such as `privtab/lake/allow`.

        `clock`: the moment, in nanoseconds, at which a call is answered; without it, a call that needs the time fails.
        """
        try:
            import wasmtime
        except ImportError as error:
            raise UsageError(f"the engine `wasm` needs the extra `wasm`: {how_to_install('wasm')}") from error
        self._arguments = module, data, tuple(entrypoints), clock
        self._lock = threading.Lock()
        config = wasmtime.Config()
        config.epoch_interruption = True
        self._engine = wasmtime.Engine(config)
        self._host = wasmtime.Module(self._engine, _HOST)
        self._tick()
        try:
            if not module.startswith(b"\0asm"):  # wasmtime would accept the text format, too
                raise ValueError("it is not WebAssembly")
            self._module = wasmtime.Module(self._engine, module)
            self._pages = max(
                (t.limits.min for i in self._module.imports if isinstance(t := i.type, wasmtime.MemoryType)), default=1
            )
            if self._pages > _MOST_PAGES:
                raise ValueError(f"it needs {self._pages} pages of memory, more than the limit of {_MOST_PAGES}")
        except (wasmtime.WasmtimeError, ValueError) as error:
            raise PolicyError(f"the Wasm of the policy cannot be run: {error}") from error
        self._start()

    def _tick(self) -> None:
        """Advance the engine's epoch in a thread while the engine exists; a forked process needs a thread of its own."""
        self._pid = os.getpid()
        threading.Thread(
            target=_advance_epoch, args=(weakref.ref(self._engine),), name="privtab-wasm", daemon=True
        ).start()

    def _start(self) -> None:
        """Create the instance and load its data. Raises PolicyError."""
        import wasmtime

        _, data, required, _ = self._arguments
        try:
            exports = self._instantiate()
            function = partial(_function, self._store, exports)
            major, minor = (exports.get(f"opa_wasm_abi_{name}") for name in ("version", "minor_version"))
            versions = [g.value(self._store) if isinstance(g, wasmtime.Global) else 0 for g in (major, minor)]
            if versions[0] != 1 or versions[1] < 2:
                raise ValueError(f"its ABI is {versions[0]}.{versions[1]}, and needs to be 1.2 or a later 1.x")
            dump = function("opa_json_dump", 1)
            self._entrypoints, builtins = (
                json.loads(self._text(dump(self._store, function(name, 0)(self._store))))
                for name in ("entrypoints", "builtins")
            )
            if not all(isinstance(names, dict) for names in (self._entrypoints, builtins)):
                raise ValueError("its entrypoints have no names")
            if builtins.keys() - {NOW}:
                raise PolicyError(f"the Wasm needs functions of its host: {', '.join(sorted(builtins.keys() - {NOW}))}")
            address = function("opa_malloc", 1)(self._store, len(data)) & _ADDRESSES
            self._write(address, data)
            self._address = function("opa_json_parse", 2)(self._store, address, len(data))
            if not self._address:
                raise ValueError("it cannot read the data")
            self._heap = function("opa_heap_ptr_get", 0)(self._store) & _ADDRESSES
            self._parse = function("opa_json_parse", 2)
            self._heap_now, self._set_heap = function("opa_heap_ptr_get", 0), exports.get("opa_heap_ptr_set")
            if not isinstance(self._set_heap, wasmtime.Func):
                raise ValueError("it has no function `opa_heap_ptr_set`")
            self._eval = function("opa_eval", 7)
        except (wasmtime.WasmtimeError, wasmtime.Trap, ValueError, RecursionError) as error:
            raise PolicyError(f"the Wasm of the policy cannot be run: {self._reason(error)}") from error
        if not 0 < self._heap <= self._memory.data_len(self._store):
            raise PolicyError("the Wasm of the policy cannot be run: its heap begins outside of its memory")
        missing = [name for name in required if type(self._entrypoints.get(name)) is not int]
        if missing:
            raise PolicyError(f"the Wasm has no entrypoint `{missing[0]}`")
        self._failed = False

    def _instantiate(self) -> Mapping[str, Any]:
        """The exports of a new instance."""
        import wasmtime

        pages = self._pages
        while True:
            self._message: wasmtime.Global | None = None
            self._store = store = wasmtime.Store(self._engine)
            self._limit(10 * LONGEST)
            self._memory = wasmtime.Memory(store, wasmtime.MemoryType(wasmtime.Limits(pages, None)))
            host = wasmtime.Instance(store, self._host, [])
            message, now = (host.exports(store)[name] for name in ("message", "now"))
            assert isinstance(message, wasmtime.Global)
            assert isinstance(now, wasmtime.Global)
            self._message, self._now = message, now
            linker = wasmtime.Linker(self._engine)
            linker.define(store, "env", "memory", self._memory)
            linker.define_instance(store, "env", host)
            try:
                return linker.instantiate(store, self._module).exports(store)
            except wasmtime.Trap as trap:
                # The module's initial data is copied into its memory at the start, and may need more than it declares.
                if trap.trap_code is not wasmtime.TrapCode.MEMORY_OUT_OF_BOUNDS or pages >= _MOST_PAGES:
                    raise
                pages *= 2

    def __getstate__(self) -> dict[str, Any]:
        return {"arguments": self._arguments}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(*state["arguments"])  # type: ignore[misc]

    def call(self, entrypoint: str, sent: bytes) -> Any:
        """Evaluate an entrypoint for an input, and return the parsed result set."""
        with self._lock:
            if self._pid != os.getpid():
                self._tick()
            if self._failed:
                # An interrupted call leaves the memory in an unknown state.
                self._start()
            self._failed = True
            self._limit(LONGEST)
            try:
                answer = self._evaluate(self._entrypoints[entrypoint], sent)
            except Exception as error:
                raise DecisionUnavailable(f"the Wasm of the policy failed: {self._reason(error)}") from error
            self._failed = False
        try:
            return json.loads(answer)
        except (ValueError, RecursionError) as error:
            raise PolicyError(f"the Wasm of the policy did not return JSON: {error}") from None

    def _limit(self, seconds: float) -> None:
        """Limit the time of the next call into the module."""
        self._store.set_epoch_deadline(math.ceil(seconds / _TICK) + 1)

    def _evaluate(self, number: int, sent: bytes) -> bytes:
        heap = self._heap if self._arguments[3] is None else self._write_time(self._arguments[3]())
        end = heap + len(sent)
        if (missing := end - self._memory.data_len(self._store)) > 0:
            self._memory.grow(self._store, missing // _PAGE + 1)
        self._write(heap, sent)
        return self._text(self._eval(self._store, 0, number, self._address, heap, len(sent), end, 0))

    def _write_time(self, moment: int) -> int:
        """Put a moment where `time.now_ns` finds it, at the beginning of the heap; returns where the heap goes on."""
        text = str(moment).encode()
        assert self._set_heap is not None
        self._write(self._heap, text)
        self._set_heap(self._store, self._heap + len(text))
        value = self._parse(self._store, self._heap, len(text))
        if not value:
            raise ValueError("it cannot read the time")
        self._now.set_value(self._store, value)
        return int(self._heap_now(self._store)) & _ADDRESSES

    def _write(self, address: int, content: bytes) -> None:
        memory, store = self._memory, self._store
        if not 0 < address <= memory.data_len(store) - len(content):
            raise ValueError("it allocated its input outside of its memory")
        ctypes.memmove(ctypes.addressof(memory.data_ptr(store).contents) + address, content, len(content))

    def _text(self, address: int) -> bytes:
        """The bytes at an address, up to a zero byte.

        A malicious module may omit that byte, and the memory after its own belongs to this process.
        """
        memory, store = self._memory, self._store
        address, size = address & _ADDRESSES, memory.data_len(store)
        if not 0 < address < size:
            raise ValueError("its answer lies outside of its memory")
        start = ctypes.addressof(memory.data_ptr(store).contents)
        if ctypes.string_at(start + size - 1, 1) == b"\0":
            return ctypes.string_at(start + address)
        answer, zero, _ = ctypes.string_at(start + address, size - address).partition(b"\0")
        if not zero:
            raise ValueError("its answer does not end in its memory")
        return answer

    def _reason(self, error: Exception) -> str:
        """The message with which the module aborted, or that of the runtime."""
        try:
            if self._message is not None and (address := self._message.value(self._store)):
                return self._text(address)[:1000].decode("utf-8", "replace")
        except ValueError:
            pass
        return str(error)


def _function(store: wasmtime.Store, exports: Mapping[str, Any], name: str, parameters: int) -> wasmtime.Func:
    """A function of OPA's ABI: 32-bit numbers in, one out."""
    import wasmtime

    found, number = exports.get(name), wasmtime.ValType.i32()
    if isinstance(found, wasmtime.Func):
        type_ = found.type(store)
        if type_.params == [number] * parameters and type_.results == [number]:
            return found
    raise ValueError(f"it has no function `{name}` as OPA's modules have it")


def _advance_epoch(engine: weakref.ref[wasmtime.Engine]) -> None:
    while True:
        time.sleep(_TICK)
        existing = engine()
        if existing is None:
            return
        existing.increment_epoch()
        del existing
