"""Files that documents, folders and settings name: regular files within a limit, or a finding; never a hang, never all of memory."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from seeds import seeds

from privtab.base import files
from privtab.base.errors import FileError, UsageError
from privtab.base.signatures import key_text
from privtab.client._address import Token
from privtab.command._app import run
from privtab.state import load as states
from privtab_pages.page_files import page_source

POLICY = 'privtab: 1\nsystem: lake\nversion: "1"\nentities: {cat: {tab:}}\nprivileges: [READ]\ntables: {tab: {read: READ (tab)}}\n'
SCENARIOS = "scenarios: 1\npolicy: lake.yaml\nstate: {state}\ncases:\n  - {{user: a, action: read, resource: 'tab:a/b', decision: deny}}\n"
GRANT = "grantee,effect,privilege,entity\nuser:a,allow,READ,tab:a/c\n"


def _pipe(path: Path) -> None:
    os.mkfifo(path)


def _socket(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as opened:
        os.chdir(path.parent)  # the address of a socket is short
        opened.bind(path.name)


def _large(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(3 << 30)


def _linked_pipe(path: Path) -> None:
    _pipe(path.with_suffix(".fifo"))
    path.symlink_to(path.with_suffix(".fifo"))


HOSTILE: dict[str, Callable[[Path], None]] = {
    "device": lambda path: path.symlink_to("/dev/zero"),
    "pipe": _pipe,
    "link to a pipe": _linked_pipe,
    "socket": _socket,
    "large file": _large,
    "folder": Path.mkdir,
    "link to itself": lambda path: path.symlink_to(path.name),
}


class EndlessError(BaseException):
    """No reader takes it for an error of the system."""


@contextmanager
def at_most(seconds: float) -> Iterator[None]:
    """Interrupt what waits or reads for ever."""

    def stop(*_: object) -> None:
        raise EndlessError

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lake.yaml").write_text(POLICY)
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "grants.csv").write_text(GRANT)
    (tmp_path / "state.yaml").write_text("grants: []\n")
    (tmp_path / "lake.scenarios.yaml").write_text(SCENARIOS.format(state="state.yaml"))
    return tmp_path


@pytest.mark.parametrize("kind", HOSTILE)
def test_what_is_no_file_is_refused_by_every_way_to_read_one(kind: str, folder: Path) -> None:
    path = folder / "it.xlsx"
    HOSTILE[kind](path)
    with at_most(5):
        for read in (files.read_content, files.read_text, files.read_secret, page_source, key_text):
            with pytest.raises((FileError, OSError)):
                read(path)
        with pytest.raises(UsageError):
            Token(None, str(path))


@pytest.mark.parametrize("name", ["grants.csv", "grants.json", "grants.yaml", "grants.parquet", "members.csv"])
@pytest.mark.parametrize("kind", HOSTILE)
def test_a_table_that_is_no_file_stops_the_state(kind: str, name: str, folder: Path) -> None:
    (folder / "state" / "grants.csv").unlink()
    (folder / "state" / "owners.csv").write_text("entity,owner\n")
    HOSTILE[kind](folder / "state" / name)
    with at_most(5):
        found = states.load_raw_state(folder / "state").findings
    assert {finding.severity for finding in found if name in finding.place.path} == {"error"}


def test_a_workbook_that_unpacks_to_more_than_it_may_is_not_unpacked(folder: Path) -> None:
    with zipfile.ZipFile(folder / "bomb.xlsx", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("xl/worksheets/sheet1.xml", b" " * (140 << 20))
    with pytest.raises(FileError, match="unpacks to more than 128 MiB"):
        page_source(folder / "bomb.xlsx")


NAMED: dict[str, list[str]] = {
    "lake.yaml": ["test", "lake.scenarios.yaml"],
    "state.yaml": ["test", "lake.scenarios.yaml"],
    "privtab.toml": ["lint", "lake.yaml"],
    "state/grants.csv": ["state", "validate", "state", "-p", "lake.yaml"],
    "state/members.json": ["state", "pack", "state", "-p", "lake.yaml", "-o", "state.tar.gz"],
    "state/owners.yaml": ["explain", "a", "read", "tab:a/b", "-p", "lake.yaml", "-s", "state"],
}


def _worlds(seed: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Put something hostile in the place of some files that others name; the command ends, fails, and names one of them."""
    rng = random.Random(seed)
    named = rng.sample(sorted(NAMED), rng.randint(1, 3))
    for name in named:
        (folder / name).unlink(missing_ok=True)
        # What a command line names may be a pipe, and is waited for; a link to itself is no settings file at all.
        left_out = {"lake.yaml": {"pipe", "link to a pipe"}, "privtab.toml": {"folder", "link to itself"}}
        kind = rng.choice([kind for kind in HOSTILE if kind not in left_out.get(name, ())])
        HOSTILE[kind](folder / name)
        os.chdir(folder)
    for name in named:
        with at_most(20):
            code = run(NAMED[name])
        said = capsys.readouterr()
        assert code in {1, 2, 3} or name == "privtab.toml", (seed, named, said)
        assert code == 0 or any(Path(one).name in said.err + said.out for one in named), (seed, named, said)
        assert "Traceback" not in said.err
        assert not (folder / "state.tar.gz").exists()


@pytest.mark.parametrize("seed", seeds(range(40), quick=10))
def test_commands_end_at_what_is_no_file(seed: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _worlds(seed, folder, capsys)


@pytest.mark.long
@pytest.mark.parametrize("part", range(100))
def test_many_commands_end_at_what_is_no_file(
    part: int, search_seed: int, tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    for number in range(100):
        place = tmp_path_factory.mktemp("it")
        with pytest.MonkeyPatch.context() as patch:
            folder.__wrapped__(place, patch)  # type: ignore[attr-defined]
            _worlds(search_seed + part * 100 + number, place, capsys)


def test_what_the_command_line_names_may_be_a_pipe(folder: Path) -> None:
    os.mkfifo(folder / "policy.yaml")
    writer = threading.Thread(target=(folder / "policy.yaml").write_text, args=(POLICY,))
    writer.start()
    with at_most(20):
        assert run(["lint", "policy.yaml"]) == 0
    writer.join()


def test_a_process_may_stand_for_a_state(folder: Path) -> None:
    line = f"{sys.executable} -m privtab explain a read tab:a/b -p lake.yaml -s <(echo 'grants: []')"
    done = subprocess.run(["/bin/bash", "-c", line], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.startswith("DENY"), done


def test_a_device_of_the_command_line_is_read_within_the_limit(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with at_most(20):
        assert run(["lint", "/dev/zero"]) == 3
    assert "`/dev/zero` has more than 16 MiB" in capsys.readouterr().err


def test_scenarios_for_themselves_are_a_finding(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "self.scenarios.yaml").write_text(
        SCENARIOS.format(state="state.yaml").replace("lake.yaml", "self.scenarios.yaml")
    )
    assert run(["test", "self.scenarios.yaml"]) == 1
    assert "self.scenarios.yaml" in capsys.readouterr().err


# --- secrets ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mode", "warns"), [(0o600, False), (0o400, False), (0o644, True), (0o604, True)])
def test_a_secret_that_others_may_read_is_warned_of(mode: int, warns: bool, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("abc")
    file.chmod(mode)
    with pytest.warns(files.SecretWarning) if warns else _no_warning():
        assert files.read_secret(file) == "abc"


@contextmanager
def _no_warning() -> Iterator[None]:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def _by_token(path: Path) -> Any:
    return Token(None, str(path))


@pytest.mark.parametrize("read", [files.read_secret, key_text, _by_token])
@pytest.mark.parametrize("mode", [0o602, 0o622, 0o666, 0o777])
def test_a_secret_that_others_may_write_is_refused(mode: int, read: Callable[[Path], Any], tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("abc")
    file.chmod(mode)
    with pytest.raises(UsageError, match="other users may write to"):
        read(file)


def test_a_secret_that_others_may_replace_is_refused(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    file = tmp_path / "open" / "token"
    file.write_text("abc")
    file.chmod(0o600)
    with pytest.raises(UsageError, match="other users may write to"):
        files.read_secret(file)
    (tmp_path / "open").chmod(0o1777)
    assert files.read_secret(file) == "abc", "as Kubernetes mounts secrets: others cannot replace what they do not own"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_secret_of_another_user_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("abc")
    os.chown(file, 12345, 12345)
    with pytest.raises(UsageError, match="belongs to user 12345"):
        files.read_secret(file)
