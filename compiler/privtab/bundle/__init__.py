"""Bundles: the policy and the state of a system, each a deterministic archive that OPA loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.base.lazy import face

if TYPE_CHECKING:
    from privtab.bundle.archive import (
        MANIFEST_FILE,
        archive_digest,
        archive_entries,
        json_bytes,
        packed_archive,
        read_json_object,
    )
    from privtab.bundle.pack import BundledDoor, PolicyArtifacts, packed_state, shard_bundles, shard_files, state_bundle
    from privtab.bundle.program import program_in, program_with_doors
    from privtab.bundle.provenance import Provenance, provenance_of
    from privtab.bundle.shards import LISTING_FILE, bundle_listing
    from privtab.bundle.sign import (
        SigningKey,
        file_digests,
        signatures_text,
        verify_bundle,
        with_signature,
        with_signatures,
    )
    from privtab.bundle.state_rows import state_of_index
else:
    __getattr__, __dir__, __all__ = face(
        __name__,
        {
            "archive": "MANIFEST_FILE archive_digest archive_entries json_bytes packed_archive read_json_object",
            "pack": "BundledDoor PolicyArtifacts packed_state shard_bundles shard_files state_bundle",
            "program": "program_in program_with_doors",
            "provenance": "Provenance provenance_of",
            "shards": "LISTING_FILE bundle_listing",
            "sign": "SigningKey file_digests signatures_text verify_bundle with_signature with_signatures",
            "state_rows": "state_of_index",
        },
    )
