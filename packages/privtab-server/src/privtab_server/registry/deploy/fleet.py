"""Read the status of sidecars: from the registry server, to which they report, or from each OPA."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

from privtab.base import UsageError, strict_loads
from privtab.client import Sender, SendError
from privtab_server.registry import deploy
from privtab_server.registry.deploy import mapping
from privtab_server.registry.server.fleet import STATUS

TIMEOUT = (2.0, 5.0)
"""Seconds to connect and to wait for data."""
LONGEST = 20.0
"""Seconds for a whole answer."""
LARGEST = 64 << 20
"""Maximum bytes of an answer."""


class HttpReader:
    """Base of both readers: connections and a token."""

    def __init__(self, token: str | None, ca: str | None) -> None:
        self._sender = Sender(timeout=TIMEOUT, seconds=LONGEST, largest=LARGEST, token=token, verify=ca or True)

    def close(self) -> None:
        """Close the connections."""
        self._sender.close()

    def get(self, url: str) -> Any:
        """The JSON at a URL; raises FleetUnreadable with a readable message."""
        try:
            answer = self._sender.get(url)
        except SendError as error:
            raise FleetUnreadable(f"no answer from {url.partition('?')[0]}: {error.why}") from error
        if answer.status != 200:
            raise FleetUnreadable(_error_message(answer.url, answer.status, answer.reason, answer.body))
        try:
            return answer.json()
        except SendError as error:
            raise FleetUnreadable(str(error)) from error


class FleetUnreadable(Exception):
    """The fleet could not be read; a watch continues."""


class OpaReader(HttpReader):
    """Reads the status of several OPAs concurrently."""

    def __init__(self, urls: Sequence[str], token: str | None = None, ca: str | None = None) -> None:
        super().__init__(token, ca)
        self._urls = [checked(url, "--opa") for url in urls]

    def __call__(self) -> deploy.Fleet:
        """The current status of each OPA."""
        with ThreadPoolExecutor(max_workers=min(16, len(self._urls))) as pool:
            sidecars = tuple(pool.map(self._read_sidecar, self._urls))
        doubtful = (sidecar for sidecar in sidecars if not sidecar.problem and sidecar.verifier_problem)
        return deploy.Fleet(sidecars=sidecars, signed=any(map(self._verifies, doubtful)))

    def _read_sidecar(self, url: str) -> deploy.Sidecar:
        try:
            content = self.get(f"{url}/v1/status")
        except FleetUnreadable as error:
            problem = str(error)
            if "status plugin not enabled" in problem:
                problem = "no status: OPA's configuration needs `status: {prometheus: true}`"
            return deploy.Sidecar(id=url, url=url, problem=problem)
        status = mapping(content).get("result")
        if not isinstance(status, Mapping):
            return deploy.Sidecar(id=url, url=url, problem=f"{url} does not answer like an OPA")
        id_ = mapping(status.get("labels")).get("id")
        return deploy.sidecar_from_status(str(id_ or url), status, url=url, seen=datetime.now(tz=UTC))

    def _verifies(self, sidecar: deploy.Sidecar) -> bool:
        """Return whether an OPA's configuration requires signatures; True if the OPA does not tell."""
        try:
            configuration = mapping(mapping(self.get(f"{sidecar.url}/v1/config")).get("result"))
        except FleetUnreadable:
            return True
        return any("signing" in mapping(bundle) for bundle in mapping(configuration.get("bundles")).values())


class ServerReader(HttpReader):
    """Reads the fleet from the registry server, which receives the sidecars' status and decision logs."""

    def __init__(self, url: str, token: str | None = None, ca: str | None = None) -> None:
        super().__init__(token, ca)
        self._url = checked(url, "--server")
        self._last = deploy.Fleet()

    def __call__(self) -> deploy.Fleet:
        """The fleet as the server knows it; if it does not answer, the last known fleet with the problem."""
        try:
            self._last = fleet_of(self.get(f"{self._url}/fleet"))
        except FleetUnreadable as error:
            return replace(self._last, problem=str(error))
        return self._last


def fleet_of(content: Any) -> deploy.Fleet:
    """The fleet from the server's JSON; raises FleetUnreadable for anything else."""
    if not isinstance(content, Mapping) or not isinstance(content.get("sidecars"), list):
        raise FleetUnreadable("that is not a registry server of privtab: it reports no fleet")
    decisions, kinds = mapping(content.get("decisions")), mapping(content.get("kinds"))

    def listed(name: str) -> Iterator[Mapping[str, Any]]:
        return (entry for entry in content.get(name) or () if isinstance(entry, Mapping))

    return deploy.Fleet(
        sidecars=tuple(map(_sidecar, listed("sidecars"))),
        decision_counts=_tallies(decisions, kinds),
        canaries_in_progress={
            str(place): (str(mapping(entry).get("since")), _tallies(mapping(mapping(entry).get("decisions")), kinds))
            for place, entry in mapping(content.get("trials")).items()
        },
        refused=tuple(map(_refused_request, listed("refused"))),
        signed=mapping(content.get("server")).get("signed") is True,
        started=str(mapping(content.get("server")).get("started", "")),
        trouble=tuple(str(entry["trouble"]) for entry in listed("channels") if entry.get("trouble")),
    )


def _refused_request(entry: Mapping[str, Any]) -> str:
    sender = entry.get("instance") or entry.get("address") or "somebody"
    sender = f"{sender} with the token of {entry['token']}" if entry.get("token") else sender
    times = "once" if entry.get("times") == 1 else f"{entry.get('times')} times, last"
    return f"{sender} was refused {entry.get('path')}: {entry.get('status')} {entry.get('why')} ({times} at {entry.get('last')})"


def checked(url: str, option: str) -> str:
    """Return a base address unchanged; raises UsageError if it is invalid."""
    if not url.startswith(("http://", "https://")) or set("?#") & set(url):
        raise UsageError(f"`{option} {url}`: write http://host:port, without a query or a fragment")
    return url.rstrip("/")


def _error_message(url: str, status: int, reason: str, body: bytes) -> str:
    content: Mapping[str, Any] = {}
    with suppress(ValueError):
        content = mapping(strict_loads(body))
    message = content.get("message") or content.get("error")
    return f"{url.partition('?')[0]} answers {status}: {str(message or reason)[:200]}"


def _sidecar(content: Mapping[str, Any]) -> deploy.Sidecar:
    feeds = mapping(content.get("feeds"))
    polling = [name for name, entry in feeds.items() if mapping(entry).get("waiting") is True]
    entries = mapping(content.get("bundles")).items()
    told = {name: _as_reported(entry, polling) for name, entry in entries if isinstance(entry, Mapping)}
    status = {"labels": content.get("labels"), "bundles": told}
    reads = content.get("reads")
    sidecar = deploy.sidecar_from_status(
        str(content.get("id") or "?"),
        status,
        seen=_last_seen(content, waiting=bool(polling)),
        feeds=tuple(_feed(name, mapping(entry)) for name, entry in feeds.items() if name.count("/") >= 2),
        places=tuple(map(str, reads)) if isinstance(reads, list) else None,
        certain=content.get("certain") is not False,
    )
    # Its requests show what it runs where it does not report its status, or has not yet since it loaded a bundle.
    bundles = list(sidecar.bundles)
    for name, feed in zip((name for name in feeds if name.count("/") >= 2), sidecar.feeds, strict=True):
        since = deploy.parse_time(mapping(feeds[name]).get("since"))
        loaded = deploy.LoadedBundle(name=feed.kind, revision=feed.holds, since=since)
        reported = sidecar.loaded(feed.kind, feed.system)
        if not sidecar.bundles:
            bundles.append(loaded)
        elif reported and feed.holds not in {None, reported.revision} and (reported.problem or not reported.revision):
            bundles[bundles.index(reported)] = replace(loaded, name=reported.name)
    return replace(sidecar, bundles=tuple(bundles))


def _as_reported(bundle: Mapping[str, Any], polling: Sequence[str]) -> Mapping[str, Any]:
    """The status of a bundle as OPA reports it, without an outage of the server that is over: the sidecar now polls that server.

    OPA repeats the error until its next report, which a long poll can delay.
    """
    found = {name: bundle.get(our_name) for name, our_name in STATUS.items()} | {"errors": bundle.get("errors")}
    message = str(found["message"] or "")
    over = message.startswith("request failed") and any(f"/channels/{name}." in message for name in polling)
    return found | dict.fromkeys(("code", "message", "errors") if over else ())


def _last_seen(entry: Mapping[str, Any], *, waiting: bool) -> datetime | None:
    """The time when a sidecar was last seen, by the local clock, from which the server's may differ."""
    if waiting:
        # A sidecar in a long poll is present, however long ago it began.
        return datetime.now(tz=UTC)
    seconds = entry.get("seconds_unseen")
    if not isinstance(seconds, int | float) or not 0 <= seconds < 1e9:
        return deploy.parse_time(entry.get("last_seen"))
    return datetime.now(tz=UTC) - timedelta(seconds=seconds)


def _feed(name: str, entry: Mapping[str, Any]) -> deploy.Feed:
    channel, system, kind = name.split("/", 2)
    holds = found if isinstance(found := entry.get("holds"), str) else None
    return deploy.Feed(channel=channel, system=system, kind=kind, holds=holds, canary=entry.get("canary") is True)


def _tallies(decisions: Mapping[str, Any], kinds: Mapping[str, Any]) -> tuple[deploy.DecisionCount, ...]:
    def number(answers: Any, *names: str) -> int:
        return sum(value for name in names if isinstance(value := mapping(answers).get(name), int))

    return tuple(
        deploy.DecisionCount(
            revision=str(revision),
            rule=str(rule),
            kind=str(kinds.get(revision, "")),
            allowed=number(answers, "allow"),
            denied=number(answers, "deny"),
            undefined=number(answers, "undefined", "error"),
        )
        for revision, rules in decisions.items()
        for rule, answers in mapping(rules).items()
    )
