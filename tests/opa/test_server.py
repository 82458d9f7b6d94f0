"""A real OPA, started, watched and ended."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from checkout import PYTHONPATH

from privtab.base.errors import OpaError
from privtab.engines.opa.server import OpaServer

Bundle = Callable[..., Path]


def value(url: str, path: str) -> Any:
    with urlopen(f"{url}/v1/data/{path}", timeout=5) as answer:  # noqa: S310  (our own loopback address)
        return json.load(answer).get("result")


def until(condition: Callable[[], bool], seconds: float = 10) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def alive(pid: int) -> bool:
    """Whether the process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_bundles_are_active_inside_the_block_and_opa_is_gone_after_it(opa_binary: Path, bundle: Bundle) -> None:
    with OpaServer([bundle("one", 1), bundle("two", 2)], binary=opa_binary) as server:
        assert value(server.url, "one/rules/value") == 1
        assert value(server.url, "two/rules/value") == 2
        assert server.process.poll() is None
        assert "Bundle loaded and activated successfully" in server.log_tail()
        assert "Received request" not in server.log_tail()
    assert server.process.poll() is not None
    server.stop()


def test_nothing_but_the_bundles_and_no_network(opa_binary: Path) -> None:
    with OpaServer(binary=opa_binary) as server:
        assert value(server.url, "") == {}
        command = Path(f"/proc/{server.process.pid}/cmdline")
        if command.exists():
            assert b"--skip-version-check" in command.read_bytes()


@pytest.mark.slow
def test_a_bundle_that_changes_is_read_again_and_a_broken_one_is_not_taken(opa_binary: Path, bundle: Bundle) -> None:
    path = bundle("one", 1)
    with OpaServer([path, bundle("two", 2)], binary=opa_binary) as server:
        bundle("one", 11)
        assert until(lambda: value(server.url, "one/rules/value") == 11)
        path.write_bytes(path.read_bytes()[:100])
        assert until(lambda: "Bundle load failed" in server.log_tail())
        path.unlink()
        assert until(lambda: "server replied with Not Found" in server.log_tail() or "404" in server.log_tail())
        assert value(server.url, "one/rules/value") == 11
        assert value(server.url, "two/rules/value") == 2
        bundle("one", 12)
        assert until(lambda: value(server.url, "one/rules/value") == 12, 20)


def test_a_server_whose_random_label_has_digits_alone_starts(opa_binary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda _: "1234567890123456")
    with OpaServer(binary=opa_binary) as opa:
        assert opa.revisions() == {}


def test_names_come_from_files_or_from_the_caller(opa_binary: Path, bundle: Bundle) -> None:
    server = OpaServer([Path(bundle("one", 1, file="a b.c.tar.gz")), bundle("two", 2, file="a-b-c.tgz")])
    assert list(server.bundles) == ["a-b-c", "a-b-c-2"]
    with OpaServer({"mine": bundle("one", 1)}, binary=opa_binary) as running:
        assert 'name":"mine' in running.log_tail()


def test_a_folder_is_a_bundle_too(opa_binary: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a, b"
    (folder / "one").mkdir(parents=True)
    (folder / "one" / "data.json").write_text('{"value": 5}')
    with OpaServer([folder], binary=opa_binary) as server:
        assert value(server.url, "one/value") == 5


def test_loose_paths_and_a_configuration(opa_binary: Path, bundle: Bundle, tmp_path: Path) -> None:
    (tmp_path / "loose.rego").write_text("package loose\n\nanswer := 42\n")
    config = tmp_path / "config.yaml"
    config.write_text("labels:\n  place: here\n")
    # OPA's own rule: a loose policy needs a bundle that leaves its root free.
    with OpaServer([bundle("one", 1)], binary=opa_binary, paths=[tmp_path / "loose.rego"], config=config) as server:
        assert value(server.url, "loose/answer") == 42
        assert value(server.url, "one/rules/value") == 1
        with urlopen(f"{server.url}/v1/config", timeout=5) as answer:  # noqa: S310
            assert json.load(answer)["result"]["labels"]["place"] == "here"


def test_the_log_goes_where_it_is_wanted(opa_binary: Path, tmp_path: Path) -> None:
    log = tmp_path / "opa.log"
    with OpaServer(binary=opa_binary, log=log):
        pass
    assert "Initializing server" in log.read_text()


# --- what may go wrong ---


def test_a_bundle_that_does_not_compile_is_reported_at_once(opa_binary: Path, bundle: Bundle) -> None:
    started = time.monotonic()
    bad = bundle("one", 1, rego="package one.rules\n\nvalue := undefined_function(1)\n")
    with pytest.raises(OpaError, match=r"bundle `one`: .*undefined_function"), OpaServer([bad], binary=opa_binary):
        pass
    assert time.monotonic() - started < 10


def test_a_truncated_bundle_is_reported_at_once(opa_binary: Path, bundle: Bundle) -> None:
    path = bundle("one", 1)
    path.write_bytes(path.read_bytes()[:120])
    with pytest.raises(OpaError, match="bundle `one`"), OpaServer([path], binary=opa_binary):
        pass


def test_bundles_that_claim_the_same_root_are_reported(opa_binary: Path, bundle: Bundle) -> None:
    bundles = [bundle("one", 1), bundle("one", 2, file="other.tar.gz")]
    with pytest.raises(OpaError, match="overlapping roots"), OpaServer(bundles, binary=opa_binary):
        pass


def test_a_signature_is_checked(opa_binary: Path, tmp_path: Path) -> None:
    folder = tmp_path / "src" / "one"
    folder.mkdir(parents=True)
    (folder / "data.json").write_text('{"value": 5}')
    signed = tmp_path / "signed.tar.gz"
    key = ["--signing-alg", "HS256", "--signing-key", "secret"]
    subprocess.run([opa_binary, "build", "-b", tmp_path / "src", "-o", signed, *key], check=True, capture_output=True)
    for secret, good in (("secret", True), ("other", False)):
        args = [
            "--set",
            f"keys.k.key={secret}",
            "--set",
            "keys.k.algorithm=HS256",
            "--set",
            "bundles.signed.signing.keyid=k",
        ]
        if good:
            with OpaServer([signed], binary=opa_binary, extra_args=args) as server:
                assert value(server.url, "one/value") == 5
        else:
            with (
                pytest.raises(OpaError, match=r"(?i)signature|verif"),
                OpaServer([signed], binary=opa_binary, extra_args=args),
            ):
                pass


def test_a_missing_bundle_is_reported_before_anything_starts(tmp_path: Path) -> None:
    with pytest.raises(OpaError, match="there is no"):
        OpaServer([tmp_path / "none.tar.gz"])


def test_a_bad_option_is_reported_with_the_words_of_opa(opa_binary: Path) -> None:
    with (
        pytest.raises(OpaError, match="unknown flag: --nonsense"),
        OpaServer(binary=opa_binary, extra_args=["--nonsense"]),
    ):
        pass


def test_a_binary_that_cannot_be_run_is_reported(tmp_path: Path) -> None:
    with pytest.raises(OpaError, match="could not be started"), OpaServer(binary=tmp_path / "opa"):
        pass


def test_a_port_that_is_taken_is_reported(opa_binary: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(OpaError, match=f"port {port} of 127.0.0.1 is taken"),
            OpaServer(binary=opa_binary, port=port),
        ):
            pass


def test_another_opa_at_the_port_is_not_taken_for_ours(opa_binary: Path) -> None:
    with OpaServer(binary=opa_binary) as first:
        port = int(first.url.rpartition(":")[2])
        with pytest.raises(OpaError, match="is taken"), OpaServer(binary=opa_binary, port=port):
            pass
        assert first.process.poll() is None


def test_a_free_port_that_is_lost_is_chosen_again(opa_binary: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from privtab.engines.opa import server as module

    with socket.create_server(("127.0.0.1", 0)) as taken:
        real = module._free_port
        ports = [taken.getsockname()[1]]
        monkeypatch.setattr(module, "_free_port", lambda host: ports.pop() if ports else real(host))
        with OpaServer(binary=opa_binary) as server:
            assert value(server.url, "") == {}


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_opa_ends_when_its_parent_is_killed(opa_binary: Path, how: signal.Signals) -> None:
    program = textwrap.dedent(
        f"""
        import time
        from pathlib import Path
        from privtab.engines.opa.server import OpaServer
        server = OpaServer(binary=Path({str(opa_binary)!r}))
        server.start()
        print(server.process.pid, server._guard.pid, flush=True)
        time.sleep(60)
        """
    )
    env = {**os.environ, "PYTHONPATH": PYTHONPATH}
    with subprocess.Popen([sys.executable, "-c", program], env=env, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        opa, guard = map(int, parent.stdout.readline().split())
        assert alive(opa)
        assert alive(guard)
        parent.send_signal(how)
        parent.wait()
    assert until(lambda: not alive(opa))
    assert until(lambda: not alive(guard))
