"""Another user of the same machine: keys, tokens, temporary folders and sockets are closed to them."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from privtab.command._app import run

NOBODY = 65534
pytestmark = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or shutil.which("setpriv") is None,
    reason="acts as another user, which root alone can on Linux",
)


def as_nobody(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a command as a user who is neither root nor in any group of ours."""
    switched = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--", *command]
    return subprocess.run(switched, capture_output=True, text=True, check=False, timeout=60, cwd="/")


def readable(path: Path) -> bool:
    return as_nobody("cat", str(path)).returncode == 0


@pytest.fixture
def shared() -> Iterator[Path]:
    """A folder that everybody may enter, as /tmp is."""
    folder = Path(tempfile.mkdtemp(prefix="privtab-other-", dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_the_other_user_reads_what_is_public(shared: Path) -> None:
    (shared / "public").write_text("x")
    (shared / "public").chmod(0o644)
    assert readable(shared / "public")


def test_a_new_private_key_is_not_readable_whatever_the_umask(shared: Path) -> None:
    before = os.umask(0)
    try:
        assert run(["bundle", "keys", str(shared / "key.pem"), "--new", "ES256"]) == 0
    finally:
        os.umask(before)
    assert not readable(shared / "key.pem")
    assert readable(shared / "key.pub.pem") or not (shared / "key.pub.pem").exists()


def test_bundles_that_opa_is_run_on_are_not_readable(policy: Path, state: Path) -> None:
    from privtab.command._engines import packed, served
    from privtab.command._options import load_state
    from privtab.pipeline import load_program

    program = load_program(policy)
    before = os.umask(0)
    try:
        with served(packed(program, load_state(program, state).state)) as server:
            for path in (*server.bundles.values(), server.log):
                assert path.exists()
                assert not readable(path), path
            assert as_nobody("ls", str(server.log.parent)).returncode != 0
    finally:
        os.umask(before)


def test_a_folder_of_mode_700_closes_the_socket_in_it(shared: Path) -> None:
    """What the documentation tells operators to do for OPA's unix socket."""
    connect = "import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])"
    for mode, reached in ((0o711, True), (0o700, False)):
        folder = shared / f"{mode:o}"
        folder.mkdir()
        folder.chmod(mode)
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(folder / "opa.sock"))
            (folder / "opa.sock").chmod(0o777)
            listener.listen()
            ran = as_nobody("/usr/bin/env", "python3", "-c", connect, str(folder / "opa.sock"))
            assert (ran.returncode == 0) is reached, ran.stderr
