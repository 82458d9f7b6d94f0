"""Gravitino's own client for Python against a store's server, and what is decided afterwards.

It does what the examples for Java of the documents do (upstream/gravitino-1.2.0.md and 1.3.0.md from line 540 on, and gravitino-branch-1.3.md): its
methods are called like theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import gravitino_client
import pytest
from authzen_server import Server
from store_server import EVERYTHING, ask, serve_store, write_tokens

from privtab.pipeline import load_program
from privtab_server.store.store import Store

USERS = ("admin", "admin1", "user1", "analyst", "owner1")
pytestmark = pytest.mark.slow


@dataclass
class Lake:
    """A server with a metalake `test`, whose owner is `admin1`, and a table catalog1.schema1.table1."""

    library: Any
    server: Server
    serve: Callable[[], Server]

    def client(self, user: str, metalake: str = "test", server: Server | None = None) -> Any:
        token = gravitino_client.Bearer(user)
        return self.library.GravitinoClient((server or self.server).url, metalake, auth_data_provider=token)

    def may(self, user: str, action: str, resource: str) -> bool:
        """What the server decides now."""
        type_, _, id_ = resource.partition(":")
        question = {
            "subject": {"type": "user", "id": user},
            "action": {"name": action},
            "resource": {"type": type_, "id": id_},
        }
        answer = ask(self.server, "POST", "//access/v1/evaluation", "admin", question)
        assert answer.status_code == 200, answer.text
        decision = answer.json()["decision"]
        assert isinstance(decision, bool)
        return decision

    def object(self, *names: str) -> Any:
        types = self.library.MetadataObject.Type
        type_ = (types.CATALOG, types.SCHEMA, types.TABLE)[len(names) - 1]
        return self.library.MetadataObjects.of(list(names), type_)

    def secured(self, *names: str, privileges: list[Any]) -> Any:
        """An object with privileges, for a role."""
        objects = self.library.SecurableObjects
        if len(names) == 1:
            return objects.of_catalog(*names, privileges)
        outer = self.secured(*names[:-1], privileges=[])
        return (objects.of_schema, objects.of_table)[len(names) - 2](outer, names[-1], privileges)


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    library = gravitino_client.Library(gravitino_client.install())
    folder = tmp_path_factory.mktemp("client")
    url, program = folder / "grants.db", load_program("gravitino/1.3.0")
    Store.create(str(url), program, administrators=["admin"])
    tokens = write_tokens(folder / "tokens", USERS, EVERYTHING)

    def serve() -> Server:
        return serve_store(folder, [url, "-p", "gravitino/1.3.0", "--api", "gravitino", "--token-file", tokens])

    found = Lake(library, serve(), serve)
    try:
        prepare(found)
        yield found
    finally:
        assert found.server.stop() == 0
    assert "Traceback" not in found.server.log.read_text()
    assert Store.open(str(url), program).verify() == []


def prepare(lake: Lake) -> None:
    library, token = lake.library, gravitino_client.Bearer("admin")
    admin = library.GravitinoAdminClient(lake.server.url, auth_data_provider=token)
    assert admin.create_metalake("test", "of the tests", {"k": "v"}).comment() == "of the tests"
    assert [metalake.name() for metalake in admin.list_metalakes()] == ["test"]
    client = lake.client("admin")
    client.add_user("admin1")
    metalake = library.MetadataObjects.of(["test"], library.MetadataObject.Type.METALAKE)
    client.set_owner(metalake, "admin1", library.Owner.Type.USER)
    assert not lake.may("admin", "add", "user:test/x")
    client = lake.client("admin1")
    client.create_catalog("catalog1", library.Catalog.Type.RELATIONAL, "hive", "sales", {"uri": "thrift://h"})
    catalog = client.load_catalog("catalog1")
    catalog.as_schemas().create_schema("schema1", "orders", {})
    column = library.ColumnDTO.builder().with_name("id").with_data_type(library.Types.IntegerType.get()).build()
    table = library.NameIdentifier.of("schema1", "table1")
    catalog.as_table_catalog().create_table(table, [column], "a table", {})


def test_users_and_groups(lake: Lake) -> None:
    client = lake.client("admin1")
    assert client.add_user("user2").name() == "user2"
    assert lake.may("user2", "get", "user:test/user2")
    assert client.list_user_names() == ["admin", "admin1", "user2"]
    assert [user.name() for user in client.list_users()] == ["admin", "admin1", "user2"]
    assert client.get_user("user2").roles() == []
    assert client.remove_user("user2") is True
    assert not lake.may("user2", "get", "user:test/user2")
    assert client.remove_user("user2") is False
    assert client.add_group("group2").audit_info().creator() == "admin1"
    assert client.list_group_names() == [group.name() for group in client.list_groups()] == ["group2"]
    assert client.get_group("group2").name() == "group2"
    assert client.remove_group("group2") is True
    with pytest.raises(lake.library.NoSuchGroupException):
        client.get_group("group2")
    with pytest.raises(lake.library.UserAlreadyExistsException):
        client.add_user("admin1")


def test_roles_and_privileges(lake: Lake) -> None:
    client, table, schema = (
        lake.client("admin1"),
        "table:test/catalog1/schema1/table1",
        lake.object("catalog1", "schema1"),
    )
    select = lake.library.SelectTable
    use = [lake.secured("catalog1", privileges=[lake.library.UseCatalog.allow(), lake.library.UseSchema.allow()])]
    client.create_role("user", {}, use)
    client.add_user("user1")
    client.grant_roles_to_user(["user"], "user1")
    object_ = lake.secured("catalog1", "schema1", "table1", privileges=[select.allow()])
    role = client.create_role("role1", {"k1": "v1"}, [object_])
    assert (role.name(), role.properties()) == ("role1", {"k1": "v1"})
    assert role.audit_info().create_time() is not None
    (found,) = client.get_role("role1").securable_objects()
    assert (found.full_name(), found.privileges()) == ("catalog1.schema1.table1", [select.allow()])
    assert client.list_role_names() == ["role1", "user"]
    assert not lake.may("user1", "load", table)
    assert client.grant_roles_to_user(["role1"], "user1").roles() == ["role1", "user"]
    assert lake.may("user1", "load", table)
    assert [
        o.full_name() for o in client.grant_privileges_to_role("role1", schema, [select.allow()]).securable_objects()
    ] == [
        "catalog1.schema1",
        "catalog1.schema1.table1",
    ]
    for object_, holders in ((schema, ["role1"]), (lake.object("catalog1"), ["user"])):
        binding = lake.library.MetadataObjectRoleOperations("test", object_, client.get_metalake().rest_client)
        assert binding.list_binding_role_names() == holders
    client.revoke_privileges_from_role("role1", lake.object("catalog1", "schema1", "table1"), [select.allow()])
    assert lake.may("user1", "load", table)
    client.revoke_privileges_from_role("role1", schema, [select.allow()])
    assert not lake.may("user1", "load", table)
    client.grant_privileges_to_role("role1", lake.object("catalog1", "schema1", "table1"), [select.allow()])
    assert lake.may("user1", "load", table)
    client.grant_privileges_to_role("role1", lake.object("catalog1"), [select.deny()])
    assert not lake.may("user1", "load", table)
    client.revoke_privileges_from_role("role1", lake.object("catalog1"), [select.deny()])
    client.revoke_roles_from_user(["role1"], "user1")
    assert not lake.may("user1", "load", table)
    client.add_group("group1")
    assert client.grant_roles_to_group(["role1"], "group1").roles() == ["role1"]
    assert client.revoke_roles_from_group(["role1"], "group1").roles() == []
    assert client.delete_role("role1") is True
    assert client.delete_role("role1") is False
    with pytest.raises(lake.library.IllegalPrivilegeException):
        client.grant_privileges_to_role("user", schema, [select.allow(), select.deny()])
    with pytest.raises(lake.library.NoSuchMetadataObjectException):
        client.grant_privileges_to_role("user", lake.object("none"), [select.allow()])
    with pytest.raises(lake.library.IllegalMetadataObjectException):
        client.create_role("role2", {}, [lake.secured("none", privileges=[select.allow()])])
    assert "role2" not in client.list_role_names()


def test_an_overridden_role_has_exactly_the_privileges_of_the_request(lake: Lake) -> None:
    client = lake.client("admin1")
    client.add_user("analyst")
    use = [lake.library.UseCatalog.allow(), lake.library.UseSchema.deny()]
    client.create_role("reader", {}, [lake.secured("catalog1", privileges=use)])
    client.grant_roles_to_user(["reader"], "analyst")
    privileges = [{"name": name, "condition": "ALLOW"} for name in ("USE_CATALOG", "USE_SCHEMA", "SELECT_TABLE")]
    override = {"overrides": [{"fullName": "catalog1", "type": "CATALOG", "privileges": privileges}]}
    path = "//api/metalakes/test/permissions/roles/reader/"
    for _ in range(2):
        answer = ask(lake.server, "PUT", path, "admin1", override).json()
        (found,) = answer["role"]["securableObjects"]
        assert {privilege["name"].upper() for privilege in found["privileges"]} == {
            "USE_CATALOG",
            "USE_SCHEMA",
            "SELECT_TABLE",
        }
        assert lake.may("analyst", "load", "table:test/catalog1/schema1/table1")
    assert ask(lake.server, "PUT", path, "analyst", {"overrides": []}).status_code == 403
    assert ask(lake.server, "PUT", path, "admin1", {"overrides": []}).json()["role"]["securableObjects"] == []
    assert not lake.may("analyst", "load", "table:test/catalog1/schema1/table1")


def test_owners(lake: Lake) -> None:
    client, table = lake.client("admin1"), lake.object("catalog1", "schema1", "table1")
    client.add_user("owner1")
    assert client.get_owner(table).name() == "admin1"
    client.set_owner(table, "owner1", lake.library.Owner.Type.USER)
    assert (client.get_owner(table).name(), client.get_owner(table).type()) == ("owner1", lake.library.Owner.Type.USER)
    client.add_group("owners")
    with pytest.raises(lake.library.ForbiddenException):
        client.set_owner(table, "owners", lake.library.Owner.Type.GROUP)
    lake.client("owner1").set_owner(table, "owners", lake.library.Owner.Type.GROUP)
    assert client.get_owner(table).type() == lake.library.Owner.Type.GROUP


def test_what_describes_an_object_is_kept_and_secrets_are_not(lake: Lake) -> None:
    client, change = lake.client("admin1"), lake.library.CatalogChange
    kinds = lake.library.Catalog.Type
    client.create_catalog("files", kinds.FILESET, None, "f", {"jdbc-password": "hunter2", "location": "/x"})
    client.alter_catalog("files", change.update_comment("g"), change.set_property("s3-secret-access-key", "hunter3"))
    client.alter_catalog("files", change.set_property("a", "b"), change.remove_property("location"))
    restarted = lake.serve()
    try:
        again = lake.client("admin1", server=restarted)
        files = again.load_catalog("files")
        hidden = {"jdbc-password": "******", "s3-secret-access-key": "******", "a": "b"}
        assert (files.type(), files.comment(), files.properties()) == (kinds.FILESET, "g", hidden)
        assert files.audit_info().last_modifier() == "admin1"
        assert {found.name(): found.type() for found in again.list_catalogs_info()} == {
            "catalog1": kinds.RELATIONAL,
            "files": kinds.FILESET,
        }
        table = lake.library.NameIdentifier.of("schema1", "table1")
        assert again.load_catalog("catalog1").as_table_catalog().load_table(table).columns()[0].name() == "id"
    finally:
        assert restarted.stop() == 0
    assert b"hunter" not in b"".join(path.read_bytes() for path in lake.server.log.parent.glob("grants.db*"))
    assert client.list_catalogs() == ["catalog1", "files"]
    assert client.drop_catalog("files", True) is True
    assert client.list_catalogs() == ["catalog1"]
    with pytest.raises(lake.library.UnsupportedOperationException):
        client.alter_catalog("catalog1", change.rename("other"))
    with pytest.raises(lake.library.NoSuchCatalogException):
        client.load_catalog("files")


def test_tags(lake: Lake) -> None:
    client, change = lake.client("admin1"), lake.library.TagChange
    tag = client.create_tag("pii", "personal", {"level": "1"})
    assert (tag.comment(), tag.properties(), client.list_tags()) == ("personal", {"level": "1"}, ["pii"])
    assert (
        client.alter_tag("pii", change.update_comment("private"), change.set_property("level", "2")).comment()
        == "private"
    )
    assert client.list_tags_info()[0].properties() == {"level": "2"}
    # In the document's row, the privilege alone lets associate, not ownership.
    apply = {"name": "APPLY_TAG", "condition": "ALLOW"}
    role = {"name": "tagger", "securableObjects": [{"fullName": "pii", "type": "TAG", "privileges": [apply]}]}
    schema = client.load_catalog("catalog1").as_schemas().load_schema("schema1").supports_tags()
    with pytest.raises(lake.library.ForbiddenException):
        schema.associate_tags(["pii"], [])
    assert ask(lake.server, "POST", "//api/metalakes/test/roles", "admin1", role).status_code == 200
    client.grant_roles_to_user(["tagger"], "admin1")
    assert schema.associate_tags(["pii"], []) == ["pii"]
    assert schema.list_tags() == ["pii"]
    table = (
        client.load_catalog("catalog1")
        .as_table_catalog()
        .load_table(lake.library.NameIdentifier.of("schema1", "table1"))
    )
    assert [tag.inherited() for tag in table.supports_tags().list_tags_info()] == [True]
    assert schema.get_tag("pii").inherited() is False
    assert [found.full_name() for found in client.get_tag("pii").associated_objects().objects()] == ["catalog1.schema1"]
    assert schema.associate_tags([], ["pii"]) == []
    schema.associate_tags(["pii"], [])
    assert client.delete_tag("pii") is True
    assert schema.list_tags() == []
    with pytest.raises(lake.library.NoSuchTagException):
        client.get_tag("pii")
    client.create_tag("pii", "another", {})
    assert schema.list_tags() == []


def test_job_templates(lake: Lake) -> None:
    client, change = lake.client("admin1"), lake.library.JobTemplateChange
    builder = (
        lake.library.ShellJobTemplate.builder().with_name("nightly").with_comment("c").with_executable("/bin/true")
    )
    client.register_job_template(builder.with_arguments(["a"]).with_environments({"K": "v"}).build())
    with pytest.raises(lake.library.JobTemplateAlreadyExistsException):
        client.register_job_template(builder.build())
    template = client.get_job_template("nightly")
    assert (template.arguments, template.environments, template.executable) == (["a"], {"K": "v"}, "/bin/true")
    new = lake.library.ShellTemplateUpdate(new_environments={"L": "w"}, new_executable="/bin/false")
    altered = client.alter_job_template("nightly", change.update_comment("d"), change.update_template(new))
    assert (altered.comment, altered.environments, altered.executable) == ("d", {"L": "w"}, "/bin/false")
    assert [found.name for found in client.list_job_templates()] == ["nightly"]
    assert lake.may("admin1", "get", "job_template:test/nightly")
    assert client.delete_job_template("nightly") is True
    assert client.list_job_templates() == []
