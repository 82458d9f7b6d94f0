"""Jars from Maven Central, with all that they need."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path


def fetched(artifacts: Iterable[tuple[str, str, str]], folder: Path) -> bool:
    """Put jars by group, name and version, with their dependencies, into a new folder; False where Maven or a jar cannot be had."""
    if (maven := shutil.which("mvn")) is None:
        return False
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as staged:
        wanted = "".join(
            f"<dependency><groupId>{group}</groupId><artifactId>{name}</artifactId>"
            f"<version>{release}</version></dependency>"
            for group, name, release in artifacts
        )
        (Path(staged) / "pom.xml").write_text(
            '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>tests</groupId>'
            f"<artifactId>tests</artifactId><version>1</version><dependencies>{wanted}</dependencies></project>",
            encoding="utf-8",
        )
        options = ("-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", "-DoutputDirectory=jars")
        found = subprocess.run([maven, *options], cwd=staged, check=False, timeout=1800, capture_output=True)
        if found.returncode == 0:
            (Path(staged) / "jars").rename(folder)
    return folder.is_dir()
