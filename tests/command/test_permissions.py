"""Files that commands write are as readable as the user's umask lets them be, and private keys are not readable at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PRIVTAB = f"{sys.executable} -m privtab"


@pytest.mark.slow
@pytest.mark.parametrize(("umask", "file_mode", "folder_mode"), [("022", 0o644, 0o755), ("077", 0o600, 0o700)])
def test_written_files_follow_the_umask(
    umask: str, file_mode: int, folder_mode: int, policy: Path, state: Path, tmp_path: Path
) -> None:
    """Bundles and registries say who may do what: they are no more public than their user wants files to be."""
    out = tmp_path / "out"
    lines = (
        f"state pack {state} -p {policy} -o {out}/state.tar.gz",
        f"compile {policy} -o {out}/build",
        f"registry put {out}/registry {out}/state.tar.gz --channel dev --why first",
        f"bundle keys {tmp_path}/key.pem --new ES256",
    )
    for line in lines:
        command = f"umask {umask}; {PRIVTAB} {line}"
        done = subprocess.run(["/bin/sh", "-c", command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    written = list(out.rglob("*"))
    assert len(written) > 10
    for path in written:
        assert path.stat().st_mode & 0o777 == (folder_mode if path.is_dir() else file_mode), path
    assert (tmp_path / "key.pem").stat().st_mode & 0o777 == 0o600


def test_files_for_opa_are_readable_by_their_user_only(policy: Path, state: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from privtab.command._engines import packed, served;"
        "from privtab.command._options import load_state; from privtab.pipeline import load_program;"
        "import os; os.umask(0);"
        "p = load_program(sys.argv[1]); s = load_state(p, Path(sys.argv[2])).state;\n"
        "with served(packed(p, s)) as server:\n"
        "    for path in (server.bundles['state'].parent, server.log.parent): print(oct(path.stat().st_mode & 0o777))"
    )
    command = [sys.executable, "-c", program, str(policy), str(state)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.split() == ["0o700", "0o700"]
