"""What an expert would write in Python for a single operation, with dictionaries and bit masks. Nothing here imports privtab."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

QUESTION = ("USE_CATALOG", "USE_SCHEMA", "SELECT_TABLE")


class Masks:
    """Decides whether a user may select from a table. The roles of a user are bits of a number, as are the holders of a privilege."""

    def __init__(self, grants: Iterable[tuple[str, str, str, str]], roles: Mapping[str, Iterable[str]]) -> None:
        """`grants`: (role, `allow` or `deny`, privilege, path). `roles`: all roles of each user, including those of groups."""
        numbers: dict[str, int] = {}
        self._allowed: dict[str, dict[str, int]] = {privilege: {} for privilege in QUESTION}
        self._denied: dict[str, dict[str, int]] = {privilege: {} for privilege in QUESTION}
        for role, effect, privilege, path in grants:
            bit = 1 << numbers.setdefault(role, len(numbers))
            if privilege in QUESTION:
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
