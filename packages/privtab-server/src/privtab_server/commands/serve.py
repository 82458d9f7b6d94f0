"""`privtab serve`: serve decisions over the OpenID AuthZEN Authorization API 1.0, a store, or bundles of a registry."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from privtab.base import UsageError, needing
from privtab.command import PartialOption, argument, load_state, option
from privtab_server.commands._registry_options import written_options
from privtab_server.commands._serving import ServerSettings, StoreOptions, serve_registry, serve_store
from privtab_server.store_states import running_store

if TYPE_CHECKING:
    from privtab_server.authzen.service import Service

PANEL = "Start here"

STORE_REFRESH = 1.0
"""Seconds between two looks for changes of a store, unless `--refresh` gives others."""


LIMITS = {
    "decisions": ("body", "head", "connections"),
    "store": ("body", "head", "connections"),
    "registry": ("head", "connections", "poll", "forget", "logs"),
}
"""The limits that a server of each kind has."""
KINDS = {"decisions": "decisions", "store": "a store (store:STORE)", "registry": "a registry (registry:URL)"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionOptions:
    """Options for what decides, and for how answers are given."""

    state: Annotated[
        list[Path] | None, option("--state -s STATE", "State for each policy, in the same order; repeatable.")
    ] = None
    bundles: Annotated[
        list[str] | None,
        option("--bundles -b PATH|URL", "Compiled bundles instead of a policy and a state; repeatable."),
    ] = None
    opa: Annotated[str | None, option("--opa URL", "Ask a running OPA, which decides using its own bundles.")] = None
    system: Annotated[
        list[str] | None, option("--system NAME", "Systems to serve, of the bundles or the OPA; repeatable.")
    ] = None
    refresh: Annotated[
        float | None, option("--refresh SECONDS", "Interval between checks for newer bundles.", min=0.1)
    ] = None
    max_staleness: Annotated[
        float | None, option("--max-staleness SECONDS", "Refuse to decide using bundles older than this.", min=0.1)
    ] = None
    brief: Annotated[bool, option("--brief", "Answer without reasons: faster, and reveals nothing to callers.")] = False
    page_size: Annotated[int, option("--page-size", "Default number of search results.", min=1, max=1000)] = 100
    decision_log: Annotated[
        Path | None,
        option(
            "--decision-log FILE", "Append each decision, as OPA's log has it; what cannot be logged is not answered."
        ),
    ] = None
    allow_partial: PartialOption = False

    def check(self, policies: Sequence[str]) -> None:
        """Raise UsageError unless one thing decides, with a state for each policy."""
        if sum(map(bool, (policies, self.bundles, self.opa))) != 1:
            raise UsageError(
                "who decides? give one of `--policy` with `--state`, `--bundles`, or `--opa`; or serve store:STORE or registry:URL"
            )
        if len(policies) != len(self.state or []):
            raise UsageError(
                "give one `--state` for each `--policy`, in the same order: "
                f"there are {len(self.state or [])} and {len(policies)}"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryOptions:
    """Options for what a registry's server keeps."""

    logs: Annotated[
        Path | None, option("--logs FOLDER", "Keep uploaded decision logs of a registry here, for `privtab replay`.")
    ] = None


def run(
    place: Annotated[
        str | None,
        argument("PLACE", "A store, as store:grants.db, or a registry, as registry:URL. (default: decisions)"),
    ] = None,
    policy: Annotated[
        list[str] | None,
        option("--policy -p POLICY", "A policy by name (cdap/final) or a path; repeatable for decisions."),
    ] = None,
    *,
    decisions: DecisionOptions,
    store: StoreOptions,
    registry: RegistryOptions,
    channel: Annotated[
        list[str] | None,
        option(
            "--channel NAME", "Channels of a registry, repeatable (default: all); of a store, also serve bundles as it."
        ),
    ] = None,
    settings: ServerSettings,
    quiet: Annotated[bool, option("--quiet -q", "Log only problems, not each request.")] = False,
) -> None:
    """Answer the OpenID AuthZEN Authorization API 1.0 over HTTP, or serve a store or a registry's bundles, until Ctrl-C.

    Decisions of a single system are served at the root and under its name; of several under their names. A store is served with
    its rows, changes and decisions: the name of a token is the user who makes its requests, and the OpenAPI document is at
    /store/v1/openapi.json. A registry serves bundles to sidecars, and receives their reports. Requests are logged to standard
    error as JSON lines.

    Example:
      privtab serve -p gravitino/1.1.0 -s policy_src/gravitino/state.yaml
      privtab serve -p lake.yaml -s store:grants.db --max-staleness 5
      privtab serve --bundles build/ --system gravitino --refresh 10 \\
              --listen 0.0.0.0:8080 --token-file tokens --tls cert=c.pem --tls key=k.pem
      privtab serve -p lake.yaml -s state.yaml --decision-log decisions.jsonl
      privtab serve --opa http://127.0.0.1:8181
      privtab serve store:grants.db -p lake.yaml --token-file tokens
      privtab serve store:grants.db -p lake.yaml --anonymous root --authorise owners=grant
      privtab serve store:grants.db -p gravitino/1.1.0 --token-file tokens --api gravitino
      privtab serve store:grants.db -p lake.yaml --token-file tokens \\
              --channel live --sidecar-token-file sidecars --signing-key prod.pem
      privtab serve registry:s3://policies/registry --channel prod
      privtab serve registry:registry/ --logs logs/
    """
    kind, url = _served(place)
    _check_others(kind, decisions=decisions, store=store, registry=registry)
    settings.limits(LIMITS[kind])
    channels, policies = channel or [], policy or []
    match kind:
        case "registry":
            if policies:
                raise UsageError("a registry is served without a policy: leave out `--policy`")
            serve_registry(url, channels, registry.logs, settings, quiet=quiet)
        case "store":
            if len(policies) != 1 or len(channels) > 1:
                raise UsageError("a store has one `--policy POLICY`, and one `--channel NAME` or none")
            serve_store(url, policies[0], channels[0] if channels else None, store, settings, quiet=quiet)
        case _:
            if channels:
                raise UsageError("`--channel` is for a store or a registry: privtab serve store:STORE, or registry:URL")
            _serve_decisions(policies, decisions, settings, quiet=quiet)


def _served(place: str | None) -> tuple[str, str]:
    """The kind of what is served, and its address. Raises UsageError for a place that is neither a store nor a registry."""
    if place is None:
        return "decisions", ""
    kind, _, url = place.partition(":")
    if kind not in ("store", "registry") or not url:
        raise UsageError(
            f"`{place}`: write store:STORE, as in store:grants.db, or registry:URL, as in registry:/srv/registry"
        )
    if kind == "registry" and "#" in url:
        raise UsageError(f"`{place}`: give the channel by `--channel`")
    if kind == "store" and running_store(Path(place)) is None:
        raise UsageError(f"`{place}`: a store is served as it is now, not as it was at a moment")
    return kind, url


def _check_others(served: str, **groups: Any) -> None:
    """Raise UsageError for an option about something that is not served: it would be lost."""
    for kind, options in groups.items():
        for name in written_options(options) if kind != served else ():
            raise UsageError(f"`{name}` is for {KINDS[kind]}: what is served is {KINDS[served]}")


def _serve_decisions(
    policies: Sequence[str], options: DecisionOptions, settings: ServerSettings, *, quiet: bool
) -> None:
    with needing("`privtab serve`", "compiler", "serve"):
        from privtab_server.authzen.app import AppSettings, Scope, application
        from privtab_server.authzen.service import DecisionLog, Service
        from privtab_server.serving.tokens import Tokens
    options.check(policies)
    state, opa, refresh = options.state or [], options.opa, options.refresh
    if options.decision_log is not None and opa is not None:
        raise UsageError("`--decision-log` is for decisions made here: an OPA has a decision log of its own")
    tls = settings.checked_tls(tokens=settings.token_file is not None, quiet=quiet)
    tokens = Tokens(settings.token_file, Scope) if settings.token_file is not None else None
    with ExitStack() as stack:
        if policies:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="privtab-")))
            places = _write_bundles(policies, state, folder, allow_partial=options.allow_partial)
            if refresh is None and any(map(running_store, state)):
                refresh = STORE_REFRESH
        else:
            places = [(name, options.bundles or []) for name in _names(options.system)]
        log = None if options.decision_log is None else DecisionLog(options.decision_log)
        make = partial(Service, brief=options.brief, page_size=options.page_size, decision_log=log)
        services = (
            _remote(opa, options.system, make) if opa is not None else _local(places, options.max_staleness, make)
        )
        names = [service.system for service in services if service.system]
        chosen: dict[str, Any] = {"tokens": tokens, "max_body": settings.limits().body, "refresh": refresh}
        settings.serve(
            tls,
            lambda base: application(AppSettings(services=_paths(services), base=base, **chosen)),
            lambda: (", ".join(names) or "an OPA", {"systems": names}),
        )


def _write_bundles(
    policies: Sequence[str], states: Sequence[Path], folder: Path, *, allow_partial: bool
) -> list[tuple[str | None, list[str]]]:
    """Write bundles to a folder for each system, so that the server runs what would be deployed; stores are read as they change."""
    from privtab.bundle import state_bundle
    from privtab.pipeline import load_program, policy_artifacts

    folders: dict[str | None, list[str]] = {}
    for policy, path in zip(policies, states, strict=True):
        program = load_program(policy)
        if program.system in folders:
            raise UsageError(f"two policies are of the system `{program.system}`: one version is active at a time")
        store = running_store(path)
        loaded = None if store else load_state(program, path, allow_partial=allow_partial).state
        system_folder = folder / program.system
        system_folder.mkdir()
        (system_folder / "policy.tar.gz").write_bytes(policy_artifacts(program).bundle())
        if loaded is not None:
            (system_folder / "state.tar.gz").write_bytes(state_bundle(program, loaded))
        folders[program.system] = [str(system_folder), *([store] if store else [])]
    return list(folders.items())


def _local(
    sources: Sequence[tuple[str | None, list[str]]], max_staleness: float | None, make: Callable[..., Service]
) -> list[Service]:
    from privtab.client import Embedded
    from privtab_server.authzen.points import LocalDecisionPoint

    services = []
    for system, paths in sources:
        # Modes are for callers; the environment must not make a server allow everything.
        try:
            embedded = Embedded(*paths, system=system, mode="enforce", max_staleness=max_staleness)
        except UsageError as error:
            raise UsageError(str(error).replace("as in Embedded(system=…)", "with `--system`")) from None
        services.append(make(LocalDecisionPoint(embedded), system=embedded.system))
    return services


def _remote(url: str, systems: list[str] | None, make: Callable[..., Service]) -> list[Service]:
    from privtab_server.authzen.points import ClientDecisionPoint

    with needing("`privtab serve --opa`", "compiler", "serve"):
        from privtab.client import AsyncClient

        clients = [(name, AsyncClient(url, system=name, mode="enforce")) for name in _names(systems)]
    return [make(ClientDecisionPoint(client), system=name or "") for name, client in clients]


def _names(systems: list[str] | None) -> Sequence[str | None]:
    """The systems to serve; [None] for the only one in the OPA."""
    return systems or (None,)


def _paths(services: Sequence[Service]) -> dict[str, Service]:
    """The services by path prefix: each under its name; a single service also at the root."""
    services_by_path = {f"/{service.system}": service for service in services if service.system}
    return {"": services[0], **services_by_path} if len(services) == 1 else services_by_path
