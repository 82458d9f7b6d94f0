"""Random rights on two tables of Iceberg, and statements about them with the rows of `trino/476` that each takes."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping

from privtab import Embedded

CATALOG, SCHEMA, TABLES, COLUMNS = "lake", "gen", ("a", "b"), ("k", "n")
PLACE = f"{CATALOG}/{SCHEMA}"
MADE = (f"CREATE SCHEMA {CATALOG}.{SCHEMA}", *(f"CREATE TABLE {CATALOG}.{SCHEMA}.{t} (k int, n int)" for t in TABLES))
USERS = 3
"""Users of each seed."""
PRIVILEGES: Mapping[str, tuple[str, ...]] = {
    f"schema:{PLACE}": ("SHOW", "SELECT", "INSERT", "UPDATE", "DELETE", "CREATE", "ALTER", "EXECUTE"),
    **{f"table:{PLACE}/{t}": ("SHOW", "SELECT", "INSERT", "UPDATE", "DELETE", "ALTER", "EXECUTE") for t in TABLES},
    **{f"column:{PLACE}/{t}/{c}": ("SELECT", "SELECT", "UPDATE") for t in TABLES for c in COLUMNS},
}
TABLE, OTHER = f"table:{PLACE}/{{t}}", f"table:{PLACE}/{{o}}"
COLUMN, OTHERS = f"column:{PLACE}/{{t}}/", f"column:{PLACE}/{{o}}/"
READ, UPDATE = "SelectFromColumns", "UpdateTableColumns"
STATEMENTS: Mapping[str, tuple[tuple[str, str], ...]] = {
    "SELECT k FROM {t}": ((READ, COLUMN + "k"),),
    "SELECT * FROM {t}": ((READ, COLUMN + "k"), (READ, COLUMN + "n")),
    "SELECT count(*) FROM {t}": ((READ, TABLE),),
    "SELECT 1 FROM {t} WHERE n = 10": ((READ, COLUMN + "n"),),
    "EXPLAIN SELECT n FROM {t}": ((READ, COLUMN + "n"),),
    "WITH w AS (SELECT n FROM {t}) SELECT 1 FROM w": ((READ, COLUMN + "n"),),
    "SELECT x.k FROM {t} AS x JOIN {o} AS y ON x.k = y.n": ((READ, COLUMN + "k"), (READ, OTHERS + "n")),
    "INSERT INTO {t} (k, n) VALUES (3, 30)": (("InsertIntoTable", TABLE),),
    "INSERT INTO {t} SELECT k, n FROM {o} WHERE k < 0": (
        ("InsertIntoTable", TABLE),
        (READ, OTHERS + "k"),
        (READ, OTHERS + "n"),
    ),
    "UPDATE {t} SET n = 1": ((UPDATE, COLUMN + "n"),),
    "UPDATE {t} SET k = 1, n = 2": ((UPDATE, COLUMN + "k"), (UPDATE, COLUMN + "n")),
    "DELETE FROM {t}": (("DeleteFromTable", TABLE),),
    "TRUNCATE TABLE {t}": (("TruncateTable", TABLE),),
    "SHOW COLUMNS FROM {t}": (("ShowColumns", TABLE),),
    "SHOW CREATE TABLE {t}": (("ShowCreateTable", TABLE),),
    "COMMENT ON TABLE {t} IS 'x'": (("SetTableComment", TABLE),),
    "COMMENT ON COLUMN {t}.n IS 'x'": (("SetColumnComment", TABLE),),
    "ALTER TABLE {t} SET PROPERTIES format_version = 2": (("SetTableProperties", TABLE),),
    "ALTER TABLE {t} EXECUTE optimize": (
        ("ExecuteTableProcedure", f"table_procedure:{PLACE}/{{t}}/OPTIMIZE"),
        (READ, TABLE),
    ),
}
"""What each takes beside what every statement does: (row, entity). `{t}` and `{o}` are the tables."""
ALWAYS = (("ExecuteQuery", "server:"), ("AccessCatalog", f"catalog:{CATALOG}"))


def users(seed: int) -> list[str]:
    """The users of a seed."""
    return [f"s{seed}u{number}" for number in range(USERS)]


def rights(seed: int) -> Iterator[tuple[str, str, str, str]]:
    """Random grants for the users of a seed: (user, effect, privilege, entity)."""
    dice = random.Random(seed)
    for user in users(seed):
        for _ in range(dice.randrange(1, 9)):
            entity = dice.choice(list(PRIVILEGES))
            effect = "deny" if dice.random() < 0.2 else "allow"
            yield user, effect, dice.choice(PRIVILEGES[entity]), entity


def questions(seed: int) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    """Statements of the users of a seed with the rows that each takes: (user, statement, rows)."""
    for user in users(seed):
        for text, rows in STATEMENTS.items():
            for table, other in (TABLES, TABLES[::-1]):
                full = {name: f"{CATALOG}.{SCHEMA}.{of}" for name, of in (("t", table), ("o", other))}
                needed = [(row, entity.format(t=table, o=other)) for row, entity in (*ALWAYS, *rows)]
                yield user, text.format(**full), needed


def allowed(table: Embedded, user: str, rows: list[tuple[str, str]]) -> bool:
    """Whether the table allows all rows to a user."""
    return all(table.check(user, row, entity) for row, entity in rows)
