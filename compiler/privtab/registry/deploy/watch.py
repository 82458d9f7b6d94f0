"""Watch sidecars until they run the desired revisions, and report which of them do not, and why."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from privtab.registry.deploy.nodes import (
    BundleKind,
    DesiredRevisions,
    Fleet,
    LoadedBundle,
    Sidecar,
    SidecarProgress,
    SidecarStatus,
)

FleetReader = Callable[[], Fleet]
SILENT = timedelta(minutes=5)
"""Sidecars unseen for longer than this are not awaited. OPA reports with every answer to its long poll."""
PATIENCE = 10.0
"""Seconds for which sidecars may refuse a bundle before the watch gives up; they retry by themselves in that time."""
GRACE = 3.0
"""Seconds to wait if the server knows no sidecars: after a start it learns of them with their next report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSnapshot:
    """One reading of the fleet. The last one of a watch has `final`."""

    statuses: tuple[SidecarStatus, ...]
    seconds: float
    expected: int = 0
    problem: str | None = None
    final: bool = False

    @property
    def awaited(self) -> tuple[SidecarStatus, ...]:
        """Sidecars that the watch waits for: all but the silent ones."""
        return tuple(status for status in self.statuses if status.standing is not SidecarProgress.SILENT)

    @property
    def active(self) -> tuple[SidecarStatus, ...]:
        """Sidecars that run the desired revisions."""
        return tuple(status for status in self.statuses if status.standing is SidecarProgress.ACTIVE)

    @property
    def confirmed(self) -> tuple[SidecarStatus, ...]:
        """Active sidecars that are known to read the watched channel."""
        return tuple(status for status in self.active if status.sidecar.certain)

    @property
    def late(self) -> tuple[SidecarStatus, ...]:
        """Awaited sidecars that are not active."""
        return tuple(status for status in self.awaited if status.standing is not SidecarProgress.ACTIVE)

    @property
    def complete(self) -> bool:
        """Whether all awaited sidecars are active."""
        return self.problem is None and not self.late and len(self.confirmed) >= self.expected

    @property
    def summary(self) -> str:
        """The snapshot as one line."""
        total = max(len(self.awaited), self.expected)
        text = f"{len(self.active)} of {total} sidecar{'' if total == 1 else 's'} active"
        if self.problem:
            return f"{text}; {self.problem}"
        if not self.awaited and not self.expected:
            return "no sidecar has reported yet"
        missing = total - len(self.awaited)
        text = f"{text}; {missing} never reported" if missing > 0 else text
        unsure = sum(not status.sidecar.certain for status in self.statuses)
        return f"{text}; {unsure} cannot be told apart" if unsure else text


def watch(
    read: FleetReader,
    desired: DesiredRevisions,
    system: str,
    *,
    timeout: float,
    expect: int = 0,
    every: float = 0.2,
    only: Callable[[Sidecar], bool] = lambda _: True,
) -> Iterator[FleetSnapshot]:
    """Read the fleet until it is complete or time is up; the last snapshot has `final`.

    `expect`: the minimum number of sidecars. `only`: selects the sidecars to watch.
    """
    started = time.monotonic()
    refused_since: float | None = None
    first_requests: dict[tuple[str, str], str | None] | None = None
    while True:
        fleet = read()
        now = time.monotonic()
        statuses = tuple(
            judge(sidecar, desired, system, datetime.now(tz=UTC)) for sidecar in fleet.sidecars if only(sidecar)
        )
        snapshot = FleetSnapshot(statuses=statuses, seconds=now - started, expected=expect, problem=fleet.problem)
        if first_requests is None:
            first_requests = dict(_last_requests(snapshot))
        stuck = bool(snapshot.late) and all(_still_refuses(status, first_requests) for status in snapshot.late)
        refused_since = (refused_since or now) if stuck else None
        given_up = refused_since is not None and now - refused_since > PATIENCE
        in_grace = not snapshot.awaited and not expect and now - started < min(GRACE, timeout)
        if (snapshot.complete and not in_grace) or given_up or now - started >= timeout:
            yield FleetSnapshot(
                statuses=statuses, seconds=now - started, expected=expect, problem=fleet.problem, final=True
            )
            return
        yield snapshot
        time.sleep(min(every, max(0.0, started + timeout - now)))


def _last_requests(snapshot: FleetSnapshot) -> Iterator[tuple[tuple[str, str], str | None]]:
    """When each sidecar last requested each bundle."""
    for status in snapshot.statuses:
        for bundle in status.sidecar.bundles:
            yield (status.sidecar.id, bundle.name), bundle.tried


def _still_refuses(status: SidecarStatus, first_requests: Mapping[tuple[str, str], str | None]) -> bool:
    """Whether it is no use to wait: a sidecar is unsafe, or refuses a bundle that it requested after the watch began.

    Earlier errors are about older bundles.
    """
    if status.standing is SidecarProgress.UNSAFE:
        return True
    return status.standing is SidecarProgress.REFUSED and any(
        bundle.problem is not None
        and (bundle.tried is None or bundle.tried != first_requests.get((status.sidecar.id, bundle.name)))
        for bundle in status.sidecar.bundles
    )


def judge(sidecar: Sidecar, desired: DesiredRevisions, system: str, now: datetime) -> SidecarStatus:
    """The progress of one sidecar."""
    if sidecar.problem is not None:
        return SidecarStatus(sidecar=sidecar, standing=SidecarProgress.UNREACHABLE, why=sidecar.problem)
    is_silent = sidecar.seen is not None and now - sidecar.seen > SILENT
    if desired.signed and not is_silent and (why := sidecar.verifier_problem):
        return SidecarStatus(sidecar=sidecar, standing=SidecarProgress.UNSAFE, why=why)
    missing = [revision for revision in desired.revisions if not sidecar.runs(revision)]
    old = [bundle for bundle in sidecar.bundles if bundle.revision in desired.outdated]
    if not missing and not old:
        # It may refuse a later bundle, which is not watched but displayed.
        return SidecarStatus(
            sidecar=sidecar,
            standing=SidecarProgress.ACTIVE,
            why="; ".join(_with_doubt(sidecar.problems, sidecar.doubt)),
        )
    if sidecar.seen is not None and is_silent:
        return SidecarStatus(
            sidecar=sidecar, standing=SidecarProgress.SILENT, why=f"silent for {age(now - sidecar.seen)}"
        )
    if sidecar.problems:
        return SidecarStatus(sidecar=sidecar, standing=SidecarProgress.REFUSED, why="; ".join(sidecar.problems))
    running = _running_instead(sidecar, desired, system, missing, old)
    return SidecarStatus(
        sidecar=sidecar, standing=SidecarProgress.WAITING, why="; ".join(_with_doubt([running], sidecar.doubt))
    )


def _with_doubt(problems: Sequence[str], doubt: str) -> list[str]:
    return [*problems, doubt] if doubt else list(problems)


def _running_instead(
    sidecar: Sidecar, desired: DesiredRevisions, system: str, missing: Sequence[str], old: Sequence[LoadedBundle]
) -> str:
    running = [f"{bundle.name} {bundle.revision}" for bundle in old]
    kinds: tuple[tuple[BundleKind, str | None], ...] = (("policy", desired.policy), ("state", desired.state))
    for kind, revision in kinds:
        loaded = sidecar.loaded(kind, system)
        if revision in missing and loaded not in old:
            running.append(f"{kind} {loaded.revision}" if loaded is not None and loaded.revision else f"no {kind}")
    return f"still runs {', '.join(running)}"


def age(span: timedelta) -> str:
    """`3 s`, `4 min`, `2 h`, `5 d`."""
    seconds = max(0, int(span.total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
