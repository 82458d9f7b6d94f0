"""The statements of a release: its bill of materials (CycloneDX), and how it was built (in-toto, SLSA provenance)."""

from __future__ import annotations

import json
import subprocess
import tomllib
from base64 import b64decode
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import distributions
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from google.protobuf.json_format import MessageToJson, ParseDict
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.v1.resource_descriptor import ResourceDescriptor
from in_toto_attestation.v1.statement import Statement
from locked import asked, pins
from packageurl import PackageURL
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LOCKS = (
    "requirements/run.lock",
    "requirements/release.lock",
    "requirements/test.lock",
    "editors/vscode/package-lock.json",
)
"""The packages that a release is built with and from, each by its hash."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bill:
    """The bill of materials of a commit: privtab, what each extra of it needs, and what the extension contains."""

    root: Path
    python: Path
    """The interpreter whose packages say what they need."""
    version: str
    commit: str
    moment: int

    def text(self) -> str:
        """CycloneDX 1.6 as JSON; the same commit gives the same bytes. Raises ValueError if it is not valid."""
        whole = Component(
            name="privtab",
            version=self.version,
            type=ComponentType.APPLICATION,
            purl=PackageURL("pypi", name="privtab", version=self.version),
            bom_ref="privtab",
        )
        bom = Bom(serial_number=uuid5(NAMESPACE_URL, f"urn:privtab:{self.commit}"))
        bom.metadata.timestamp = datetime.fromtimestamp(self.moment, UTC)
        bom.metadata.component = whole
        packages, needs = self._packages(), self._needs()
        for name, found in packages.items():
            bom.components.update(found)
            for one in found:
                bom.register_dependency(
                    one, [other for needed in needs.get(name, ()) for other in packages.get(needed, ())]
                )
        editor = self._editor()
        bom.components.update(editor)
        direct = {canonicalize_name(one.name) for one in asked(self._project(), ["all"])}
        bom.register_dependency(whole, [*(one for name in direct for one in packages[name]), *editor])
        text = str(JsonV1Dot6(bom).output_as_string(indent=1))
        if (error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)) is not None:
            raise ValueError(str(error))
        return text + "\n"

    def _project(self) -> dict[str, object]:
        return tomllib.loads((self.root / "pyproject.toml").read_text(encoding="utf-8"))

    def _packages(self) -> dict[str, list[Component]]:
        """The locked packages by name; several versions of one are for several platforms."""
        base = {canonicalize_name(one.name) for one in asked(self._project(), [])}
        needs = self._needs()
        while more := {needed for name in base for needed in needs.get(name, ())} - base:
            base |= more
        lock = (self.root / "requirements" / "run.lock").read_text(encoding="utf-8")
        found: dict[str, list[Component]] = {}
        for name, versions in pins(lock).items():
            for version, rest in versions:
                purl = PackageURL("pypi", name=name, version=str(version))
                hashes = [
                    word.removeprefix("--hash=sha256:") for word in rest.split() if word.startswith("--hash=sha256:")
                ]
                files = ExternalReference(
                    type=ExternalReferenceType.DISTRIBUTION,
                    url=XsUri(purl.to_string()),
                    comment="each file that may be installed",
                    hashes=[HashType(alg=HashAlgorithm.SHA_256, content=content) for content in hashes],
                )
                one = Component(
                    name=name,
                    version=str(version),
                    purl=purl,
                    bom_ref=purl.to_string(),
                    scope=ComponentScope.REQUIRED if name in base else ComponentScope.OPTIONAL,
                    external_references=[files],
                )
                found.setdefault(name, []).append(one)
        return found

    def _needs(self) -> dict[str, set[str]]:
        """The needs of each installed package here."""
        where = "import sysconfig; print(sysconfig.get_path('purelib'))"
        site = subprocess.run([self.python, "-c", where], check=True, capture_output=True, text=True).stdout.strip()
        found: dict[str, set[str]] = {}
        for one in distributions(path=[site]):
            wanted = [Requirement(text) for text in one.requires or ()]
            names = {canonicalize_name(r.name) for r in wanted if r.marker is None or r.marker.evaluate({"extra": ""})}
            found[canonicalize_name(one.name)] = names
        return found

    def _editor(self) -> list[Component]:
        """The packages in the extension for editors."""
        lock = json.loads((self.root / "editors" / "vscode" / "package-lock.json").read_text(encoding="utf-8"))
        found = []
        for path, package in lock["packages"].items():
            if not path or package.get("dev"):
                continue
            _, _, name = path.rpartition("node_modules/")
            purl = PackageURL("npm", name=name, version=package["version"])
            algorithm, _, digest = package["integrity"].partition("-")
            assert algorithm == "sha512"
            content = b64decode(digest).hex()
            found.append(
                Component(
                    name=name,
                    version=package["version"],
                    purl=purl,
                    bom_ref=purl.to_string(),
                    scope=ComponentScope.OPTIONAL,
                    hashes=[HashType(alg=HashAlgorithm.SHA_512, content=content)],
                )
            )
        return found


def provenance(files: dict[str, bytes], root: Path, origin: dict[str, str | None], builder: str) -> str:
    """Say how files were built: an in-toto statement with SLSA provenance, in which no time stands.

    `origin` says what was built: the commit, and where they are known the tag and the repository.
    """
    known = {name: value for name, value in origin.items() if value is not None}
    source = {"name": "source", "digest": {"gitCommit": known["commit"]}}
    locks = [{"name": name, "digest": {"sha256": sha256((root / name).read_bytes()).hexdigest()}} for name in LOCKS]
    predicate = {
        "buildDefinition": {
            "buildType": "urn:privtab:make-release:1",
            "externalParameters": known,
            "resolvedDependencies": [source, *locks],
        },
        "runDetails": {"builder": {"id": builder}},
    }
    ParseDict(predicate, provenance_pb2.Provenance())  # raises for a field that SLSA does not have
    subjects = [
        ResourceDescriptor(name=name, digest={"sha256": sha256(content).hexdigest()}).pb
        for name, content in sorted(files.items())
    ]
    statement = Statement(subjects, "https://slsa.dev/provenance/v1", predicate)
    statement.validate()
    return MessageToJson(statement.pb, indent=1, sort_keys=True) + "\n"
