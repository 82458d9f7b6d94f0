"""Bundles: the policy and the state of a system, each a deterministic archive that OPA loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.base.lazy import face

if TYPE_CHECKING:
    from privtab.bundle.archive import (
        archive_digest,
        archive_entries,
        json_bytes,
        read_json_object,
    )
    from privtab.bundle.pack import (
        BundledDoor,
        PolicyArtifacts,
        packed_shard,
        packed_state,
        shard_bundles,
        state_bundle,
    )
    from privtab.bundle.program import program_in
    from privtab.bundle.provenance import Provenance
    from privtab.bundle.shards import listing_file
    from privtab.bundle.sign import SigningKey, file_digests, verify_bundle, with_signatures
    from privtab.bundle.state_rows import state_of_index
else:
    __getattr__, __dir__, __all__ = face(
        __name__,
        {
            "archive": "archive_digest archive_entries json_bytes read_json_object",
            "pack": "BundledDoor PolicyArtifacts packed_shard packed_state shard_bundles state_bundle",
            "program": "program_in",
            "provenance": "Provenance",
            "shards": "listing_file",
            "sign": "SigningKey file_digests verify_bundle with_signatures",
            "state_rows": "state_of_index",
        },
    )
