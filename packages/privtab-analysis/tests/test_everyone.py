"""Who may what where every user is in a group: those whom rows name, but for denials, and those whom none names."""

from __future__ import annotations

from dataclasses import replace

import generated_programs
import pytest
import worlds
from seeds import seeds

from privtab.reference import Reference
from privtab.state import Grant
from privtab_analysis.principals import who_can

STRANGER = "a stranger"


@pytest.mark.parametrize("seed", seeds(range(60), quick=8))
def test_anyone_but_those_to_whom_it_is_denied(seed: int) -> None:
    program = generated_programs.program(seed, "hierarchy")
    program = replace(program, semantics=replace(program.semantics, everyone="all of them", deny="overrides"))
    state = worlds.state(program, seed)
    shared = [replace(grant, grantee="group:all of them") for grant in state.grants if grant.effect == "allow"][::2]
    denied = [Grant(grantee="user:bob", effect="deny", privilege=g.privilege, entity=g.entity) for g in shared]
    state = replace(state, grants=(*state.grants, *shared, *denied))
    reference = Reference(program, state)
    for asked in worlds.requests(program, seed, 2):
        request = replace(asked, groups=())
        found = who_can(reference, state, request)
        allowed = {user for user in found.known if reference.decide(replace(request, user=user)).allowed}
        assert set(found.users) == allowed, request
        assert found.anyone == reference.decide(replace(request, user=STRANGER)).allowed, request
        assert set(found.excepted) == (found.known - allowed if found.anyone else set())


def test_some_are_excepted() -> None:
    """The worlds above have answers with exceptions."""
    counts = 0
    for seed in range(15):
        program = generated_programs.program(seed, "hierarchy")
        program = replace(program, semantics=replace(program.semantics, everyone="all of them", deny="overrides"))
        state = worlds.state(program, seed)
        shared = [replace(grant, grantee="group:all of them") for grant in state.grants if grant.effect == "allow"]
        denied = [replace(grant, grantee="user:bob", effect="deny") for grant in shared]
        state = replace(state, grants=(*state.grants, *shared, *denied))
        reference = Reference(program, state)
        counts += sum(bool(who_can(reference, state, r).excepted) for r in worlds.requests(program, seed, 2))
    assert counts > 5
