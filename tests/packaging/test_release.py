"""`make release`: the same bytes twice, nothing that the commit lacks, statements that are valid; and the workflow that publishes."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import re
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from checkout import ROOT
from jsonschema import Draft7Validator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SCRIPT = ROOT / ".ci" / "release.py"
TOOLS = ROOT / ".venv" / "release" / "bin" / "python"
WORKFLOW = ROOT / ".github" / "workflows" / "release.yml"
SCHEMA = json.loads((ROOT / "tests" / "deploy" / "github-workflow.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def release() -> ModuleType:
    spec = importlib.util.spec_from_file_location("release", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def git(folder: Path, *words: str) -> str:
    command = ["git", "-c", "user.name=n", "-c", "user.email=n@example.com", *words]
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with a package that is built like privtab, and one commit."""
    folder = tmp_path / "repository"
    files = {
        "pyproject.toml": (
            '[build-system]\nrequires = ["hatchling"]\nbuild-backend = "hatchling.build"\n'
            '[project]\nname = "privtab"\ndynamic = ["version"]\nrequires-python = ">=3.11"\n'
            '[tool.hatch.version]\npath = "compiler/privtab/__init__.py"\n'
            '[tool.hatch.build.targets.wheel]\npackages = ["compiler/privtab"]\n'
        ),
        "compiler/privtab/__init__.py": '__version__ = "1.2.3"\n',
        "CHANGELOG.md": "## [1.2.3] - 2026-11-29\n\n## [1.2.2] - unreleased\n",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    git(folder.parent, "init", "-q", str(folder))
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "Begin")
    return folder


def test_files_that_the_commit_lacks_stop_a_release(release: ModuleType, repository: Path, tmp_path: Path) -> None:
    commit, moment = release.committed(repository)
    assert (len(commit), moment.isdigit()) == (40, True)
    (repository / "left.txt").write_text("left")
    with pytest.raises(release.NotReleasedError, match=r"left\.txt"):
        release.committed(repository)
    copy = release.exported(repository, commit, tmp_path / "a" / "source")
    assert sorted(path.name for path in copy.iterdir()) == ["CHANGELOG.md", "compiler", "pyproject.toml"]


@pytest.mark.parametrize("tag", ["1.2.3", "v1.2.2", "v1.2.30"])
def test_another_tag_than_that_of_the_version_is_refused(release: ModuleType, repository: Path, tag: str) -> None:
    release.check_tag(repository, "v1.2.3")
    with pytest.raises(release.NotReleasedError, match="the version is"):
        release.check_tag(repository, tag)


def test_a_version_without_a_date_is_refused(release: ModuleType, repository: Path) -> None:
    (repository / "compiler/privtab/__init__.py").write_text('__version__ = "1.2.2"\n')
    with pytest.raises(release.NotReleasedError, match=r"CHANGELOG\.md has no section"):
        release.check_tag(repository, "v1.2.2")


@pytest.mark.slow
def test_a_build_that_differs_stops_a_release(release: ModuleType, repository: Path, tmp_path: Path) -> None:
    commit, moment = release.committed(repository)
    first, second = (release.exported(repository, commit, tmp_path / place / "source") for place in "ab")
    built = release.built_twice(first, second, moment)
    assert sorted(built) == ["privtab-1.2.3-py3-none-any.whl", "privtab-1.2.3.tar.gz"]
    (second / "compiler" / "privtab" / "more.py").write_text("")
    with pytest.raises(release.NotReleasedError, match=r"built twice, these differ: .*\.whl"):
        release.built_twice(first, second, moment)


def test_an_archive_depends_on_its_files_alone(release: ModuleType, tmp_path: Path) -> None:
    for place, mode in (("a", 0o600), ("b", 0o666)):
        (tmp_path / place / "deep").mkdir(parents=True)
        for name in ("one.html", "deep/two.html") if place == "a" else ("deep/two.html", "one.html"):
            (tmp_path / place / name).write_text(name)
            (tmp_path / place / name).chmod(mode)
    first, second = (release.packed(tmp_path / place, "site", "1700000000") for place in "ab")
    assert first == second
    (tmp_path / "site.tar.gz").write_bytes(first)
    with tarfile.open(tmp_path / "site.tar.gz") as archive:
        assert archive.getnames() == ["site/deep/two.html", "site/one.html"]


def test_checksums_are_those_that_sha256sum_reads(release: ModuleType) -> None:
    digest = hashlib.sha256(b"b").hexdigest()
    assert release.sums({"b": b"b", "a": b""}).decode().splitlines()[1] == f"{digest}  b"


def test_the_tools_are_pinned_by_hash_and_are_no_part_of_privtab() -> None:
    lock = (ROOT / "requirements" / "release.lock").read_text(encoding="utf-8")
    entries = re.split(r"(?<!\\)\n", lock)
    pinned = {canonicalize_name(entry.split("==")[0]) for entry in entries if "==" in entry}
    assert all("--hash=sha256:" in entry for entry in entries if "==" in entry)
    wanted = (ROOT / "requirements" / "release.in").read_text(encoding="utf-8").splitlines()
    names = {canonicalize_name(Requirement(line).name) for line in wanted if line[:1] != "#"}
    assert names <= pinned
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = [text for extra, texts in project["optional-dependencies"].items() if extra != "dev" for text in texts]
    assert not {"cyclonedx-python-lib", "in-toto-attestation"} & {Requirement(text).name for text in extras}


STATE = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
import statements
root = Path(sys.argv[2])
bill = statements.Bill(root=root, python=Path(sys.argv[3]), version="1.2.3", commit="c" * 40, moment=1700000000)
first = bill.text()
assert first == bill.text()
print(first)
print("\\f")
print(statements.provenance({"a.whl": b"a"}, root, {"commit": "c" * 40, "tag": "v1.2.3", "repository": None}, "urn:b"))
"""


@pytest.fixture(scope="module")
def stated() -> tuple[dict[str, Any], dict[str, Any]]:
    """The bill of materials and the provenance, as the tools of releases write them."""
    if not TOOLS.exists():
        pytest.skip("`make setup-test` installs the tools of releases")
    command = [str(word) for word in (TOOLS, "-c", STATE, SCRIPT.parent, ROOT, sys.executable)]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    bill, _, provenance = ran.stdout.partition("\f")
    return json.loads(bill), json.loads(provenance)


@pytest.mark.slow
def test_the_bill_names_every_locked_package_with_its_hashes(stated: tuple[dict[str, Any], dict[str, Any]]) -> None:
    bill, _ = stated
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.6")
    assert bill["metadata"]["component"]["purl"] == "pkg:pypi/privtab@1.2.3"
    found = {one["purl"]: one for one in bill["components"]}
    lock = (ROOT / "requirements" / "run.lock").read_text(encoding="utf-8")
    locked = {
        f"pkg:pypi/{name.lower()}@{version}"
        for name, version in re.findall(r"^([\w.-]+)==([^ ;]+)", lock, re.MULTILINE)
    }
    assert locked == {purl for purl in found if purl.startswith("pkg:pypi/")}
    for purl in locked:
        (files,) = found[purl]["externalReferences"]
        assert all(len(one["content"]) == 64 for one in files["hashes"])
        assert files["hashes"]
    assert {one["name"] for one in found.values() if one["scope"] == "required"} == {
        "requests",
        "certifi",
        "charset-normalizer",
        "idna",
        "urllib3",
    }
    assert any(purl.startswith("pkg:npm/vscode-languageclient@") for purl in found)
    needs = {one["ref"]: one.get("dependsOn", []) for one in bill["dependencies"]}
    assert any(ref.startswith("pkg:pypi/urllib3@") for ref in needs[next(p for p in found if "/requests@" in p)])
    assert any(ref.startswith("pkg:pypi/lark@") for ref in needs["privtab"])


@pytest.mark.slow
def test_the_statement_names_files_commit_and_locks(stated: tuple[dict[str, Any], dict[str, Any]]) -> None:
    _, statement = stated
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://slsa.dev/provenance/v1"
    assert statement["subject"] == [{"name": "a.whl", "digest": {"sha256": hashlib.sha256(b"a").hexdigest()}}]
    definition = statement["predicate"]["buildDefinition"]
    assert definition["externalParameters"] == {"commit": "c" * 40, "tag": "v1.2.3"}
    source, *locks = definition["resolvedDependencies"]
    assert source["digest"] == {"gitCommit": "c" * 40}
    assert locks
    for lock in locks:
        assert lock["digest"]["sha256"] == hashlib.sha256((ROOT / lock["name"]).read_bytes()).hexdigest()
    assert statement["predicate"]["runDetails"] == {"builder": {"id": "urn:b"}}


# --- the workflow ---


def workflow() -> dict[str, Any]:
    """The workflow, in which `on` is a word as in YAML 1.2."""
    loaded: dict[Any, Any] = yaml.safe_load(WORKFLOW.read_text(encoding="utf-8"))
    return {"on" if key is True else key: value for key, value in loaded.items()}


def problems(document: dict[str, Any]) -> list[str]:
    return [error.message for error in Draft7Validator(SCHEMA).iter_errors(document)]


def test_the_workflow_is_valid_by_its_schema() -> None:
    assert problems(workflow()) == []
    assert problems({**workflow(), "permisions": {}})
    wrong = workflow()
    wrong["jobs"]["publish"]["permissions"]["id-token"] = "maybe"
    assert problems(wrong)


def test_the_workflow_trusts_nothing_that_can_change() -> None:
    """Actions by commit, no expression in a script, no secret, and what signs or publishes waits for an approval."""
    document = workflow()
    assert document["permissions"] == {}
    assert "secrets." not in WORKFLOW.read_text(encoding="utf-8")
    for name, job in document["jobs"].items():
        steps = job["steps"]
        assert [s["uses"] for s in steps if "uses" in s and not re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", s["uses"])] == []
        assert [s["run"] for s in steps if "${{" in s.get("run", "")] == []
        assert [s for s in steps if "checkout@" in s.get("uses", "") and s["with"]["persist-credentials"]] == []
        writes = [scope for scope, access in job["permissions"].items() if access == "write"]
        assert (job.get("environment") == "release") == bool(writes) == (name != "build")
    assert document["jobs"]["publish"]["permissions"] == {"id-token": "write"}, "trusted publishing, and no token"


def test_the_image_is_signed_by_digest() -> None:
    (script,) = [step["run"] for step in workflow()["jobs"]["image"]["steps"] if "cosign sign" in step.get("run", "")]
    assert 'cosign sign --yes "$IMAGE@$digest"' in script
    assert re.findall(r"cosign sign .*", script) == ['cosign sign --yes "$IMAGE@$digest"']


def test_the_workflow_s_command_is_one_of_the_script() -> None:
    """Make passes names of variables on, of which the shell takes the values as single words."""
    (command,) = [s["run"] for s in workflow()["jobs"]["build"]["steps"] if "make release" in s.get("run", "")]
    shown = subprocess.run(
        ["sh", "-c", f"{command} --dry-run --assume-old=.venv/.stamps/venv"],  # noqa: S607
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", "TAG": "v1;x"},
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    (line,) = [line for line in shown.splitlines() if ".ci/release.py" in line]
    assert line.endswith('--tag "$TAG" --repository "git+$REPOSITORY" --builder "$WORKFLOW"')
    options = set(re.findall(r"--[a-z]+", line))
    assert options <= set(re.findall(r'"(--[a-z]+)"', SCRIPT.read_text(encoding="utf-8")))


def test_only_wheel_and_source_go_to_the_package_index(tmp_path: Path) -> None:
    name = "privtab-1.2.3"
    files = ["-py3-none-any.whl", ".tar.gz", ".vsix", "-site.tar.gz", "-explore.tar.gz", ".cdx.json", ".intoto.json"]
    (tmp_path / "dist").mkdir()
    for ending in files:
        (tmp_path / "dist" / f"{name}{ending}").write_bytes(b"")
    (script,) = [step["run"] for step in workflow()["jobs"]["publish"]["steps"] if "run" in step]
    subprocess.run(["sh", "-ec", script], cwd=tmp_path, check=True)  # noqa: S607
    assert sorted(path.name for path in (tmp_path / "packages").iterdir()) == [f"{name}{end}" for end in files[:2]]
