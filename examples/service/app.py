"""A catalogue of tables that asks before it answers.

    privtab compile gravitino/1.1.0 --state policy_src/gravitino/state.yaml -o build
    PRIVTAB_URL=build/gravitino/1.1.0 SERVICE_USERS=users.json python examples/service/app.py

PRIVTAB_URL is a folder with bundles, then decisions are made in this process, or the address of an OPA. SERVICE_USERS names
a JSON file that maps bearer tokens to users: `{"4f0c…": "alice"}`. SERVICE_PORT is the port, 8000 where left off.

    curl -H "Authorization: Bearer 4f0c…" http://127.0.0.1:8000/tables/demo/hive/sales/orders
"""

from __future__ import annotations

import hmac
import json
import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any

import uvicorn
from fastapi import Depends, FastAPI, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.concurrency import run_in_threadpool

import privtab
from privtab import Decision
from privtab.client import Asker
from privtab_web import Guard, acting_as
from privtab_web.fastapi import Requires, answer_errors
from privtab_web.log import DecisionLog

guard = Guard()
TABLES: dict[str, dict[str, Any]] = {
    "demo/hive/sales/orders": {"rows": 3},
    "demo/hive/sales/customers": {"rows": 3},
    "demo/hive/sales/orders_old": {"rows": 9},
    "demo/hive/staging/raw_orders": {"rows": 12},
}


def users() -> dict[str, str]:
    """Who holds which token."""
    found: dict[str, str] = json.loads(Path(os.environ["SERVICE_USERS"]).read_text(encoding="utf-8"))
    return found


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """The client lives as long as the service; until it is there, every guarded call is answered 503."""
    app.state.users = users()
    with privtab.connect(system="gravitino", hooks=[DecisionLog()]) as client:
        app.state.client = client
        guard.bind(client)
        yield
        guard.bind(None)


app = FastAPI(title="Catalogue", lifespan=lifespan)
answer_errors(app)


def current_user(
    sent: Annotated[HTTPAuthorizationCredentials | None, Depends(HTTPBearer(auto_error=False))],
) -> str | None:
    """Who holds the token. Who the user is, is the service's own business; what they may, is the policy's."""
    if sent is None:
        return None
    known: dict[str, str] = app.state.users
    return next(
        (u for token, u in known.items() if hmac.compare_digest(token.encode(), sent.credentials.encode())), None
    )


User = Annotated[str | None, Depends(current_user)]


def may(action: str) -> Any:
    """The decision that the user may do `action` on the table of the path; else the answer is a refusal."""
    return Depends(Requires(action, "table", arg="path", guard=guard, user=current_user))


@app.get("/health")
async def health(response: Response) -> dict[str, bool]:
    """Ready once decisions can be had."""
    client: Asker = app.state.client
    ready = await run_in_threadpool(client.health)
    response.status_code = 200 if ready else 503
    return {"ready": ready}


@app.get("/tables")
async def list_tables(schema: str, user: User) -> list[str]:
    """The tables of a schema that the user may see: the call is allowed or not, its items are filtered."""
    client: Asker = app.state.client
    with acting_as(user):
        async with guard.allowed("list", ("table", schema)):
            paths = [path for path in TABLES if path.startswith(f"{schema}/")]
            return await run_in_threadpool(client.visible, str(user), "list", "table", paths)


@app.get("/tables/{path:path}")
async def load_table(path: str, decision: Annotated[Decision, may("load")]) -> dict[str, Any]:
    """A table, and the rule that lets the user have it."""
    return {"path": path, "rule": decision.rule, **TABLES.get(path, {})}


@app.put("/tables/{path:path}", status_code=201)
async def create_table(path: str, decision: Annotated[Decision, may("create")]) -> dict[str, Any]:
    """Create a table, and tell the rows that the state gains: its creator becomes its owner."""
    TABLES[path] = {"rows": 0}
    return {"path": path, "effects": decision.effects, "changes": decision.context.get("changes", [])}


@app.delete("/tables/{path:path}", status_code=204)
def delete_table(path: str, user: User) -> None:
    """Drop a table; here the function that does it is guarded, whoever calls it."""
    with acting_as(user):
        drop(path)


@guard.requires("drop", "table", arg="path")
def drop(path: str) -> None:
    """Forget a table."""
    TABLES.pop(path, None)


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    uvicorn.run(app, host="127.0.0.1", port=int(os.environ.get("SERVICE_PORT", "8000")), log_level="warning")
