"""OPA's strict check takes what each small policy compiles to, also where a part of the language is not used at all."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from privtab import pipeline
from privtab.pipeline import policy_artifacts, wasm_modules

ONE_TYPE = """
entities: {thing: }
privileges: [READ]
tables: {thing: {open: READ (thing)}}
"""
"""The smallest: one type, one privilege, one row."""
NESTED = "entities: {top: {mid: {low: }}}\n"
PEOPLE = "entities: {top: {low: , user: , group: , role: }}\n"
POLICIES = {
    "one_type": ONE_TYPE,
    "one_type_inherits": ONE_TYPE + "semantics: {inheritance: down}\n",
    "one_type_denies": ONE_TYPE + "semantics: {deny: overrides}\n",
    "one_type_owned": ONE_TYPE + "semantics: {owner: {kinds: [user]}}\n",
    "one_type_owner_holds": ONE_TYPE + "semantics: {owner: {kinds: [user], holds: ALL}}\nsets: {ALL: [READ]}\n",
    "one_type_groups_of_requests": ONE_TYPE + "semantics: {groups: [state, request]}\n",
    "one_type_only_groups_of_requests": ONE_TYPE + "semantics: {groups: [request]}\n",
    "one_type_role": ONE_TYPE + "roles: {reader: {grants: {thing: [READ]}}}\n",
    "one_type_empty_role": ONE_TYPE + "roles: {reader: {grants: {}}}\n",
    "one_type_scoped_role": ONE_TYPE + "roles: {reader: {scope: thing, grants: {thing: [READ]}}}\n",
    "one_type_unused_set": ONE_TYPE + "sets: {ALL: [READ]}\n",
    "one_type_gate": ONE_TYPE + "semantics: {gate: member (thing)}\n",
    "two_roots": "entities: {one: , two: }\nprivileges: [READ]\ntables: {one: {open: READ (one)}, two: {open: READ (two)}}\n",
    "privilege_not_used": "entities: {thing: }\nprivileges: [READ]\ntables: {thing: {open: anyone}}\n",
    "no_privileges": "entities: {thing: }\nprivileges: []\ntables: {thing: {open: anyone}}\n",
    "admins_alone": "entities: {thing: }\nprivileges: [READ]\ntables: {thing: {open: service admin}}\n",
    "members_alone": "entities: {thing: }\nprivileges: [READ]\ntables: {thing: {open: member (thing)}}\n",
    "owners_alone": "entities: {thing: }\nprivileges: [READ]\nsemantics: {owner: {kinds: [user]}}\n"
    "tables: {thing: {open: owner (thing)}}\n",
    "no_rows": "entities: {thing: }\nprivileges: [READ]\ntables: {}\n",
    "core_alone": "entities: {thing: {part: }}\nprivileges: [READ]\ncore: {open: READ (entity)}\n",
    "any_alone": "entities: {thing: {part: }}\nprivileges: [READ]\ntables: {any: {open: READ (entity)}}\n",
    "flag": "entities: {thing: }\nprivileges: [READ]\ntables: {thing: {open: READ (thing) when strict}}\n",
    "required_flag": "entities: {thing: }\nprivileges: [READ]\n"
    "tables: {thing: {open: {requires: READ (thing) when strict, flags: {strict: required}}}}\n",
    "listing_alone": "entities: {thing: }\nprivileges: [READ]\ntables: {thing: {list: {each: READ (thing)}}}\n",
    "create_at_the_root": "entities: {thing: }\nprivileges: [MAKE]\n"
    "tables: {thing: {create: {requires: service admin, grants: MAKE (thing)}}}\n",
    "create_below": NESTED
    + "privileges: [MAKE]\ntables: {low: {create: {requires: MAKE (mid), grants: MAKE (low)}}}\n",
    "row_of_the_root_alone": NESTED + "privileges: [READ]\ntables: {top: {open: READ (top)}}\n",
    "row_of_the_leaf_alone": NESTED + "privileges: [READ]\ntables: {low: {open: READ (low)}}\n",
    "row_looks_above": NESTED + "privileges: [READ]\ntables: {low: {open: READ (top)}}\n",
    "row_calls_a_row": NESTED + "privileges: [READ]\ntables: {mid: {open: READ (mid)}, low: {open: can open (mid)}}\n",
    "single_type": "entities: {top: {config: }}\ntypes: {config: {single: true}}\nprivileges: [READ]\n"
    "tables: {config: {open: READ (config)}}\n",
    "single_type_below_a_single_type": "entities: {top: {config: {part: }}}\n"
    "types: {config: {single: true}, part: {single: true}}\nprivileges: [READ]\n"
    "tables: {part: {open: READ (part)}, top: {open: READ (part)}}\n",
    "with_alone": NESTED + "privileges: [READ]\ntables: {top: {copy: {with: {to: low}, requires: READ (to)}}}\n",
    "with_any": NESTED + "privileges: [READ]\ntables: {top: {copy: {with: {to: any}, requires: READ (to)}}}\n",
    "with_not_looked_at": NESTED + "privileges: [READ]\ntables: {top: {copy: {with: {to: low}, requires: anyone}}}\n",
    "with_of_the_only_type": "entities: {thing: }\nprivileges: [READ]\n"
    "tables: {thing: {copy: {with: {to: thing}, requires: READ (to)}}}\n",
    "self_alone": PEOPLE + "privileges: [READ]\ntables: {user: {get: self}}\n",
    "group_alone": PEOPLE + "privileges: [READ]\ntables: {group: {get: member (group)}}\n",
    "role_alone": PEOPLE + "privileges: [READ]\ntables: {role: {get: holds (role)}}\n",
    "user_is_the_only_type": "entities: {user: }\nprivileges: [READ]\ntables: {user: {get: self}}\n",
}
"""Each without its first lines. Rows that look at nothing of the state are among them, and states that nothing looks at."""


def written(text: str, name: str, folder: Path) -> None:
    """Compile a policy for a whole state, for one in shards and for Wasm, each into a folder that OPA can be given."""
    path = folder / f"{name}.yaml"
    path.write_text(f"privtab: 1\nsystem: {name}\nversion: '1'\n{text}", encoding="utf-8")
    program = pipeline.load_program(path)
    rendered = {
        name: policy_artifacts(program).modules,
        f"{name}_sharded": policy_artifacts(program, f"{name}_sharded", sharded=True).modules,
        f"{name}_wasm": wasm_modules(program, f"{name}_wasm"),
    }
    for modules in rendered.values():
        for module, rego in modules.items():
            file = folder / "rego" / module
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(rego, encoding="utf-8")


@pytest.mark.slow
def test_rego_of_odd_policies_passes_the_strict_check(opa_binary: Path, tmp_path: Path) -> None:
    for name, text in POLICIES.items():
        # A folder for each: what OPA does for a check grows with the square of the number of modules.
        (tmp_path / name).mkdir()
        written(text, name, tmp_path / name)
    checks = [("check", "--strict", tmp_path / name / "rego") for name in POLICIES]
    for command in (*checks, ("fmt", "--fail", "--list", tmp_path)):
        ran = subprocess.run([opa_binary, *command], capture_output=True, text=True, check=False)
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, "", ""), command
