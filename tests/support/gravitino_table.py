"""The tables of Apache Gravitino's access control, as read from its documents: for each line the smallest sufficient sets.

Nothing here is taken from the policy files. 1.1.0 is written out; of the later versions stand here the lines that are new or
say something else, and where the others went.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping

from privtab.ir.canonical import MinimalSets
from privtab.ir.names import atom_text
from privtab.ir.nodes import Program, Rule

LOADABLE = ("metalake", "catalog", "schema", "table", "topic", "fileset", "model")
GRANTABLE = (*LOADABLE, "tag", "policy", "job_template")
OWNED = (*GRANTABLE, "role", "job")

# Notation: `|` between sets, blanks between atoms. `M C S` own the metalake, catalog, schema; `O` owns the entity itself;
# `UC` is USE_CATALOG (catalog), `US` is USE_SCHEMA (schema), `P@t` is P (t); `x.` before one of them: of the object in
# `with`, here a catalog; `P to target`: O and P, and both schemas can be loaded. `in` is membership of the metalake, which every set below has beside what is written.
CATALOG = "M | C | UC"
SCHEMA = "M | C | UC S | UC US"
OWNED_SCHEMA = "M | C | UC S"
OWNED_LEAF = "M | C | UC S | UC US O"
ADMIN = "M | O"

Line = tuple[int, str, str, str, str | None]
"""Line, entity, operation, what the call takes, what an item of a listing takes (together with the call)."""

TABLE_1_1_0: tuple[Line, ...] = (
    (696, "metalake", "load", "in", None),
    (697, "metalake", "alter", "M", None),
    (698, "metalake", "drop", "M", None),
    (699, "catalog", "create", "CREATE_CATALOG@metalake | M", None),
    (700, "catalog", "alter", "M | C", None),
    (701, "catalog", "drop", "M | C", None),
    (702, "catalog", "list", "in", CATALOG),
    (703, "catalog", "load", CATALOG, None),
    (704, "schema", "create", "M | C | UC CREATE_SCHEMA@catalog", None),
    (705, "schema", "alter", OWNED_SCHEMA, None),
    (706, "schema", "drop", OWNED_SCHEMA, None),
    (707, "schema", "list", CATALOG, SCHEMA),
    (708, "schema", "load", SCHEMA, None),
    (709, "table", "create", OWNED_SCHEMA + " | UC US CREATE_TABLE@schema", None),
    (710, "table", "alter", OWNED_LEAF + " | UC US MODIFY_TABLE@table", None),
    (711, "table", "update_statistics", OWNED_LEAF + " | UC US MODIFY_TABLE@table", None),
    (712, "table", "drop_statistics", OWNED_LEAF + " | UC US MODIFY_TABLE@table", None),
    (713, "table", "update_partition_statistics", OWNED_LEAF + " | UC US MODIFY_TABLE@table", None),
    (714, "table", "drop_partition_statistics", OWNED_LEAF + " | UC US MODIFY_TABLE@table", None),
    (715, "table", "drop", OWNED_LEAF, None),
    (716, "table", "list", SCHEMA, OWNED_LEAF + " | UC US SELECT_TABLE@table | UC US MODIFY_TABLE@table"),
    (717, "table", "load", OWNED_LEAF + " | UC US SELECT_TABLE@table | UC US MODIFY_TABLE@table", None),
    (718, "table", "list_statistics", OWNED_LEAF + " | UC US SELECT_TABLE@table | UC US MODIFY_TABLE@table", None),
    (
        719,
        "table",
        "list_partition_statistics",
        OWNED_LEAF + " | UC US SELECT_TABLE@table | UC US MODIFY_TABLE@table",
        None,
    ),
    (720, "topic", "create", OWNED_SCHEMA + " | UC US CREATE_TOPIC@schema", None),
    (721, "topic", "alter", OWNED_LEAF + " | UC US PRODUCE_TOPIC@topic", None),
    (722, "topic", "drop", OWNED_LEAF, None),
    (723, "topic", "list", SCHEMA, OWNED_LEAF + " | UC US CONSUME_TOPIC@topic | UC US PRODUCE_TOPIC@topic"),
    (724, "topic", "load", OWNED_LEAF + " | UC US CONSUME_TOPIC@topic | UC US PRODUCE_TOPIC@topic", None),
    (725, "fileset", "create", OWNED_SCHEMA + " | UC US CREATE_FILESET@schema", None),
    (726, "fileset", "alter", OWNED_LEAF + " | UC US WRITE_FILESET@fileset", None),
    (727, "fileset", "drop", OWNED_LEAF, None),
    (728, "fileset", "list", SCHEMA, OWNED_LEAF + " | UC US READ_FILESET@fileset | UC US WRITE_FILESET@fileset"),
    (729, "fileset", "load", OWNED_LEAF + " | UC US READ_FILESET@fileset | UC US WRITE_FILESET@fileset", None),
    (730, "fileset", "list_files", OWNED_LEAF + " | UC US READ_FILESET@fileset | UC US WRITE_FILESET@fileset", None),
    (731, "model", "register", OWNED_SCHEMA + " | UC US REGISTER_MODEL@schema", None),
    (732, "model", "link_version", OWNED_LEAF + " | UC US USE_MODEL@model LINK_MODEL_VERSION@model", None),
    (733, "model", "alter", OWNED_LEAF, None),
    (734, "model", "drop", OWNED_LEAF, None),
    (735, "model", "list", SCHEMA, OWNED_LEAF + " | UC US USE_MODEL@model"),
    (736, "model", "load", OWNED_LEAF + " | UC US USE_MODEL@model", None),
    (737, "model", "list_versions", OWNED_LEAF + " | UC US USE_MODEL@model", None),
    (738, "model", "load_version", OWNED_LEAF + " | UC US USE_MODEL@model", None),
    (739, "model", "load_version_by_alias", OWNED_LEAF + " | UC US USE_MODEL@model", None),
    (740, "model", "delete_version", OWNED_LEAF, None),
    (741, "model", "alter_version", OWNED_LEAF, None),
    (742, "model", "delete_version_alias", OWNED_LEAF, None),
    (743, "user", "add", "MANAGE_USERS@metalake | M", None),
    (744, "user", "remove", "MANAGE_USERS@metalake | M", None),
    (745, "user", "get", "MANAGE_USERS@metalake | M | self", None),
    (746, "user", "list", "in", "MANAGE_USERS@metalake | M | self"),
    (747, "group", "add", "MANAGE_GROUPS@metalake | M", None),
    (748, "group", "remove", "MANAGE_GROUPS@metalake | M", None),
    (749, "group", "get", "MANAGE_GROUPS@metalake | M | in_group", None),
    (750, "group", "list", "in", "MANAGE_GROUPS@metalake | M | in_group"),
    (751, "role", "create", "CREATE_ROLE@metalake | M", None),
    (752, "role", "delete", ADMIN, None),
    (753, "role", "get", "MANAGE_GRANTS@metalake | M | O | held", None),
    (754, "role", "list", "in", "MANAGE_GRANTS@metalake | M | O | held"),
    (755, "role", "grant", "MANAGE_GRANTS@metalake | M", None),
    (756, "role", "revoke", "MANAGE_GRANTS@metalake | M", None),
    (760, "tag", "list", "in", "APPLY_TAG@tag | M | O"),
    (761, "tag", "create", "CREATE_TAG@metalake | M", None),
    (762, "tag", "get", "APPLY_TAG@tag | M | O", None),
    (763, "tag", "alter", ADMIN, None),
    (764, "tag", "delete", ADMIN, None),
    (765, "tag", "list_objects", "APPLY_TAG@tag | M | O", "(APPLY_TAG@tag | M | O) x.load"),
    (766, "tag", "list_for_object", "x.load", "(APPLY_TAG@tag | M | O) x.load"),
    (767, "tag", "get_for_object", "(APPLY_TAG@tag | M | O) x.load", None),
    (768, "tag", "associate", "(APPLY_TAG@tag) x.load", None),
    (769, "policy", "list", "in", "APPLY_POLICY@policy | M | O"),
    (770, "policy", "create", "CREATE_POLICY@metalake | M", None),
    (771, "policy", "get", "APPLY_POLICY@policy | M | O", None),
    (772, "policy", "alter", ADMIN, None),
    (773, "policy", "set", ADMIN, None),
    (773, "policy", "enable", ADMIN, None),
    (773, "policy", "disable", ADMIN, None),
    (774, "policy", "delete", ADMIN, None),
    (775, "policy", "list_objects", "APPLY_POLICY@policy | M | O", "(APPLY_POLICY@policy | M | O) x.load"),
    (776, "policy", "associate", "(APPLY_POLICY@policy) x.load", None),
    (777, "policy", "list_for_object", "x.load", "(APPLY_POLICY@policy | M | O) x.load"),
    (778, "policy", "get_for_object", "(APPLY_POLICY@policy | M | O) x.load", None),
    (779, "job_template", "list", "in", "USE_JOB_TEMPLATE@job_template | M | O"),
    (780, "job_template", "register", "REGISTER_JOB_TEMPLATE@metalake | M", None),
    (781, "job_template", "get", "USE_JOB_TEMPLATE@job_template | M | O", None),
    (782, "job_template", "delete", ADMIN, None),
    (783, "job_template", "alter", ADMIN, None),
    (784, "job", "list", "in", ADMIN),
    (785, "job", "run", "M | RUN_JOB@metalake USE_JOB_TEMPLATE@template", None),
    (786, "job", "get", ADMIN, None),
    (787, "job", "cancel", ADMIN, None),
    *((757, t, "grant_privilege", "MANAGE_GRANTS@metalake | O", None) for t in GRANTABLE),
    *((758, t, "revoke_privilege", "MANAGE_GRANTS@metalake | O", None) for t in GRANTABLE),
    *((759, t, "set_owner", "O", None) for t in OWNED),
    (788, "metalake", "get_credential", "in", None),
    (788, "catalog", "get_credential", CATALOG, None),
    (788, "schema", "get_credential", SCHEMA, None),
    (788, "table", "get_credential", OWNED_LEAF + " | UC US SELECT_TABLE@table | UC US MODIFY_TABLE@table", None),
    (788, "topic", "get_credential", OWNED_LEAF + " | UC US CONSUME_TOPIC@topic | UC US PRODUCE_TOPIC@topic", None),
    (
        788,
        "fileset",
        "get_credential",
        OWNED_LEAF + " | UC US READ_FILESET@fileset | UC US WRITE_FILESET@fileset",
        None,
    ),
    (788, "model", "get_credential", OWNED_LEAF + " | UC US USE_MODEL@model", None),
)


def later(table: Iterable[Line], moved: Mapping[int, int], new: Iterable[Line]) -> tuple[Line, ...]:
    """The next version of a table: from each line in `moved` on, how far the lines went down, and the new rows.

    A new row takes the place of the one for the same operation.
    """
    starts, new = sorted(moved), tuple(new)
    replaced = {line[1:3] for line in new}
    unreplaced = (line for line in table if line[1:3] not in replaced)
    return (
        *(
            (n + moved[starts[bisect.bisect(starts, n) - 1]], entity, operation, call, item)
            for n, entity, operation, call, item in unreplaced
        ),
        *new,
    )


VIEW = OWNED_LEAF + " | UC US SELECT_VIEW@view"
FUNCTION = OWNED_LEAF + " | UC US EXECUTE_FUNCTION@function | UC US MODIFY_FUNCTION@function"
MODIFIED_FUNCTION = OWNED_LEAF + " | UC US MODIFY_FUNCTION@function"
INSTRUMENTS = ("tag", "policy", "job_template")
"""What MANAGE_GRANTS can't be granted on, though other privileges can."""

TABLE_1_2_0 = later(
    TABLE_1_1_0,
    {695: 565, 711: 566, 720: 572, 759: 573},
    (
        (1276, "table", "rename_across_schema", "CREATE_TABLE@target to target", None),
        (1286, "view", "create", OWNED_SCHEMA + " | UC US CREATE_VIEW@schema", None),
        (1287, "view", "alter", OWNED_LEAF, None),
        (1288, "view", "rename_across_schema", "CREATE_VIEW@target to target", None),
        (1289, "view", "drop", OWNED_LEAF, None),
        (1290, "view", "list", SCHEMA, VIEW),
        (1291, "view", "load", VIEW, None),
        *((1329, t, "grant_privilege", "MANAGE_GRANTS@metalake | M | O", None) for t in (*GRANTABLE, "view")),
        *((1330, t, "revoke_privilege", "MANAGE_GRANTS@metalake | M | O", None) for t in (*GRANTABLE, "view")),
        (1331, "role", "override_privilege", "MANAGE_GRANTS@metalake | M", None),
        (1332, "view", "set_owner", "O", None),
        (1361, "view", "get_credential", VIEW, None),
    ),
)

TABLE_1_3_0 = later(
    TABLE_1_2_0,
    {1260: 15, 1315: 20},
    (
        (1330, "function", "register", OWNED_SCHEMA + " | UC US REGISTER_FUNCTION@schema", None),
        (1331, "function", "alter", MODIFIED_FUNCTION, None),
        (1332, "function", "drop", MODIFIED_FUNCTION, None),
        (1333, "function", "list", SCHEMA, FUNCTION),
        (1334, "function", "load", FUNCTION, None),
        *(
            (line, t, operation, f"MANAGE_GRANTS@{'metalake' if t in INSTRUMENTS else t} | M | O", None)
            for line, operation in ((1349, "grant_privilege"), (1350, "revoke_privilege"))
            for t in (*GRANTABLE, "view", "function")
        ),
        (1352, "function", "set_owner", "O", None),
        (1381, "function", "get_credential", FUNCTION, None),
    ),
)

Sets = frozenset[frozenset[str]]


def atom(token: str, entity: str) -> str:
    """The text of an atom in the notation above."""
    short = {
        "in": "member (metalake)",
        "M": "owner (metalake)",
        "C": "owner (catalog)",
        "S": "owner (schema)",
        "O": f"owner ({entity})",
        "UC": "USE_CATALOG (catalog)",
        "US": "USE_SCHEMA (schema)",
        "self": "self",
        "held": "holds (role)",
        "in_group": "member (group)",
    }
    if token in short:
        return short[token]
    privilege, _, type_ = token.partition("@")
    return f"{privilege} ({type_})"


def sets(text: str, entity: str) -> Sets:
    """The sets in the notation above, each with the membership that the gate asks for."""
    if text.endswith(" to target"):
        return renamed(text.removesuffix(" to target"), entity)
    own, loads_object, _ = text.partition("x.load")
    ways = own.strip().strip("()")
    read = {frozenset({"member (metalake)", *(atom(t, entity) for t in way.split())}) for way in ways.split("|")}
    if not loads_object:
        return frozenset(read)
    catalog = ("owner (object.metalake)", "owner (object)", "USE_CATALOG (object)")
    return frozenset(way | {"member (object.metalake)", how} for way in read for how in catalog)


def renamed(privilege: str, entity: str) -> Sets:
    """Who owns the entity, may load its schema and the target, and has a privilege there."""
    target_sets = (
        {"owner (target.metalake)"},
        {"owner (target.catalog)"},
        {"USE_CATALOG (target.catalog)", "owner (target)"},
        {"USE_CATALOG (target.catalog)", "USE_SCHEMA (target)"},
    )
    more = {f"owner ({entity})", "member (target.metalake)", atom(privilege, entity)}
    return frozenset(source_set | target | more for source_set in sets(SCHEMA, entity) for target in target_sets)


def texts(program: Program, rule: Rule, found: MinimalSets, types: Mapping[str, str]) -> Sets:
    """Minimal sets as texts."""
    return frozenset(frozenset(atom_text(a, rule, types) for a in way) for way in found)
