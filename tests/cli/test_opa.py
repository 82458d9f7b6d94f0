from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from privtab import Client, DecisionUnavailable
from privtab.opa import binary

MAIN = "from privtab.cli import main; main()"


def test_path_prints_the_opa_that_is_used(privtab: Callable[..., Any]) -> None:
    ran = privtab("opa", "path")
    assert (ran.code, ran.out) == (0, f"{binary.find()}\n")


def test_an_installed_opa_is_not_installed_again(privtab: Callable[..., Any]) -> None:
    ran = privtab("opa", "install")
    assert (ran.code, ran.out) == (0, f"{binary.find()}\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_run_serves_the_policy_until_it_is_stopped(policy: Path, state: Path, number: signal.Signals) -> None:
    command = [sys.executable, "-c", MAIN, "opa", "run", "-p", str(policy), "-s", str(state), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        curl = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found, line + (process.stderr.read() if process.stderr and process.poll() is not None else "")
        with Client(found[0]) as client:
            assert client.check("ann", "read", "item:s/a/x")
            assert not client.check("cleo", "read", "item:s/a/x")
        asked = subprocess.run(["/bin/sh", "-c", curl], check=True, capture_output=True, text=True, timeout=30)
        assert '"rule":"shop/store/' in asked.stdout
    finally:
        process.send_signal(number)
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 0, errors
    assert "Traceback" not in errors
    with Client(found[0], system="shop", timeout=1) as client, pytest.raises(DecisionUnavailable):
        client.check("ann", "read", "item:s/a/x")
