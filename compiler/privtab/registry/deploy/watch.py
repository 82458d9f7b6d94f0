"""Watch sidecars until they run the desired revisions, and report which of them do not, and why."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from privtab.registry.deploy.nodes import DesiredRevisions, Fleet, Kind, Loaded, Sidecar, SidecarProgress, SidecarStatus

Reader = Callable[[], Fleet]
SILENT = timedelta(minutes=5)
"""Sidecars unseen for longer than this are not awaited. OPA reports with every answer to its long poll."""
PATIENCE = 10.0
"""Seconds for which sidecars may refuse a bundle before the watch gives up; they retry by themselves in that time."""
GRACE = 3.0
"""Seconds to wait if the server knows no sidecars: after a start it learns of them with their next report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetSnapshot:
    """One reading of the fleet. The last one of a watch has `over`."""

    statuses: tuple[SidecarStatus, ...]
    seconds: float
    expected: int = 0
    problem: str | None = None
    over: bool = False

    @property
    def awaited(self) -> tuple[SidecarStatus, ...]:
        """Sidecars that the watch waits for: all but the silent ones."""
        return tuple(one for one in self.statuses if one.standing is not SidecarProgress.SILENT)

    @property
    def active(self) -> tuple[SidecarStatus, ...]:
        """Sidecars that run the desired revisions."""
        return tuple(one for one in self.statuses if one.standing is SidecarProgress.ACTIVE)

    @property
    def sure(self) -> tuple[SidecarStatus, ...]:
        """Active sidecars that are known to read the watched channel."""
        return tuple(one for one in self.active if one.sidecar.certain)

    @property
    def late(self) -> tuple[SidecarStatus, ...]:
        """Awaited sidecars that are not active."""
        return tuple(one for one in self.awaited if one.standing is not SidecarProgress.ACTIVE)

    @property
    def complete(self) -> bool:
        """Whether all awaited sidecars are active."""
        return self.problem is None and not self.late and len(self.sure) >= self.expected

    @property
    def summary(self) -> str:
        """The snapshot as one line."""
        total = max(len(self.awaited), self.expected)
        said = f"{len(self.active)} of {total} sidecar{'' if total == 1 else 's'} active"
        if self.problem:
            return f"{said}; {self.problem}"
        if not self.awaited and not self.expected:
            return "no sidecar has reported yet"
        missing = total - len(self.awaited)
        said = f"{said}; {missing} never reported" if missing > 0 else said
        unsure = sum(not one.sidecar.certain for one in self.statuses)
        return f"{said}; {unsure} cannot be told apart" if unsure else said


def watch(
    read: Reader,
    wanted: DesiredRevisions,
    system: str,
    *,
    timeout: float,
    expect: int = 0,
    every: float = 0.2,
    only: Callable[[Sidecar], bool] = lambda _: True,
) -> Iterator[FleetSnapshot]:
    """Read the fleet until it is complete or time is up; the last snapshot has `over`.

    `expect`: the minimum number of sidecars. `only`: selects the sidecars to watch.
    """
    begun = time.monotonic()
    refused_since: float | None = None
    first: dict[tuple[str, str], str | None] | None = None
    while True:
        fleet = read()
        now = time.monotonic()
        stood = tuple(
            judge(sidecar, wanted, system, datetime.now(tz=UTC)) for sidecar in fleet.sidecars if only(sidecar)
        )
        look = FleetSnapshot(statuses=stood, seconds=now - begun, expected=expect, problem=fleet.problem)
        if first is None:
            first = dict(_tries(look))
        stuck = bool(look.late) and all(_refuses_still(one, first) for one in look.late)
        refused_since = (refused_since or now) if stuck else None
        given_up = refused_since is not None and now - refused_since > PATIENCE
        alone = not look.awaited and not expect and now - begun < min(GRACE, timeout)
        if (look.complete and not alone) or given_up or now - begun >= timeout:
            yield FleetSnapshot(statuses=stood, seconds=now - begun, expected=expect, problem=fleet.problem, over=True)
            return
        yield look
        time.sleep(min(every, max(0.0, begun + timeout - now)))


def _tries(look: FleetSnapshot) -> Iterator[tuple[tuple[str, str], str | None]]:
    """When each sidecar last requested each bundle."""
    for one in look.statuses:
        for bundle in one.sidecar.bundles:
            yield (one.sidecar.id, bundle.name), bundle.tried


def _refuses_still(one: SidecarStatus, first: Mapping[tuple[str, str], str | None]) -> bool:
    """Whether a sidecar refuses a bundle that it requested after the watch began; earlier errors are about older bundles."""
    return one.standing is SidecarProgress.REFUSED and any(
        bundle.problem is not None
        and (bundle.tried is None or bundle.tried != first.get((one.sidecar.id, bundle.name)))
        for bundle in one.sidecar.bundles
    )


def judge(sidecar: Sidecar, wanted: DesiredRevisions, system: str, now: datetime) -> SidecarStatus:
    """The progress of one sidecar."""
    if sidecar.problem is not None:
        return SidecarStatus(sidecar=sidecar, standing=SidecarProgress.UNREACHABLE, why=sidecar.problem)
    missing = [revision for revision in wanted.revisions if not sidecar.runs(revision)]
    old = [bundle for bundle in sidecar.bundles if bundle.revision in wanted.outdated]
    if not missing and not old:
        # It may refuse a later bundle, which is not watched but displayed.
        return SidecarStatus(
            sidecar=sidecar, standing=SidecarProgress.ACTIVE, why="; ".join(_with(sidecar.problems, sidecar.doubt))
        )
    if sidecar.seen is not None and now - sidecar.seen > SILENT:
        return SidecarStatus(
            sidecar=sidecar, standing=SidecarProgress.SILENT, why=f"silent for {age(now - sidecar.seen)}"
        )
    if sidecar.problems:
        return SidecarStatus(sidecar=sidecar, standing=SidecarProgress.REFUSED, why="; ".join(sidecar.problems))
    instead = _instead(sidecar, wanted, system, missing, old)
    return SidecarStatus(
        sidecar=sidecar, standing=SidecarProgress.WAITING, why="; ".join(_with([instead], sidecar.doubt))
    )


def _with(said: Sequence[str], more: str) -> list[str]:
    return [*said, more] if more else list(said)


def _instead(
    sidecar: Sidecar, wanted: DesiredRevisions, system: str, missing: Sequence[str], old: Sequence[Loaded]
) -> str:
    said = [f"{bundle.name} {bundle.revision}" for bundle in old]
    kinds: tuple[tuple[Kind, str | None], ...] = (("policy", wanted.policy), ("state", wanted.state))
    for kind, revision in kinds:
        loaded = sidecar.loaded(kind, system)
        if revision in missing and loaded not in old:
            said.append(f"{kind} {loaded.revision}" if loaded is not None and loaded.revision else f"no {kind}")
    return f"still runs {', '.join(said)}"


def age(span: timedelta) -> str:
    """`3 s`, `4 min`, `2 h`, `5 d`."""
    seconds = max(0, int(span.total_seconds()))
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size} {unit}"
    return f"{seconds} s"
