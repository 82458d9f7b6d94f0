"""Push a policy and a state directly into a running OPA, for development: without a registry, without watching.

OPA has no transactions over several calls. So if a rule changes, all rules are removed before the new ones are added:
decisions in between are undefined, which means denied, and never mix two policies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urljoin, urlsplit

import requests
from opa_client import errors
from opa_client.opa import OpaClient

from privtab.base import UsageError
from privtab.bundle import PolicyArtifacts
from privtab.client import restrict_session
from privtab_server.errors import FleetError, expected_form

TIMEOUT = 30.0
"""Seconds for one call: OPA recompiles all rules with each module."""
_ERRORS = tuple(kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, Exception))
"""The client's exceptions, which have no common base."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PushResult:
    """The result of a push: revisions before and after, and the modules changed."""

    url: str
    policy: str
    policy_before: str | None
    version_before: str | None
    state: str | None
    """None if no state was pushed."""
    state_before: str | None
    added: tuple[str, ...]
    replaced: tuple[str, ...]
    removed: tuple[str, ...]
    unchanged: tuple[str, ...]

    def json(self) -> dict[str, Any]:
        """As JSON."""
        return {name: getattr(self, name) for name in self.__slots__}


def push(
    url: str,
    artifacts: PolicyArtifacts,
    state: Mapping[str, Any] | None,
    *,
    token: str | None = None,
    ca: str | None = None,
) -> PushResult:
    """Put the rules, the program and, if given, the index of a state into the OPA at `url`. `ca`: a file of CA certificates.

    Raises FleetError if OPA does not answer or refuses, for example because a bundle owns these paths.
    """
    client = _client(url, token, ca)
    try:
        with expected_form(url, FleetError):
            return _push(client, url, artifacts, state)
    except requests.RequestException as error:
        why = str(error).rpartition(": ")[2].strip("')\" ") or type(error).__name__
        raise FleetError(f"no answer from {url}: {why}") from error
    finally:
        client.close_connection()


def _push(client: OpaClient, url: str, artifacts: PolicyArtifacts, state: Mapping[str, Any] | None) -> PushResult:
    name = artifacts.name
    try:
        existing = _modules(client, name)
        old_program = _data(client, f"privtab_program/{name}")
        old_state = _data(client, f"privtab_state/{name}/revision")
        if old_state is None:
            old_state = _data(client, f"privtab_state/{name}/windowed/revision")
        modules = {_id(path): text for path, text in artifacts.modules.items()}
        removed = tuple(sorted(existing.keys() - modules.keys()))
        unchanged = tuple(sorted(id_ for id_, text in modules.items() if existing.get(id_) == text))
        same = len(unchanged) == max(len(existing), len(modules))
        try:
            _replace(client, artifacts, state, None if same else existing, modules)
        except _ERRORS:
            # If the new rules or their data are refused, restore the old rules.
            remaining = client.get_policies_list()
            _put(client, {id_: text for id_, text in existing.items() if id_ not in remaining})
            raise
    except _ERRORS as error:
        raise FleetError(_refusal_message(url, str(error))) from error
    program = old_program if isinstance(old_program, Mapping) else {}
    return PushResult(
        url=url,
        policy=artifacts.revision,
        policy_before=program.get("revision"),
        version_before=program.get("version"),
        state=None if state is None else str(state.get("windowed", state)["revision"]),
        state_before=None if old_state is None else str(old_state),
        added=tuple(sorted(modules.keys() - existing.keys())),
        replaced=tuple(sorted(id_ for id_ in modules.keys() & existing.keys() if id_ not in unchanged)),
        removed=removed,
        unchanged=unchanged,
    )


def _replace(
    client: OpaClient,
    artifacts: PolicyArtifacts,
    state: Mapping[str, Any] | None,
    removed: Mapping[str, str] | None,
    modules: Mapping[str, str],
) -> None:
    """Make the calls in order; `removed`: the modules to remove, None if all of them stay."""
    if removed is not None:
        _apply_with_retries(removed, client.delete_policy)
    client.update_or_create_data(dict(artifacts.program), f"privtab_program/{artifacts.name}")
    if state is not None:
        client.update_or_create_data(dict(state), f"privtab_state/{artifacts.name}")
    if removed is not None:
        _put(client, modules)


def _put(client: OpaClient, modules: Mapping[str, str]) -> None:
    _apply_with_retries(modules, lambda id_: client.update_policy_from_string(modules[id_], id_, rego_compat=False))


def _apply_with_retries(ids: Iterable[str], apply: Callable[[str], object]) -> None:
    """Apply `apply` to each module; raises OPA's error for the first one that never succeeds.

    A module cannot be added before, or removed after, one whose functions it calls, so failed ones are retried as long as
    others succeed.
    """
    pending = sorted(ids)
    while pending:
        failed: dict[str, Exception] = {}
        for id_ in pending:
            try:
                apply(id_)
            except _ERRORS as error:
                failed[id_] = error
        if len(failed) == len(pending):
            raise next(iter(failed.values()))
        pending = list(failed)


def _client(url: str, token: str | None, ca: str | None) -> OpaClient:
    parts = urlsplit(url)
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.path.strip("/") or parts.query:
        raise UsageError(f"`--push {url}`: write http://host:port")
    secure = parts.scheme == "https"
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    port = parts.port or (443 if secure else 80)
    ssl = (ca or True) if secure else False
    return _Client(host=host, port=port, ssl=ssl, token=token, timeout=TIMEOUT, retries=0)


class _Client(OpaClient):  # type: ignore[misc]  # opa_client has no types
    """Sends by the rules of the other senders."""

    def _init_session(self) -> requests.Session:
        scheme = "https" if self.ssl else "http"
        session = restrict_session(super()._init_session(), f"{scheme}://{self.host}:{self.port}", verify=self.ssl)
        session.hooks["response"].append(_check_redirect)
        return session


def _check_redirect(response: requests.Response, *_: object, **__: object) -> None:
    """Raise TooManyRedirects for a redirect to another server; OPA's own lead to the path without a slash at its end."""
    target = urlsplit(urljoin(response.url, response.headers.get("Location", "")))
    if response.is_redirect and target[:2] != urlsplit(response.url)[:2]:
        raise requests.TooManyRedirects(f"it redirects to another server: {target.netloc}")


def _modules(client: OpaClient, name: str) -> dict[str, str]:
    """The modules of an earlier push, by id. Modules of bundles have other ids."""
    ids = (id_ for id_ in client.get_policies_list() if id_.startswith(f"privtab_push/{name}/"))
    return {id_: str(client.get_policy(quote(id_))["result"]["raw"]) for id_ in ids}


def _id(path: str) -> str:
    """The id of a module: `privtab_push/<name>/…`; its path in a bundle begins with `privtab/<name>/`."""
    return "privtab_push/" + path.strip("/").removeprefix("privtab/").removesuffix(".rego")


def _data(client: OpaClient, path: str) -> Any:
    try:
        return client.get_data(path)["result"]
    except errors.PolicyNotFoundError:
        return None


def _refusal_message(url: str, message: str) -> str:
    if "owned by bundle" in message:
        return (
            f"{url} runs bundles, whose paths cannot be overwritten by a push: {message}; "
            "push into an OPA without bundles, or deploy to the channel that it reads"
        )
    return f"{url} refused: {message}"
