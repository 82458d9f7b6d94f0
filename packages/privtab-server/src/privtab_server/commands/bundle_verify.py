"""`privtab bundle verify`: whether bundles are signed as required."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from privtab.base import BrokenBundle, FileError, PolicyError, UsageError
from privtab.command import (
    FormatOption,
    VerificationOptions,
    argument,
    fail_if,
    option,
    out,
    print_error,
    print_if_data,
)

if TYPE_CHECKING:
    from privtab.base import Trust


def verify(
    bundles: Annotated[list[Path], argument("BUNDLE", "Bundles, as OPA loads them.")],
    verification: VerificationOptions,
    newer_than: Annotated[
        str | None, option("--newer-than BUNDLE|N", "Refuse bundles not newer than this bundle or sequence.")
    ] = None,
    format_: FormatOption = "text",
) -> None:
    """Verify the signatures of bundles and all their files, as OPA does.

    Exits with 1 if a bundle is refused: unsigned, signed by another key or for another scope, changed, with missing or
    additional files, not newer, or incomplete. `privtab registry status --check` finds sidecars that accept unsigned bundles.

    Example:
      privtab bundle verify signed.tar.gz --verification-key prod.pub.pem --scope prod
      privtab bundle verify new/state.tar.gz --verification-key prod.pub.pem --newer-than old/state.tar.gz
    """
    trusted = verification.trust()
    if trusted is None:
        raise UsageError("give the key to verify with: `--verification-key FILE`")
    minimum_sequence = None if newer_than is None else _baseline_sequence(newer_than, trusted)
    rows = [_verify(bundle, trusted, minimum_sequence) for bundle in bundles]
    if not print_if_data(format_, rows):
        for row in rows:
            if row["verified"]:
                order = "" if row["sequence"] is None else f", sequence {row['sequence']}"
                out().print(
                    f"{row['bundle']}: signed with {row['key']} ({row['algorithm']}){order}, {row['files']} files"
                )
            else:
                print_error(f"{row['bundle']} is refused: {row['why']}")
    fail_if(not all(row["verified"] for row in rows))


def _verify(bundle: Path, trusted: Trust, minimum_sequence: int | None) -> dict[str, Any]:
    from privtab.bundle import verify_bundle as verified

    try:
        signed = verified(bundle, trusted, newer_than=minimum_sequence)
    except (PolicyError, BrokenBundle) as error:
        return {"bundle": str(bundle), "verified": False, "why": str(error)}
    said = {name: getattr(signed, name) for name in ("key", "algorithm", "scope", "sequence")}
    return {"bundle": str(bundle), "verified": True, **said, "files": len(signed.files)}


def _baseline_sequence(baseline: str, trusted: Trust) -> int:
    """The sequence given as a number or by another bundle, whose signature must also verify; raises UsageError without one."""
    if baseline.isdecimal():
        return int(baseline)
    from privtab.bundle import verify_bundle as verified

    try:
        sequence = verified(baseline, trusted).sequence
    except (PolicyError, BrokenBundle) as error:
        raise FileError(f"{baseline} is refused: {error}") from None
    if sequence is None:
        raise UsageError(
            f"the signature of {baseline} has no sequence, so its order is unknown: sign with `--signature sequence=N`"
        )
    return sequence
