"""`privtab store grant`, `revoke`, `assign`, `unassign` and `own`: one change of a store, as the policy allows."""

from __future__ import annotations

from typing import Annotated

from privtab.cli._ask import entity
from privtab.cli._parameters import argument, option, with_options
from privtab.cli._store_session import (
    RequestedChange,
    ResourceOption,
    ScopeOption,
    Settings,
    SinceOption,
    UntilOption,
    carry_out,
    found,
    principal,
    resource_of,
    session,
    window,
)

PrivilegeArgument = Annotated[str, argument("PRIVILEGE", "Privilege, or set of privileges.")]
RoleArgument = Annotated[str, argument("ROLE", "Name or path of a role.")]
ToOption = Annotated[str, option("--to PRINCIPAL", "user:NAME, group:NAME or role:NAME.")]
FromOption = Annotated[str, option("--from PRINCIPAL", "user:NAME, group:NAME or role:NAME.")]


@with_options
def grant(
    privilege: PrivilegeArgument,
    on: Annotated[str, argument("TYPE:PATH", "Entity that it is granted on.")],
    to: ToOption,
    deny: Annotated[bool, option("--deny", "Deny the privilege instead.")] = False,
    since: SinceOption = None,
    until: UntilOption = None,
    *,
    settings: Settings,
) -> None:
    """Grant a privilege on an entity, or deny it, as the policy allows.

    Exits with 1 if the policy denies it, a row is wrong, or another change came first.

    Example:
      privtab store grant grants.db SELECT table:l/web/t --to role:l/reader --as ann -p lake.yaml --dry-run
      privtab store grant grants.db SELECT schema:l/web --to user:ben --deny --as ann -p lake.yaml
      privtab store grant https://grants.example SELECT table:l/web/t --to group:hr --until 2026-12-31T00:00Z
    """
    row = {
        "grantee": principal(to, "--to"),
        "effect": "deny" if deny else "allow",
        "privilege": privilege,
        "entity": str(entity(on)),
        **window(since, until),
    }
    opened = session(settings)
    carry_out(settings, opened, RequestedChange(add={"grants": [row]}))


@with_options
def revoke(
    privilege: PrivilegeArgument,
    on: Annotated[str, argument("TYPE:PATH", "Entity that it was granted on.")],
    from_: FromOption,
    deny: Annotated[bool, option("--deny", "Take back a denial instead.")] = False,
    *,
    settings: Settings,
) -> None:
    """Take back a privilege on an entity, or a denial, whatever time it holds for.

    Exits with 1 if the policy denies it, there is no such grant, or another change came first.

    Example:
      privtab store revoke grants.db SELECT table:l/web/t --from role:l/reader --as ann -p lake.yaml --dry-run
      privtab store revoke https://grants.example SELECT schema:l/web --from user:ben --deny --yes
    """
    cells = {
        "grantee": principal(from_, "--from"),
        "effect": "deny" if deny else "allow",
        "privilege": privilege,
        "entity": str(entity(on)),
    }
    opened = session(settings)
    rows = found(opened.rows("grants", **cells), f"{privilege} on {on} for {cells['grantee']}")
    carry_out(settings, opened, RequestedChange(remove={"grants": rows}))


@with_options
def assign(
    role: RoleArgument,
    to: ToOption,
    scope: ScopeOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    resource: ResourceOption = None,
    *,
    settings: Settings,
) -> None:
    """Give a role to a user, a group or a role, as the policy allows.

    Exits with 1 if the policy denies it, a row is wrong, or another change came first.

    Example:
      privtab store assign grants.db l/reader --to user:ben --as ann -p lake.yaml --dry-run
      privtab store assign grants.db l/reader --to group:hr --as ann -p lake.yaml
      privtab store assign https://grants.example operator --to user:ben --scope instance:d/i --yes
    """
    row = {
        "principal": principal(to, "--to"),
        "role": role.removeprefix("role:"),
        **({} if scope is None else {"scope": str(entity(scope))}),
        **window(since, until),
    }
    opened = session(settings)
    carry_out(settings, opened, RequestedChange(add={"assignments": [row]}, resource=resource_of(resource)))


@with_options
def unassign(
    role: RoleArgument,
    from_: FromOption,
    scope: ScopeOption = None,
    resource: ResourceOption = None,
    *,
    settings: Settings,
) -> None:
    """Take back a role from a user, a group or a role, whatever time it holds for.

    Exits with 1 if the policy denies it, there is no such assignment, or another change came first.

    Example:
      privtab store unassign grants.db l/reader --from user:ben --as ann -p lake.yaml --dry-run
      privtab store unassign https://grants.example l/reader --from group:hr
    """
    cells = {"principal": principal(from_, "--from"), "role": role.removeprefix("role:")}
    cells |= {} if scope is None else {"scope": str(entity(scope))}
    opened = session(settings)
    rows = [row for row in opened.rows("assignments", **cells) if (scope is None) == ("scope" not in row)]
    held = f"role:{cells['role']} for {cells['principal']}"
    carry_out(
        settings, opened, RequestedChange(remove={"assignments": found(rows, held)}, resource=resource_of(resource))
    )


@with_options
def own(
    on: Annotated[str, argument("TYPE:PATH", "Entity that is owned.")],
    to: Annotated[str, option("--to PRINCIPAL", "The only owner from now on.")],
    *,
    settings: Settings,
) -> None:
    """Set the owner of an entity: the owners that it has lose it.

    Exits with 1 if the policy denies it, a row is wrong, or another change came first.

    Example:
      privtab store own grants.db schema:l/web --to user:ben --as ann -p lake.yaml --authorise owners=grant --dry-run
      privtab store own https://grants.example table:m/c/s/t --to user:ben --yes
    """
    row = {"entity": str(entity(on)), "owner": principal(to, "--to")}
    opened = session(settings)
    owners = [other for other in opened.rows("owners", entity=row["entity"]) if other != row]
    remove = {"owners": owners} if owners else {}
    carry_out(settings, opened, RequestedChange(add={"owners": [row]}, remove=remove))
