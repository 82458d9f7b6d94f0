"""What a request carries, and what its caller is: `--with` and `--caller` guess nothing."""

from __future__ import annotations

import pytest

from privtab.base import Entity, SourceFile, UsageError
from privtab.ir import Program
from privtab.pipeline import load_program
from privtab_analysis.commands._ask import RequestOptions, given

POLICY = """\
privtab: 1
system: shop
version: "1"
entities: {store: {item: }}
privileges: [READ, WRITE]
attributes: {user: {department: text}, entity: {department: text}}
tables:
  item:
    read: READ (item)
    move: {with: {to: store}, requires: WRITE (item) and WRITE (to)}
    burn: WRITE (item) and READ (store) when really
    copy: READ (item) and user.department = entity.department
"""


@pytest.fixture(scope="module")
def program() -> Program:
    return load_program(SourceFile.of("shop.yaml", POLICY))


def test_each_kind_is_told_by_its_form(program: Program) -> None:
    found = given(["really", "to=store:a", "user.department=hr"], program)
    assert (found.flags, found.objects) == (frozenset({"really"}), {"to": Entity.parse("store:a")})
    assert dict(found.attributes.user) == {"department": "hr"}
    assert given(["really=true"], program).flags == {"really"}
    assert given(["really=false"], program).flags == {"really=false"}
    assert given(None, program).flags == frozenset()


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["realy"], "no row uses a flag `realy`"),
        (["to"], "no row uses a flag `to`: an object is written to=TYPE:PATH"),
        (["to=true"], "an object is written to=TYPE:PATH"),
        (["really=store:a"], "no operation takes an object `really`: a flag is written really or really=false"),
        (["from=store:a"], "no operation takes an object `from`"),
        (["to="], "write NAME=TYPE:PATH"),
        (["to=a"], "a"),
        (["user.departmnt=hr"], "unknown attribute `user.departmnt`"),
        (["user.department"], "write KIND.NAME=VALUE"),
        (["really", "really=false"], "`--with` is given twice for `really`"),
        (["to=store:a", "to=store:b"], "`--with` is given twice for `to`"),
        ([""], "no row uses a flag"),
    ],
)
def test_other_texts_are_refused(program: Program, texts: list[str], message: str) -> None:
    with pytest.raises(UsageError) as raised:
        given(texts, program)
    assert message in str(raised.value)


def test_a_question_about_many_operations_takes_flags(program: Program) -> None:
    assert RequestOptions(with_=["really"]).general(program).flags == {"really"}
    assert RequestOptions(with_=["to=store:a"]).general(program, objects=True).objects
    for text in ("to=store:a", "user.department=hr"):
        with pytest.raises(UsageError, match="takes flags alone"):
            RequestOptions(with_=[text]).general(program)


@pytest.mark.parametrize("text", ["hr", "group:", "role:", "user:ann", "no-role", ""])
def test_a_caller_has_groups_and_active_roles(program: Program, text: str) -> None:
    assert RequestOptions(caller=["group:hr", "group:hr", "group:it"]).groups() == ("hr", "it")
    with pytest.raises(UsageError, match="write group:NAME, role:NAME or no-roles"):
        RequestOptions(caller=[text]).groups()
    with pytest.raises(UsageError, match="active_roles: request"):
        RequestOptions(caller=["role:clerk"]).active_roles(program)
    with pytest.raises(UsageError, match="exclude each other"):
        RequestOptions(caller=["role:clerk", "no-roles"]).active_roles(program)
