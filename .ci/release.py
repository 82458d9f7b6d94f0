"""Build what a release consists of, from the commit that is checked out: `python .ci/release.py --python .venv/bin/python`.

Wheel and source distribution are built twice, in two folders, and have to be the same bytes. Beside them: the extension for
editors, the documentation as a site, a static `explore`, the bill of materials, how all of it was built, and checksums.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory

sys.path.insert(0, str(Path(__file__).resolve().parent))
ROOT = Path(__file__).resolve().parents[1]
EXPLORED = ("gravitino/1.1.0", "--state", "sample:gravitino")
"""The policy and the state of the static pages."""


class NotReleasedError(Exception):
    """The reason that stops a release, in words."""


def run(*command: str | Path, cwd: Path, **environment: str) -> str:
    """Run a command and return its output. Raises NotReleasedError with all that it said."""
    words = [str(word) for word in command]
    ran = subprocess.run(
        words, cwd=cwd, env={**os.environ, **environment}, check=False, capture_output=True, text=True, errors="replace"
    )
    if ran.returncode != 0:
        raise NotReleasedError(f"`{' '.join(words)}` failed:\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def committed(root: Path) -> tuple[str, str]:
    """The commit that is checked out, and its time in seconds. Raises NotReleasedError if files differ from it."""
    if changed := run("git", "status", "--porcelain", cwd=root):
        raise NotReleasedError(f"these files are not as the commit has them:\n{changed}")
    commit, moment = run("git", "log", "-1", "--format=%H %ct", cwd=root).split()
    return commit, moment


def exported(root: Path, commit: str, folder: Path) -> Path:
    """The files of a commit, and no others, in a new folder."""
    folder.mkdir(parents=True)
    packed = folder.with_suffix(".tar")
    run("git", "archive", "--output", packed, commit, cwd=root)
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    return folder


def version_of(root: Path) -> str:
    """The version that the package says it has."""
    text = (root / "compiler" / "privtab" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "([^"]+)"', text, re.MULTILINE)
    assert found is not None
    return found[1]


def check_tag(root: Path, tag: str) -> None:
    """Refuse a tag that is not the version's, or whose changes have no date."""
    version = version_of(root)
    if tag != f"v{version}":
        raise NotReleasedError(f"the tag is {tag}, and the version is {version}")
    changes = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", changes, re.MULTILINE):
        raise NotReleasedError(f"CHANGELOG.md has no section `## [{version}] - YYYY-MM-DD`")


def built_twice(first: Path, second: Path, moment: str) -> dict[str, bytes]:
    """The wheel and the source distribution of two copies of one commit. Raises NotReleasedError if they differ."""
    both: list[dict[str, bytes]] = []
    for source in (first, second):
        out = source.parent / f"{source.name}-dist"
        run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, cwd=source, SOURCE_DATE_EPOCH=moment)
        both.append({path.name: path.read_bytes() for path in sorted(out.iterdir())})
    if wrong := sorted(name for name in both[0].keys() | both[1].keys() if both[0].get(name) != both[1].get(name)):
        raise NotReleasedError(f"built twice, these differ: {', '.join(wrong)}")
    return both[0]


def extension(source: Path, moment: str) -> bytes:
    """The extension for Visual Studio Code, as a package that editors install."""
    if (npm := shutil.which("npm")) is None:
        raise NotReleasedError("the extension for editors is built with npm, which is not installed")
    folder = source / "editors" / "vscode"
    for words in (("ci", "--ignore-scripts", "--no-audit", "--no-fund"), ("run", "build"), ("run", "package")):
        run(npm, *words, cwd=folder, SOURCE_DATE_EPOCH=moment)
    return (folder / "dist" / "privtab.vsix").read_bytes()


def packed(folder: Path, name: str, moment: str) -> bytes:
    """A folder as a compressed archive: the same files give the same bytes."""
    buffer = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=buffer, mode="wb", mtime=int(moment), filename="") as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in sorted(path for path in folder.rglob("*") if path.is_file()):
            entry = tarfile.TarInfo(f"{name}/{path.relative_to(folder).as_posix()}")
            content = path.read_bytes()
            entry.size, entry.mtime, entry.mode = len(content), int(moment), 0o644
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def pages(source: Path, python: Path, moment: str, name: str) -> dict[str, bytes]:
    """The documentation as a site, and `explore` as files that need no server."""
    site, explored = source.parent / "site", source.parent / "explore"
    environment = {"SOURCE_DATE_EPOCH": moment, "NO_MKDOCS_2_WARNING": "1"}
    run(python, "-m", "mkdocs", "build", "--quiet", "--site-dir", site, cwd=source, **environment)
    at = datetime.fromtimestamp(int(moment), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    run(python, "-m", "privtab", "explore", *EXPLORED, "--at", at, "--export", explored, cwd=source)
    return {
        f"{name}-site.tar.gz": packed(site, f"{name}-site", moment),
        f"{name}-explore.tar.gz": packed(explored, f"{name}-explore", moment),
    }


def sums(files: dict[str, bytes]) -> bytes:
    """Checksums as `sha256sum --check` reads them."""
    return "".join(f"{sha256(files[name]).hexdigest()}  {name}\n" for name in sorted(files)).encode()


def released(root: Path, python: Path, *, tag: str | None, repository: str | None, builder: str) -> dict[str, bytes]:
    """All files of the release of the commit that is checked out, by name."""
    import statements

    commit, moment = committed(root)
    if tag is not None:
        check_tag(root, tag)
    name = f"privtab-{version_of(root)}"
    with TemporaryDirectory() as folder:
        first, second = (exported(root, commit, Path(folder) / place / "source") for place in ("a", "another"))
        files = built_twice(first, second, moment)
        files |= pages(first, python, moment, name)
        files[f"{name}.vsix"] = extension(second, moment)
        bill = statements.Bill(root=first, python=python, version=version_of(root), commit=commit, moment=int(moment))
        files[f"{name}.cdx.json"] = bill.text().encode()
        origin = {"commit": commit, "tag": tag, "repository": repository}
        files[f"{name}.intoto.json"] = statements.provenance(files, first, origin, builder).encode()
    files["SHA256SUMS"] = sums(files)
    return files


def main() -> int:
    """Write the files into a new folder, or none of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", type=Path, required=True, help="an interpreter with privtab, its tools and MkDocs")
    parser.add_argument("--output", type=Path, default=ROOT / "dist", help="the folder, replaced (default: dist)")
    parser.add_argument("--tag", help="the tag that is released: it has to be that of the version")
    parser.add_argument("--repository", help="where the commit is from, as a URI")
    parser.add_argument("--builder", default="urn:privtab:builder:unattested", help="what builds, as a URI")
    given = parser.parse_args()
    try:
        python = given.python.absolute()
        files = released(ROOT, python, tag=given.tag, repository=given.repository, builder=given.builder)
    except NotReleasedError as error:
        sys.stderr.write(f"nothing is released: {error}\n")
        return 1
    new = given.output.with_name(f".{given.output.name}-new")
    shutil.rmtree(new, ignore_errors=True)
    new.mkdir(parents=True)
    for name, content in files.items():
        (new / name).write_bytes(content)
    shutil.rmtree(given.output, ignore_errors=True)
    new.rename(given.output)
    sys.stdout.write(files["SHA256SUMS"].decode())
    return 0


if __name__ == "__main__":
    sys.exit(main())
