"""Signed bundles of a policy with a door and of a state, and a real OPA that verifies them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests
from signing_keys import pair

from privtab import Embedded
from privtab.bundle.sign import opa_configuration, public_keys
from privtab.command._app import run
from privtab.engines.opa.server import OpaServer
from privtab.pipeline import find_policy, load_program
from privtab.state.load import load_raw_state
from privtab_connect.doors.document import load as load_door
from privtab_logs.door import DoorLog
from privtab_logs.moments import KnownState, Moments, Policy
from privtab_logs.reading import batches
from privtab_logs.replaying import Replay, replay
from privtab_logs.schema import Reading

SCOPE = "doors"


@dataclass(frozen=True)
class DoorServer:
    """An OPA with a door."""

    opa: OpaServer
    session: requests.Session
    system: str
    door: str

    @property
    def url(self) -> str:
        return f"{self.opa.url}/v1/data/privtab/{self.system}/doors/{self.door}"

    def ask(self, answer: str, request: object) -> Any:
        """The result; None if it is undefined."""
        response = self.session.post(f"{self.url}/{answer}", json={"input": request}, timeout=60)
        assert response.status_code == 200, response.text
        return response.json().get("result")

    def embedded(self) -> Embedded:
        """The same policy and state, in this process."""
        return Embedded(self.opa.bundles["policy"], state=self.opa.bundles["state"])

    def replayed(self, policy: str, state: Path, new: KnownState | None = None) -> Replay:
        """Its log, decided again by the policy and the state, and by another state."""
        program = load_program(find_policy(policy))
        known, account = KnownState(rows=load_raw_state(state)), Reading()
        entries = DoorLog(load_door(self.door, program), program).rows
        by = Policy.of(program)
        moments = Moments(new=by, policy=lambda _: by, state=lambda _: known, new_state=new or known)
        return replay(batches([self.opa.log], account, entries), moments, reading=account)

    def decision_logs(self) -> list[dict[str, Any]]:
        """What OPA logged of decisions."""
        lines = map(json.loads, self.opa.log.read_text(encoding="utf-8").splitlines())
        return [line for line in lines if line.get("type") == "openpolicyagent.org/decision_logs"]


@contextmanager
def door_server(
    folder: Path,
    policy: str | Path,
    door: str | Path,
    state: Path,
    *,
    paths: tuple[Path, ...] = (),
    options: tuple[str, ...] = (),
    port: int = 0,
) -> Iterator[DoorServer]:
    """Compile and sign both bundles in the folder, and serve them. `paths`, `options`: more for OPA; `port`: 0, any that is free."""
    keys = pair()
    private, public = keys.write(folder)
    built = folder / "built"
    signing = ["--signing-key", str(private), "--signature", f"scope={SCOPE}"]
    arguments = ["compile", str(policy), "--door", str(door), "--state", str(state), "-o", str(built), *signing]
    assert run(arguments) == 0
    (bundle,) = built.glob("*/*/policy.tar.gz")
    bundles = {"policy": bundle, "state": bundle.with_name("state.tar.gz")}
    config = folder / "opa.json"
    found = opa_configuration(public_keys([public.read_text(encoding="utf-8")]), SCOPE, list(bundles))
    config.write_text(json.dumps(found | {"decision_logs": {"console": True}}), encoding="utf-8")
    log = folder / "opa.log"
    with (
        OpaServer(bundles, config=config, paths=paths, extra_args=options, log=log, port=port) as opa,
        requests.Session() as session,
    ):
        session.trust_env = False
        yield DoorServer(opa, session, bundle.parents[1].name, Path(door).stem)
