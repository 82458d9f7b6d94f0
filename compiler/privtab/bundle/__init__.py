"""Bundles: the policy and the state of a system, each a deterministic archive that OPA loads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from privtab.base.lazy import face

if TYPE_CHECKING:
    from privtab.bundle.archive import archive_entries, json_bytes
    from privtab.bundle.contents import program_in, state_of_index
    from privtab.bundle.pack import PolicyArtifacts, Provenance, listing_file, packed_shard, shard_bundles, state_bundle
    from privtab.bundle.sign import SigningKey, file_digests, verify_bundle, with_signatures
else:
    __getattr__, __dir__, __all__ = face(__name__)
