"""What is kept in registries and folders, spoilt: each reader ends, and says what is wrong in the way that it promises."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
import signing_keys
from example_bundles import POLICY, READS, ExampleBundles, bundles
from fuzzing import LENGTHS, fuzzed

from privtab.base.diagnostics import Diagnostic
from privtab.base.errors import FileError, UsageError
from privtab.bundle.archive import packed_archive
from privtab.command._files import load_policy, load_rows
from privtab.state.load import validate
from privtab_server.errors import RegistryError
from privtab_server.registry import Registry
from privtab_server.registry.maintenance import check
from privtab_server.registry.nodes import Canary, channel_of, revision_of
from privtab_testing.scenarios.collect import cases_of, read_script


@pytest.fixture(scope="module")
def packed(tmp_path_factory: pytest.TempPathFactory) -> ExampleBundles:
    return bundles(tmp_path_factory.mktemp("shelf"))


def filled(folder: Path, packed: ExampleBundles) -> Registry:
    """A registry with two policies, a state in shards, and a channel with a canary."""
    registry = Registry.open(str(folder))
    policies = [registry.put(policy).id for policy in packed.policies]
    state = registry.put(packed.states[0]).id
    registry.release("prod", "shop", policy=policies[0], state=state)
    registry.release("prod", "shop", policy=policies[0], state=state, canary=Canary(policy=policies[1], share=0.1))
    return registry


@LENGTHS
def test_records_and_channels(packed: ExampleBundles, tmp_path: Path, seconds: float | None) -> None:
    filled(tmp_path / "registry", packed)
    files = [path for path in (tmp_path / "registry").rglob("*.json") if path.is_file()]
    assert len(files) >= 5

    def read(text: bytes) -> None:
        for reader in (revision_of, channel_of):
            with contextlib.suppress(RegistryError):
                reader("a file", text)

    fuzzed([path.read_bytes() for path in files], read, seconds)


@LENGTHS
def test_files_of_a_registry(packed: ExampleBundles, tmp_path: Path, seconds: float | None) -> None:
    """Each file of a registry, in a registry that is whole besides."""
    registry = filled(tmp_path / "registry", packed)
    root = tmp_path / "registry"
    before = {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*.json") if path.is_file()}
    seeds = [name.encode() + b"\n" + content for name, content in before.items()]

    def read(text: bytes) -> None:
        head, _, changed = text.partition(b"\n")
        name = head.decode(errors="replace")
        if name not in before:
            return
        path = root / name
        path.write_bytes(changed)
        try:
            for look in (
                registry.channels,
                lambda: registry.channel("prod", "shop"),
                lambda: registry.revisions("shop"),
                lambda: registry.history("prod", "shop"),
                lambda: check(registry),
            ):
                with contextlib.suppress(RegistryError):
                    look()
        finally:
            path.write_bytes(before[name])

    fuzzed(seeds, read, seconds)


@LENGTHS
def test_kept_states(packed: ExampleBundles, tmp_path: Path, seconds: float | None) -> None:
    program, path = packed.programs[0], tmp_path / "state.tar.gz"
    files = signing_keys.files(packed.states[0])

    def read(text: bytes) -> None:
        head, _, changed = text.partition(b"\n")
        name = head.decode(errors="replace")
        path.write_bytes(packed_archive(files | {name: changed}) if name in files else text)
        try:
            raw = load_rows(program, path)
        except (FileError, UsageError):
            return
        _, findings = validate(program, raw)
        "".join(finding.render() for finding in findings).encode()

    fuzzed([packed.states[0], *(name.encode() + b"\n" + files[name] for name in files)], read, seconds)


@LENGTHS
def test_kept_policies(packed: ExampleBundles, tmp_path: Path, seconds: float | None) -> None:
    path = tmp_path / "policy.tar.gz"
    files = signing_keys.files(packed.policies[0])
    programs = [name for name in files if name.startswith("privtab_program/")]
    assert programs

    def read(text: bytes) -> None:
        head, _, changed = text.partition(b"\n")
        name = head.decode(errors="replace")
        path.write_bytes(packed_archive(files | {name: changed}) if name in files else text)
        with contextlib.suppress(FileError):
            load_policy(path)

    fuzzed([packed.policies[0], *(name.encode() + b"\n" + files[name] for name in programs)], read, seconds)


SCENARIOS = b"""\
scenarios: 1
policy: p.yaml
state:
  grants:
    - {grantee: user:ann, effect: allow, privilege: READ, entity: "site:s"}
cases:
  - {name: reads, user: ann, action: read, resource: "item:s/a/i", decision: allow}
  - {user: ben, action: [read, write], resource: "item:s/a/i", decision: deny, missing: ["WRITE (item:s/a/i)"]}
needs:
  - {ask: write item:s/a/i, by: WRITE (item:s/a/i)}
"""


@LENGTHS
def test_scenarios(packed: ExampleBundles, tmp_path: Path, seconds: float | None) -> None:
    (tmp_path / "p.yaml").write_text(POLICY.format(version="1", read=READS), encoding="utf-8")
    path = tmp_path / "p.scenarios.yaml"

    def read(text: bytes) -> None:
        path.write_bytes(text)
        found: list[Diagnostic] = []
        script = read_script(path, None, found)
        if script is not None:
            cases_of(script, packed.programs[0], found)
        for finding in found:
            assert finding.span.line >= 1

    fuzzed([SCENARIOS], read, seconds)
