"""Which row filter or column mask applies, and its text: the same of OPA, of the engine in process and of the reference."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import requests as http
import worlds
from engine_agreement import applied, differing_filters, put_state, serving

from privtab.reference.evaluate import Reference

FEATURES = (
    ("attributes", "filters"),
    ("filters", "nested", "attributes", "hierarchy"),
    ("filters", "flat", "attributes"),
    ("filters", "flat", "nested", "attributes", "active", "implies"),
)


@pytest.mark.parametrize("policies", [4, pytest.param(20, marks=pytest.mark.long)])
def test_engines_agree_on_the_filters_of_generated_worlds(opa_binary: Path, policies: int) -> None:
    texts = [worlds.policy(600 + n, f"world{n}", FEATURES[n % len(FEATURES)]) for n in range(policies)]
    counts: Counter[tuple[str, bool]] = Counter()
    with serving(texts, opa_binary) as (url, loaded), http.Session() as session:
        for number, world in enumerate(loaded):
            state = worlds.state(world.program, 600 + number)
            put_state(session, url, world.program, state)
            requests = worlds.requests(world.program, 600 + number, 6)
            found = differing_filters(session, url, world, state, requests)
            assert not found, f"{len(found)} differ; the first:\n{found[0]}"
            reference = Reference(world.program, state)
            for request in requests:
                kind, dot, _ = request.action.partition(".")
                if dot:
                    answer = applied(reference, replace(request, action=kind))
                    counts[kind, answer.denied] += 1
    assert min(counts.values()) > policies
    assert len(counts) == 4
