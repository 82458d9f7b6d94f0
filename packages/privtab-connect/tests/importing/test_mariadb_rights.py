"""What is imported from a real MariaDB and decided by the shipped table is what the server itself does."""

from __future__ import annotations

import pytest
import sqlalchemy
from mariadb_world import answers, decides, executed, imported, rights
from seeds import daily, seeds

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("mariadb-10-11")]


PATTERNS = ((), ("`d_2`",), ("`d_2`", "`d%`"), ("`d_2`", "`d%`", "`%2`", "`d__`", "`_%2`"))


@pytest.mark.parametrize("seed", seeds([3, 2, 0, 1, *range(4, 30), *daily(31)[1:]], quick=2, full=3))
def test_what_is_imported_from_mariadb_decides_as_the_server_does(mariadb_url: str, seed: int) -> None:
    executed(mariadb_url, *rights(seed, PATTERNS[seed % len(PATTERNS)]))
    found, reference = imported(mariadb_url)
    assert not found.refused(strict=False, allow_partial=False)
    assert {name for name, (item, _) in found.by_name.items() if "root" not in item.what} <= {
        "account", "role-not-default", "database-pattern", "unknown-privilege", "privilege-not-on-type",
    }  # fmt: skip
    said = answers(mariadb_url)
    assert {asked for asked, answer in said.items() if decides(reference, *asked) != answer} == set()
    assert min(list(said.values()).count(answer) for answer in (True, False)) > (80 if seed < 30 else 0)


BESIDE_GRANTS = """
create view d1.v as select 1 as one; create sql security invoker view d1.w as select 1 as one
create procedure d1.p() select 1; grant execute on procedure d1.p to ann; grant reload on *.* to bob
grant eng to ann; grant proxy on bob to ann; create user ann@localhost; alter user dan account lock; grant select on `nowhere%`.* to ann
"""
LISTED = {
    "security-invoker-view": ("view d1.w asks for the rights of its caller on what it reads", True),
    "procedure-grants": ("`EXECUTE` on procedure `d1/p` for `user:ann`", False),
    "role-not-default": ("`ann` of host `%` may switch to `eng`", False),
    "several-hosts": ("`ann` has accounts of several hosts, of which the server takes the grants together", False),
    "proxy": ("`ann` may act as `bob`", False),
    "account": ("what the locked account `dan` of host `%` holds", False),
    "database-pattern": ("`SELECT` on databases like `nowhere%` for `user:ann`", False),
}


def test_an_account_that_does_not_see_everything_stops_the_import(mariadb_url: str) -> None:
    executed(mariadb_url, "grant select on mysql.* to bob", "grant select on *.* to cy")
    executed(mariadb_url, "create sql security invoker view d1.w as select 1 as one")
    for user, expected in (("bob", {"hidden"}), ("cy", {"security-invoker-view"})):
        address = sqlalchemy.make_url(mariadb_url).set(username=user).render_as_string(hide_password=False)
        found, _ = imported(address)
        assert {item.name for item in found.refused(strict=False, allow_partial=False)} == expected


ODD = ("Alike", "alike", "\u00e4like", "my_db", "myXdb", "50%", "a\\b", "a\\_b", "f(int)", "x$files", "a/b", "a.b", "%")
"""Names of databases that are alike without case or accents, or that are patterns, or that readers may take apart."""


def test_odd_names_of_databases_are_what_they_are(mariadb_url: str) -> None:
    escaped = {name: name.replace("\\", "\\\\").replace("_", "\\_").replace("%", "\\%") for name in ODD}
    executed(mariadb_url, *(f"create database `{name}`" for name in ODD))
    try:
        executed(mariadb_url, *(f"grant drop on `{escaped[name]}`.* to bob" for name in ODD[::2]))
        executed(mariadb_url, "grant alter on `my_db`.* to bob", "grant alter on `50%`.* to bob")
        found, _ = imported(mariadb_url)
        held = {
            (grant.privilege, grant.entity.decoded_names[-1])
            for grant in found.state.grants
            if (grant.grantee, grant.entity.type) == ("user:bob", "database")
        }
        assert {name for privilege, name in held if privilege == "DROP"} == {*ODD[::2]}
        # Both patterns are of databases; of what fits `myXdb`, the name counts alone.
        assert {name for privilege, name in held if privilege == "ALTER"} == {"my_db", "50%"}
    finally:
        executed(mariadb_url, *(f"drop database `{name}`" for name in ODD))


def test_what_a_state_cannot_say_is_listed(mariadb_url: str) -> None:
    executed(mariadb_url, *filter(None, map(str.strip, BESIDE_GRANTS.replace("\n", ";").split(";"))))
    try:
        found, _ = imported(mariadb_url)
        assert set(LISTED.items()) <= {(item.name, (item.what, item.denies)) for item in found.not_taken}
        assert {item.name for item in found.refused(strict=False, allow_partial=False)} == {"security-invoker-view"}
        (reload,) = (item for item in found.not_taken if "grantee user:bob" in item.what)
        assert reload.why == "unknown privilege `RELOAD`"
    finally:
        executed(mariadb_url, "drop user ann@localhost")
