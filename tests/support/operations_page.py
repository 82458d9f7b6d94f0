"""The deployment of docs/how-to/operate.md: a signed policy on a channel, a registry server, two sidecars, and their failures."""

from __future__ import annotations

import json
from pathlib import Path
from types import TracebackType
from typing import Self

import sidecar_fleet
import signing_keys
import yaml

from privtab.bundle.sign import opa_configuration, public_keys
from privtab.command._app import run
from privtab_server.registry import Registry

POLICY = sidecar_fleet.POLICY.replace("system: shop", "system: studio")


class OperationsPage:
    """The deployment of the page, in a folder that is the working directory; a context manager."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.fleet = sidecar_fleet.SidecarFleet(folder)
        (folder / "studio.yaml").write_text(POLICY, encoding="utf-8")
        (folder / "studio.scenarios.yaml").write_text(sidecar_fleet.SCENARIOS, encoding="utf-8")
        (folder / "state.yaml").write_text(sidecar_fleet.STATE, encoding="utf-8")
        signing_keys.pair("ES256", 0).write(folder, "prod")
        keys = public_keys([str(folder / "prod.pub.pem")])
        config = yaml.safe_load(sidecar_fleet.CONFIG.read_text(encoding="utf-8"))
        signing = opa_configuration(keys, "prod", config["bundles"])
        for name, more in signing["bundles"].items():
            config["bundles"][name] |= more
            config["bundles"][name]["polling"]["long_polling_timeout_seconds"] = 2
        self.config = folder / "opa.json"
        self.config.write_text(json.dumps(config | {"keys": signing["keys"]}))

    def __enter__(self) -> Self:
        assert self.deploy("--state", "state.yaml", "--why", "first") == 0
        self.fleet.serve()
        for name in ("web-1", "etl-1"):
            self.sidecar(name)
        self.wait()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.fleet.__exit__(kind, error, trace)

    def deploy(self, *more: str) -> int:
        options = ["-r", "registry", "-c", "prod", "--signing-key", "prod.pem", "--signature", "scope=prod"]
        return run(["deploy", "studio.yaml", *options, *more])

    def sidecar(self, name: str) -> None:
        before, sidecar_fleet.CONFIG = sidecar_fleet.CONFIG, self.config
        try:
            self.fleet.sidecar(name, f"app={name.partition('-')[0]}", system="studio", PRIVTAB_CHANNEL="prod")
        finally:
            sidecar_fleet.CONFIG = before

    def wait(self) -> None:
        """Wait until every running sidecar has reported the channel's revisions."""
        channel = Registry.open("registry").channel("prod", "studio")
        expected = {"policy": channel.policy, "state": channel.state}
        alive = set(self.fleet.urls) & set(self.fleet.processes)

        def is_shown() -> bool:
            found = {sidecar["id"]: sidecar["bundles"] for sidecar in self.fleet.reported()["sidecars"]}
            return all(
                found.get(name, {}).get(bundle, {}).get("revision") == revision
                for name in alive
                for bundle, revision in expected.items()
            )

        self.fleet.wait(is_shown)

    # --- failures ---

    def happen(self, event: str) -> None:
        """Cause an event by name."""
        getattr(self, f"_{event.replace('-', '_')}")()

    def _forged(self) -> None:
        """Release a state that is signed with an unknown key, as by an attacker with access to the registry."""
        (self.folder / "other.yaml").write_text(sidecar_fleet.STATE.replace("user:ann", "user:mallory"))
        assert run(["state", "pack", "other.yaml", "-p", "studio.yaml", "-o", "other.tar.gz"]) == 0
        forged = signing_keys.pair("ES256", 1).signing(scope="prod").sign((self.folder / "other.tar.gz").read_bytes())
        registry = Registry.open("registry")
        registry.release("prod", "studio", state=registry.put(forged).id, why="export")

        def refused() -> bool:
            sidecars = [json.dumps(sidecar) for sidecar in self.fleet.reported()["sidecars"]]
            return all("failed to verify" in text for text in sidecars)

        self.fleet.wait(refused)

    def _sidecar_dead(self) -> None:
        # Wait for its next poll, after which it reports no error.
        self.fleet.wait(lambda: "failed to verify" not in json.dumps(self.fleet.reported()))
        self.fleet.end("etl-1", kill=True)
        self.fleet.wait(lambda: not sidecar_fleet.answers(f"{self.fleet.urls['etl-1']}/health"))

    def _sidecar_back(self) -> None:
        self.sidecar("etl-1")
        self.wait()

    def _registry_dead(self) -> None:
        self.fleet.end("server")

    def _registry_back(self) -> None:
        self.fleet.serve()
        self.wait()

    def _spoilt(self) -> None:
        """Restart the server, then leave an empty release file, as by another tool that crashed while writing."""
        self._registry_back()
        (self.folder / "registry/channels/prod/studio/history/00000004.json").touch()
