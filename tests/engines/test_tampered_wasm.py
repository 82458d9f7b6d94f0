"""A module that somebody altered: refused where bundles are signed, and nowhere a way into the process that runs it."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import signing_keys
import wasmtime

from privtab import pipeline
from privtab.bundle import state_bundle
from privtab.bundle.archive import archive
from privtab.bundle.sign import signed
from privtab.client.embedded import Embedded
from privtab.engines import opa_wasm as engine
from privtab.engines.opa_wasm import Instance
from privtab.errors import DecisionUnavailable, PolicyError, SignatureRefused
from privtab.opa import wasm
from privtab.pipeline import policy_artifacts, wasm_modules
from privtab.request import Entity
from privtab.state.nodes import Grant, State

POLICY = "{privtab: 1, system: shop, version: '1', entities: {shop: {box: }}, privileges: [LOOK], tables: {box: {look: LOOK (box)}}}"
STATE = State(grants=(Grant(grantee="user:ann", effect="allow", privilege="LOOK", entity=Entity("box", "s/1")),))
MODULE = """
(module
  (import "env" "memory" (memory 2))
  (global (export "opa_wasm_abi_version") i32 (i32.const 1))
  (global (export "opa_wasm_abi_minor_version") i32 (i32.const 3))
  (data (i32.const 1024) "{{\\22x\\22:0}}\\00")
  (data (i32.const 2048) "{{}}\\00")
  (data (i32.const 4096) "[{{\\22result\\22:true}}]\\00")
  (func (export "entrypoints") (result i32) (i32.const 1024))
  (func (export "builtins") (result i32) (i32.const 2048))
  (func (export "opa_json_dump") (param i32) (result i32) (local.get 0))
  (func (export "opa_json_parse") (param i32 i32) (result i32) (i32.const 512))
  (func (export "opa_malloc") (param i32) (result i32) (i32.const 8192))
  (func (export "opa_free") (param i32))
  (func (export "opa_heap_ptr_get") (result i32) (i32.const {heap}))
  (func (export "opa_heap_ptr_set") (param i32))
  (func (export "opa_eval_ctx_new") (result i32) (i32.const 512))
  (func (export "opa_eval_ctx_set_input") (param i32 i32))
  (func (export "opa_eval_ctx_set_data") (param i32 i32))
  (func (export "opa_eval_ctx_set_entrypoint") (param i32 i32))
  (func (export "opa_eval_ctx_get_result") (param i32) (result i32) (i32.const 0))
  (func (export "eval") (param i32) (result i32) (i32.const 0))
  (func (export "opa_eval") (param i32 i32 i32 i32 i32 i32 i32) (result i32) {body}))
"""
LAST = 2 * 65536 - 1
FILL = f"(memory.fill (i32.const 70000) (i32.const 34) (i32.const {LAST + 1 - 70000}))"


def module(body: str = "(i32.const 4096)", heap: int = 16384) -> bytes:
    return bytes(wasmtime.wat2wasm(MODULE.format(body=body, heap=heap)))


def test_the_module_before_tampering_answers() -> None:
    assert Instance(module(), b"{}", ["x"]).call("x", b"{}") == [{"result": True}]


@pytest.mark.parametrize("heap", [0, -1, -65536, LAST + 2, 2**31 - 1, -(2**31)])
def test_a_heap_outside_of_its_memory_is_refused(heap: int) -> None:
    with pytest.raises(PolicyError, match="its heap begins outside of its memory"):
        Instance(module(heap=heap), b"{}", ["x"])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("(i32.const 0)", "outside of its memory"),
        ("(i32.const -1)", "outside of its memory"),
        ("(i32.const -2147483648)", "outside of its memory"),
        (f"(i32.const {LAST + 1})", "outside of its memory"),
        ("(i32.const 2147483647)", "outside of its memory"),
        (f"{FILL} (i32.const {LAST})", "does not end in its memory"),
        (f"{FILL} (i32.const 70000)", "does not end in its memory"),
        ("(unreachable)", "the policy failed"),
        ("(i32.load (i32.const 1000000))", "the policy failed"),
    ],
)
def test_an_answer_outside_of_its_memory_is_none(body: str, message: str) -> None:
    instance = Instance(module(body), b"{}", ["x"])
    for _ in range(2):
        with pytest.raises(DecisionUnavailable, match=message):
            instance.call("x", b"{}")


@pytest.mark.parametrize("text", ["[", "nothing", "[NaN", ""])
def test_an_answer_that_is_no_json_is_a_policy_error(text: str) -> None:
    stores = "".join(f"(i32.store8 (i32.const {5000 + at}) (i32.const {ord(c)}))" for at, c in enumerate(text))
    with pytest.raises(PolicyError, match="did not return JSON"):
        Instance(module(f"{stores} (i32.const 5000)"), b"{}", ["x"]).call("x", b"{}")


def test_a_call_without_an_end_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "LONGEST", 0.2)
    monkeypatch.setattr(engine, "_TICK", 0.1)
    instance = Instance(module("(loop $on (br $on)) (i32.const 0)"), b"{}", ["x"])
    with pytest.raises(DecisionUnavailable, match="the policy failed"):
        instance.call("x", b"{}")


def bundles(folder: Path, binary: Path) -> tuple[Path, Path]:
    """A policy with its Wasm, and a state; signed."""
    (folder / "shop.yaml").write_text(POLICY, encoding="utf-8")
    program = pipeline.load_program(folder / "shop.yaml")
    artifacts = policy_artifacts(program)
    built = wasm.build(wasm_modules(program), artifacts.entrypoints, binary)
    key = signing_keys.pair("ES256").signing()
    policy, state = folder / "policy.tar.gz", folder / "state.tar.gz"
    policy.write_bytes(signed(artifacts.wasm_bundle(built), key))
    state.write_bytes(signed(state_bundle(program, STATE), key))
    return policy, state


def test_an_altered_module_in_a_signed_bundle_is_refused(tmp_path: Path, opa_binary: Path) -> None:
    policy, state = bundles(tmp_path, opa_binary)
    key = signing_keys.pair("ES256").public
    with Embedded(policy, state, engine="wasm", verification_key=key) as client:
        assert client.check("ann", "look", "box:s/1")
    inside = signing_keys.files(policy.read_bytes())
    altered = bytearray(inside["policy.wasm"])
    altered[len(altered) // 2] ^= 1
    policy.write_bytes(archive(inside | {"policy.wasm": bytes(altered)}))
    with pytest.raises(SignatureRefused, match=r"`policy\.wasm` is not as it was when it was signed"):
        Embedded(policy, state, engine="wasm", verification_key=key)


ASK = """
import sys
import threading
from pathlib import Path
from privtab.client.embedded import Embedded
from privtab.errors import PrivtabError
for policy in sys.argv[2:]:
    try:
        with Embedded(policy, sys.argv[1], engine="wasm") as client:
            for user in ("ann", "bob"):
                client.check(user, "look", "box:s/1")
                client.decide(user, "look", "box:s/1")
    except PrivtabError as error:
        print(type(error).__name__)
"""


@pytest.mark.slow
def test_an_altered_module_never_takes_the_process_down(tmp_path: Path, opa_binary: Path) -> None:
    policy, _ = bundles(tmp_path, opa_binary)
    inside = signing_keys.files(policy.read_bytes())
    del inside[".signatures.json"]
    good, chance, altered = inside["policy.wasm"], random.Random(5), []
    for number in range(30):
        changed = bytearray(good)
        for _ in range(chance.choice([1, 1, 4])):
            changed[chance.randrange(8, len(changed))] = chance.randrange(256)
        if number % 10 == 0:
            del changed[chance.randrange(len(changed)) :]
        altered.append(tmp_path / f"altered{number}.tar.gz")
        altered[-1].write_bytes(archive(inside | {"policy.wasm": bytes(changed)}))
    unsigned = tmp_path / "unsigned.tar.gz"
    unsigned.write_bytes(state_bundle(pipeline.load_program(tmp_path / "shop.yaml"), STATE))
    ran = subprocess.run(
        [sys.executable, "-c", ASK, str(unsigned), *map(str, altered)], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    assert len(ran.stdout.splitlines()) > 5


FORKED = """
import os, sys
from pathlib import Path
from privtab.engines import opa_wasm
from privtab.errors import DecisionUnavailable
opa_wasm.LONGEST, opa_wasm._TICK = 0.2, 0.1
instance = opa_wasm.Instance(Path(sys.argv[1]).read_bytes(), b"{}", ["x"])
if child := os.fork():
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
try:
    instance.call("x", b"{}")
except DecisionUnavailable:
    os._exit(7)
os._exit(1)
"""


def test_a_call_without_an_end_ends_in_a_forked_process(tmp_path: Path) -> None:
    """A fork has no thread of its parent's that could end it."""
    (tmp_path / "x.wasm").write_bytes(module("(loop $on (br $on)) (i32.const 0)"))
    ran = subprocess.run([sys.executable, "-c", FORKED, str(tmp_path / "x.wasm")], check=False, timeout=60)
    assert ran.returncode == 7


def test_a_start_without_an_end_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "LONGEST", 0.02)
    monkeypatch.setattr(engine, "_TICK", 0.1)
    endless = wasmtime.wat2wasm('(module (import "env" "memory" (memory 2)) (func $f (loop $on (br $on))) (start $f))')
    with pytest.raises(PolicyError, match="cannot be run"):
        Instance(bytes(endless), b"{}", [])


def test_the_message_of_an_aborting_module_is_in_the_error() -> None:
    head = '(import "env" "memory" (memory 2))'
    text = MODULE.replace(head, f'(import "env" "opa_abort" (func $abort (param i32))) {head}')
    text = text.replace(
        "(data (i32.const 2048)", '(data (i32.const 6000) "too many{{}}\\00")\n  (data (i32.const 2048)'
    )
    aborting = wasmtime.wat2wasm(text.format(body="(call $abort (i32.const 6000)) (i32.const 0)", heap=16384))
    instance = Instance(bytes(aborting), b"{}", ["x"])
    for _ in range(2):
        with pytest.raises(DecisionUnavailable, match=r"the policy failed: too many\{\}$"):
            instance.call("x", b"{}")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ('"opa_wasm_abi_version") i32 (i32.const 1)', '"opa_wasm_abi_version") i32 (i32.const 2)', r"its ABI is 2\.3"),
        ("(i32.const 3)", "(i32.const 1)", r"its ABI is 1\.1"),
        ('"opa_json_parse") (param i32 i32)', '"opa_json_parse") (param i32)', "no function `opa_json_parse`"),
        ('(export "opa_eval")', '(export "evil")', "no function `opa_eval`"),
        ("(i32.const 8192)", "(i32.const 200000)", "outside of its memory"),
        ('"{{}}\\00"', '"{{\\22plus\\22:0}}\\00"', "needs functions of its host: plus"),
        ("{{\\22x\\22:0}}", "[1]", "its entrypoints have no names"),
        ("{{\\22x\\22:0}}", "{{\\22x\\22:[]}}", "no entrypoint `x`"),
        ("{{\\22x\\22:0}}", "{{", "cannot be run"),
        ("(memory 2)", "(memory 20000)", "more than the limit"),
        ("(i32.const 512))\n", "(i32.const 0))\n", "cannot read the data"),
    ],
)
def test_a_module_that_is_none_of_opas_is_refused(old: str, new: str, message: str) -> None:
    assert old in MODULE
    changed = MODULE.replace(old, new, 1).format(body="(i32.const 4096)", heap=16384)
    with pytest.raises(PolicyError, match=message):
        Instance(bytes(wasmtime.wat2wasm(changed)), b"{}", ["x"])


def test_the_text_form_is_refused() -> None:
    with pytest.raises(PolicyError, match="not WebAssembly"):
        Instance(MODULE.format(body="(i32.const 4096)", heap=16384).encode(), b"{}", ["x"])


def test_the_thread_ends_with_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "_TICK", 0.05)
    before = set(threading.enumerate())
    instance = Instance(module(), b"{}", ["x"])
    (own,) = set(threading.enumerate()) - before
    del instance
    own.join(20)
    assert not own.is_alive()
