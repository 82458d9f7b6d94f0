"""What an expert would write in Python for two operations, with dictionaries and bit masks. Nothing here imports privtab."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

QUESTION = ("USE_CATALOG", "USE_SCHEMA", "SELECT_TABLE")
LOADING = (*QUESTION, "MODIFY_TABLE")


class Masks:
    """Decides whether a user may select from a table, or load it. The roles of a user are bits of a number, as are those with a privilege."""

    def __init__(
        self,
        grants: Iterable[tuple[str, str, str, str]],
        roles: Mapping[str, Iterable[str]],
        *,
        members: Collection[str] = (),
        owners: Mapping[str, str] | None = None,
    ) -> None:
        """`grants`: (role, `allow` or `deny`, privilege, path). `roles`: all roles of each user, including those of groups.

        `members` and `owners` (by schema) count for `load` alone.
        """
        numbers: dict[str, int] = {}
        self._members = members
        self._owners = owners or {}
        self._allowed: dict[str, dict[str, int]] = {privilege: {} for privilege in LOADING}
        self._denied: dict[str, dict[str, int]] = {privilege: {} for privilege in LOADING}
        for role, effect, privilege, path in grants:
            bit = 1 << numbers.setdefault(role, len(numbers))
            if privilege in LOADING:
                of_privilege = (self._allowed if effect == "allow" else self._denied)[privilege]
                of_privilege[path] = of_privilege.get(path, 0) | bit
        self._masks = {user: sum(1 << numbers[r] for r in own if r in numbers) for user, own in roles.items()}

    def allow(self, user: str, table: str) -> bool:
        """Whether all three privileges are granted and none is denied."""
        metalake, catalog, schema, _ = table.split("/")
        catalog = f"{metalake}/{catalog}"
        schema = f"{catalog}/{schema}"
        own = self._masks.get(user, 0)
        all_allowed, all_denied = self._allowed, self._denied
        for privilege, places in (
            ("USE_CATALOG", (metalake, catalog)),
            ("USE_SCHEMA", (metalake, catalog, schema)),
            ("SELECT_TABLE", (metalake, catalog, schema, table)),
        ):
            allowed = denied = 0
            of_allowed, of_denied = all_allowed[privilege], all_denied[privilege]
            for place in places:
                allowed |= of_allowed.get(place, 0)
                denied |= of_denied.get(place, 0)
            if not own & allowed or own & denied:
                return False
        return True

    def load(self, user: str, table: str) -> bool:
        """The row of the policy: a member who may use the catalog, and owns the schema or may use it and select from or modify the table."""
        metalake, catalog, schema, _ = table.split("/")
        catalog = f"{metalake}/{catalog}"
        schema = f"{catalog}/{schema}"
        own = self._masks.get(user, 0)
        whole = (metalake, catalog, schema, table)
        if user not in self._members or not self._holds(own, "USE_CATALOG", (metalake, catalog)):
            return False
        return self._owners.get(schema) == user or (
            self._holds(own, "USE_SCHEMA", (metalake, catalog, schema))
            and (self._holds(own, "SELECT_TABLE", whole) or self._holds(own, "MODIFY_TABLE", whole))
        )

    def _holds(self, own: int, privilege: str, places: tuple[str, ...]) -> bool:
        allowed = denied = 0
        of_allowed, of_denied = self._allowed[privilege], self._denied[privilege]
        for place in places:
            allowed |= of_allowed.get(place, 0)
            denied |= of_denied.get(place, 0)
        return bool(own & allowed) and not own & denied
