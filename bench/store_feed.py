"""Time from a change of a store to a decision of an OPA sidecar that knows it, at the server of the store."""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from measure import Report, Spread, Table, Target, WrongAnswerError

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests" / "support"))
CHANGES = 20
"""Of each repetition."""
SIZES = (1_000, 10_000, 50_000)
"""Grants that are in the store."""
ACTIVE_SECONDS = 30.0
WANTED = 2.0
TOKEN = "sidecar-token-0123456789"  # noqa: S105  (of a server that ends with the benchmark)


def report(_: Sequence[str], repetitions: int) -> Report:
    """Half and 99 of 100 changes, for stores of several sizes."""
    rows: list[tuple[str, ...]] = []
    targets: list[Target] = []
    for grants in SIZES:
        seconds = sorted(delays(grants, CHANGES * repetitions))
        slow = seconds[min(len(seconds) - 1, int(len(seconds) * 0.99))]
        rows.append((f"{grants:,}", f"{statistics.median(seconds):.2f} s", f"{slow:.2f} s", str(len(seconds))))
        what = f"change of a store of {grants:,} grants → a sidecar's decision, p99"
        targets.append(Target(what=what, spread=Spread(values=(slow,)), wanted=WANTED, sense="at most", unit=" s"))
    columns = ("grants", "half of the changes", "99 of 100", "changes")
    return Report(
        part="store_feed",
        tables=(Table(title="Change of a store → visible in a sidecar's decision", columns=columns, rows=tuple(rows)),),
        targets=tuple(targets),
    )


def delays(grants: int, changes: int) -> list[float]:
    """Seconds from each committed change to the first decision that knows it. One OPA, asked without a pause."""
    import sidecars
    from lake_policy import POLICY, asks, grant
    from store_server import serve_store, write_tokens

    from privtab.pipeline import load_program
    from privtab_server.store.store import Store

    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        policy, url, tokens = folder / "lake.yaml", folder / "grants.db", folder / "sidecars"
        policy.write_text(POLICY, encoding="utf-8")
        tokens.write_text(f"sidecar {TOKEN} sidecar\n", encoding="utf-8")
        store = Store.create(str(url), load_program(policy), administrators=["root"])
        there = [grant(f"user:u{n % 5_000}", "SELECT", f"table:l/s{n % 100}/t{n}") for n in range(grants)]
        store.load({"grants": there, "owners": [{"entity": "lake:l", "owner": "user:root"}]}, actor="bench")
        users = write_tokens(folder / "tokens", ["root"])
        channel: list[str | Path] = ["--channel", "live", "--sidecar-token-file", tokens]
        server = serve_store(folder, [url, "-p", policy, "--token-file", users, *channel])
        stack.callback(server.stop)
        config = sidecars.configuration(server.url, instance="one", channel="live", system="lake", token=TOKEN)
        (opa,) = stack.enter_context(sidecars.running(folder, config))

        def creates(user: str) -> bool:
            resource = {"type": "schema", "id": "l/s"}
            request: dict[str, Any] = {"subject": {"type": "user", "id": user}, "action": {"name": "create"}}
            body = {"input": request | {"resource": resource}}
            answer = opa.session.post(f"{opa.url}/v1/data/privtab/lake/allow", json=body, timeout=10)
            return bool(answer.json().get("result"))

        sidecars.until(lambda: creates("root"), ACTIVE_SECONDS)
        found = []
        for number in range(changes):
            user = f"new{number}"
            if creates(user):
                raise WrongAnswerError("a sidecar allows what nobody granted")
            store.change(asks("root", "grant", "lake:l"), add={"grants": [grant(f"user:{user}", "CREATE", "lake:l")]})
            committed = time.perf_counter()
            sidecars.until(lambda user=user: creates(user), ACTIVE_SECONDS)  # type: ignore[misc]
            found.append(time.perf_counter() - committed)
        return found
