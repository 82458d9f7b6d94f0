"""Finds the driver that a command line names: `authzen`, a YAML document, or a class of Python."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path

from privtab.client._http import HttpTransport
from privtab.conform.authzen import AuthZenDriver
from privtab.conform.document import load
from privtab.conform.driver import Driver, load_class
from privtab.conform.nodes import World
from privtab.conform.rest import HttpDriver
from privtab.conform.sql import SqlDriver
from privtab.errors import UsageError
from privtab.ir.nodes import Program

AUTHZEN = "authzen"


def open_driver(
    name: str,
    program: Program,
    url: str | None,
    options: Mapping[str, str],
    *,
    token: str | None = None,
    timeout: float = 60.0,
) -> Driver:
    """The driver `name` for the system at `url`. Raises UsageError, and PolicyInvalid for findings in a document."""
    if name == AUTHZEN:
        if url is None:
            raise UsageError("the driver `authzen` needs `--url`, the address of the server")
        if strange := set(options) - {"state"}:
            raise UsageError(f"the driver `authzen` takes only `--set state=FILE`, not `{min(strange)}`")
        state = Path(options["state"]) if "state" in options else None
        transport = HttpTransport(url, token=token)
        is_bundle = state is not None and state.name.endswith(".tar.gz")
        return AuthZenDriver(
            transport,
            url=url.rstrip("/"),
            state=state,
            timeout=(min(5.0, timeout), timeout),
            encode=partial(_bundle, program) if is_bundle else None,
        )
    path = Path(name)
    if path.suffix in {".yaml", ".yml"}:
        document = load(path, program)
        if url is None:
            raise UsageError(f"the driver `{name}` needs `--url`, the address of the system")
        if options:
            raise UsageError("`--set` is for the driver `authzen` and for classes")
        if document.kind == "http":
            return HttpDriver(document, program, url, token=token, timeout=timeout)
        return SqlDriver(document, program, url)
    if ":" in name:
        return load_class(name, url, options)
    raise UsageError(f"no driver `{name}`: name `authzen`, a YAML file, or a class as `module:Class`")


def _bundle(program: Program, world: World) -> bytes:
    """The state bundle of a world."""
    from privtab.bundle.pack import state_bundle

    return state_bundle(program, world.state)
