"""Generated modules: right calls pass mypy and answer as the client does, wrong ones fail in mypy."""

from __future__ import annotations

import asyncio
import importlib.util
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import filtered_policy
import pytest
import studio_policy
from checkout import PYTHONPATH, ROOT
from mypy import api
from shop_policy import POLICY

from privtab import AsyncClient, Entity
from privtab.backends.stubs import render
from privtab.bundle.pack import state_bundle
from privtab.client.embedded import Embedded
from privtab.ir.serialise import vocabulary
from privtab.opa.server import OpaServer
from privtab.pipeline import load_program, policy_bundle
from privtab.request import Request
from privtab.state.nodes import Grant, State

RIGHT = """\
from shop_names import AsyncShop, Item, ItemOperation, Shelf, Shop, Store
from privtab import AsyncClient, Client, Decision

shop = Shop(Client("http://127.0.0.1:8181"))
answer: bool = shop.check("ann", "read", Item("s/a/x"))
named: bool = shop.check("ann", ItemOperation.READ, Item.of("s", "a", "x"))
moved: Decision = shop.require("ann", "move", Item("s/a/x"), with_={"to": Shelf("s/b")})
burnt: Decision = shop.decide("ann", "burn", Item("s/a/x"), flags=["really"])
effects: tuple[str, ...] = shop.effects("ann", "create", Shelf.within("s"))
items: list[Shelf] = shop.visible("ann", "list", [Shelf("s/a"), Shelf("s/b")])
other: Decision = shop.require("ann", "move", Item("s/a/x"), with_={"to": Item("s/b/y")})


async def ask(client: AsyncClient) -> list[Item]:
    asking = AsyncShop(client)
    found: Decision = await asking.require("ann", "open", Store("s"))
    return await asking.filter("ann", "read", [Item("s/a/x")])
"""
WRONG = [
    ('shop.check("ann", "raed", Item("s/a/x"))', "No overload variant"),
    ('shop.check("ann", "read", Shelf("s/a"))', "No overload variant"),
    ('shop.check("ann", ItemOperation.READ, Shelf("s/a"))', "No overload variant"),
    ('shop.check("ann", "read", "item:s/a/x")', "No overload variant"),
    ('shop.check("ann", "move", Item("s/a/x"))', "No overload variant"),
    ('shop.check("ann", "move", Item("s/a/x"), with_={"too": Shelf("s/b")})', "No overload variant"),
    ('shop.check("ann", "move", Item("s/a/x"), with_={"to": Store("s")})', "No overload variant"),
    ('shop.check("ann", "read", Item("s/a/x"), with_={"to": Shelf("s/b")})', "No overload variant"),
    ('shop.check("ann", "burn", Item("s/a/x"), flags=["realy"])', "No overload variant"),
    ('shop.check("ann", "read", Item("s/a/x"), groups=["x"])', "No overload variant"),
    ('shop.visible("ann", "list", [Item("s/a/x")])', "No overload variant"),
    ('Item.of("s", "x")', "Missing positional argument"),
    ("ItemOperation.RAED", "has no attribute"),
]


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the module of a small policy."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / "shop.yaml").write_text(POLICY, encoding="utf-8")
    (folder / "shop_names.py").write_text(render(load_program(folder / "shop.yaml")), encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What mypy knows of privtab's own modules, for all that asks it."""
    return tmp_path_factory.mktemp("mypy")


def mypy(folder: Path, name: str, text: str, cache: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What mypy says, strict, of a file beside the module."""
    (folder / name).write_text(text, encoding="utf-8")
    monkeypatch.setenv("MYPYPATH", f"{folder}:{ROOT / 'compiler'}")
    monkeypatch.chdir(folder)
    out, err, _ = api.run(["--strict", "--no-error-summary", "--cache-dir", str(cache), name])
    assert not err
    return out.splitlines()


@pytest.mark.slow
@pytest.mark.xdist_group("mypy")
def test_right_calls_pass_and_each_wrong_one_fails(
    generated: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert mypy(generated, "right.py", RIGHT, cache, monkeypatch) == []
    head = RIGHT.partition("answer:")[0].replace("AsyncShop, ", "").replace("AsyncClient, ", "")
    output = mypy(generated, "wrong.py", head + "\n".join(call for call, _ in WRONG) + "\n", cache, monkeypatch)
    first = head.count("\n") + 1
    for number, (call, says) in enumerate(WRONG, first):
        errors = [line for line in output if line.startswith(f"wrong.py:{number}: error: ")]
        assert any(says in error for error in errors), (call, output)


@pytest.mark.slow
@pytest.mark.xdist_group("mypy")
@pytest.mark.parametrize("policy", ["cdap/final", "gravitino/1.1.0", "streams/teracloud"])
def test_the_modules_of_shipped_policies_pass_mypy(
    policy: str, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert mypy(tmp_path, "names.py", render(load_program(policy)), cache, monkeypatch) == []


def test_the_same_policy_gives_the_same_text_in_any_process(generated: Path) -> None:
    program = (
        "import sys; from privtab.pipeline import load_program; from privtab.backends.stubs import render;"
        "sys.stdout.write(render(load_program(sys.argv[1])))"
    )
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program, str(generated / "shop.yaml")],
            check=True,
            capture_output=True,
            text=True,
            env={"PYTHONPATH": PYTHONPATH, "PYTHONHASHSEED": seed},
        )
        assert done.stdout == (generated / "shop_names.py").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def bundles(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return studio_policy.write(tmp_path_factory.mktemp("studio"))


@pytest.fixture(scope="module")
def names(bundles: tuple[Path, Path]) -> Any:
    """The module of the studio, loaded."""
    return loaded(bundles[0].parent / "names.py", render(load_program(bundles[0].parent / "studio.yaml")))


def loaded(path: Path, text: str) -> Any:
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
    return module


def test_a_typed_client_answers_as_the_client_does(bundles: tuple[Path, Path], names: Any) -> None:
    with Embedded(*bundles) as client:
        typed = names.Studio(client)
        salaries, clicks, lab = names.Dataset("web/salaries"), names.Dataset.of("web", "clicks"), names.Project("lab")
        assert typed.check("ann", "read", salaries) is True
        assert typed.check("ben", names.DatasetOperation.READ, salaries) is False
        assert typed.decide("ben", "read", salaries).missing
        assert typed.effects("ann", "create", names.Dataset("web/new")) == ("become owner (dataset:web/new)",)
        assert typed.check("ann", "copy", clicks, with_={"to": lab}) is False
        assert typed.check("gus", "read", names.Dataset("lab/open"), groups=["guests"]) is True
        assert typed.visible("ben", "list", [clicks, salaries]) == [clicks]
        assert typed.filter("ben", "read", [clicks, salaries]) == [clicks]
        assert typed.check("ben", "list", names.Dataset.within("web")) is True


def test_a_typed_client_in_an_event_loop(bundles: tuple[Path, Path], names: Any) -> None:
    async def run(url: str) -> None:
        async with AsyncClient(url, system="studio") as client:
            typed = names.AsyncStudio(client)
            assert await typed.check("ann", "read", names.Dataset("web/salaries"))
            assert (await typed.require("ann", "copy", names.Dataset("web/x"), with_={"to": names.Project("web")})).rule
            clicks = names.Dataset("web/clicks")
            assert await typed.visible("ben", "list", [clicks, names.Dataset("web/salaries")]) == [clicks]

    with OpaServer(bundles) as opa:
        asyncio.run(run(opa.url))


def test_a_typed_entity_is_the_entity(names: Any) -> None:
    dataset = names.Dataset("web/x")
    assert dataset == Entity("dataset", "web/x") == dataset
    assert dataset != names.Project("web/x")
    assert len({dataset, Entity("dataset", "web/x")}) == 1
    assert repr(dataset) == "Dataset('web/x')"
    assert pickle.loads(pickle.dumps(dataset)) == dataset  # noqa: S301  (our own)
    assert names.Dataset.of("a/b", "c%") == Entity("dataset", "a%2Fb/c%25")
    assert names.Dataset.parse("dataset:web/x") == dataset
    with pytest.raises(ValueError, match="not a `dataset`"):
        names.Dataset.parse("project:web")


HEAD = 'privtab: 1\nversion: "1"\nprivileges: [READ]\n'
ODD: dict[str, str] = {
    "names that Python or the module has": (
        "system: final\nentities: {none: {literal: {class: }}, request: , a_1: , a1: }\n"
        "tables:\n  class: {raise: READ (none)}\n  a1: {x_1: READ (a1), x1: READ (a1), mro: READ (a1)}\n"
    ),
    "one operation": "system: one\nentities: {thing: }\ntables: {thing: {read: READ (thing)}}\n",
    "one operation with everything beside": (
        "system: one\nentities: {thing: {part: }}\nsemantics: {groups: [state, request]}\n"
        'tables: {thing: {join: {with: {class: [thing, part]}, requires: "READ (thing) and (READ (class) when if)"}}}\n'
    ),
    "no operation": "system: bare\nentities: {thing: }\n",
    "a version that is no name": "system: odd\nentities: {thing: }\ntables: {thing: {read: READ (thing)}}\n",
}


@pytest.mark.slow
@pytest.mark.xdist_group("mypy")
@pytest.mark.parametrize("what", ODD)
def test_odd_policies_give_modules_that_load(
    what: str, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = tmp_path / "odd.yaml"
    text = HEAD.replace('"1"', '"1 \\"x\\" \\\\ é"') if "version" in what else HEAD
    policy.write_text(text + ODD[what], encoding="utf-8")
    module = loaded(tmp_path / "odd_names.py", render(load_program(policy)))
    version: str = module.VERSION
    assert version == load_program(policy).version
    if "Python" in what:
        assert module.None_.TYPE == "none"
        assert module.Class.of("a", "b", class_="c").id == "a/b/c"
        assert (module.A1.TYPE, module.A1_.TYPE) == ("a_1", "a1")
        assert module.A1_Operation.MRO == "mro"
    assert mypy(tmp_path, "odd_names.py", render(load_program(policy)), cache, monkeypatch) == []


def test_a_type_that_nests_takes_the_names_of_all_its_levels(tmp_path: Path) -> None:
    path = tmp_path / "lake.yaml"
    path.write_text(NESTED, encoding="utf-8")
    text = render(load_program(path))
    assert '"""A `table`: `catalog/namespace/…/table`."""' in text
    (tmp_path / "lake_names.py").write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("lake_names", tmp_path / "lake_names.py")
    assert spec is not None
    assert spec.loader is not None
    names = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(names)
    assert str(names.Table.of("c", ("a", "b/d"), "t")) == "table:c/a/b%2Fd/t"
    assert str(names.Namespace.of("c", ("a",))) == "namespace:c/a"
    # Where it is created: at the top of a catalog, and in a namespace.
    assert str(names.Namespace.within("c")) == "namespace:c/"
    assert str(names.Namespace.within("c", ("a",))) == "namespace:c/a/"
    assert str(names.Table.within("c", ("a",))) == "table:c/a/"


NESTED = """
privtab: 1
system: lake
version: '1'
entities: {catalog: {namespace: {table:}}}
types: {namespace: {nested: true}}
privileges: [USE]
tables:
  namespace: {create: {requires: USE (catalog), creates: true}}
  table: {create: {requires: USE (namespace), creates: true}, read: USE (table)}
"""


FLAT = """
privtab: 1
system: drives
version: '1'
entities: {drive: {folder: {document: {comment:}}}}
types: {folder: {nested: true, flat: true}, document: {flat: true}}
privileges: [USE]
tables:
  folder: {create: {requires: USE (parent), creates: true}}
  document: {create: {requires: USE (folder), creates: true}, read: USE (document)}
  comment: {create: {requires: USE (document), creates: true}, read: USE (comment)}
"""


def test_ids_that_are_flat_take_one_name_and_creations_what_contains_them(tmp_path: Path) -> None:
    path = tmp_path / "drives.yaml"
    path.write_text(FLAT, encoding="utf-8")
    program = load_program(path)
    names = loaded(tmp_path / "drives_names.py", render(program))
    created = [
        (names.Folder.within(names.Drive.of("main")), "folder:drive:main/"),
        (names.Folder.within(names.Folder.of("f1")), "folder:folder:f1/"),
        (names.Document.within(names.Folder.of("f/1")), "document:folder:f%2F1/"),
        (names.Comment.within("d7"), "comment:d7"),
    ]
    for entity, text in created:
        assert str(entity) == text
        vocabulary(program).check(Request(user="ann", action="create", resource=entity))
    for entity, text in [(names.Document.of("d7"), "document:d7"), (names.Comment.of("d7", "c/1"), "comment:d7/c%2F1")]:
        assert str(entity) == text
        vocabulary(program).check(Request(user="ann", action="read", resource=entity))


ATTRIBUTES = """
privtab: 1
system: lake
version: '1'
entities: {catalog: {table:}}
privileges: [USE]
attributes:
  user: {rank: {integer: [0, 9], from: request}, team: text}
  entity: {tags: {set: [red, blue], on: [table], from: [state, request]}, color: {enum: [red, blue], on: [catalog], from: request}}
  request: {mfa: bool}
tables:
  table:
    read: USE (table) and user.rank > 3
    move: {with: {to: catalog}, requires: "to.color in entity.tags and request.mfa"}
  catalog: {open: entity.color = red}
"""
CALLS = """
from lake_names import Catalog, Lake, Table

def calls(lake: Lake, table: Table, catalog: Catalog) -> None:
    lake.check("ann", "read", table, attributes={"user": {"rank": 4}, "request": {"mfa": True}})
    lake.check("ann", "move", table, with_={"to": catalog}, attributes={"with": {"to": {"color": "red"}}, "entity": {"tags": ["red"]}})
    lake.filter("ann", "open", [catalog], attributes={"entity": {"color": "blue"}})
    lake.check("ann", "read", table, attributes={"user": {"rank": "high"}})
    lake.check("ann", "read", table, attributes={"user": {"team": "hr"}})
    lake.check("ann", "open", catalog, attributes={"entity": {"color": "green"}})
    lake.check("ann", "read", table, attributes={"with": {"to": {"color": "red"}}})
"""


@pytest.mark.slow
@pytest.mark.xdist_group("mypy")
def test_attributes_that_requests_give_have_their_types(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lake.yaml"
    path.write_text(ATTRIBUTES, encoding="utf-8")
    (tmp_path / "lake_names.py").write_text(render(load_program(path)), encoding="utf-8")
    first = (
        CALLS[: CALLS.index('    lake.check("ann", "read", table, attributes={"user": {"rank": "high"}})')].count("\n")
        + 1
    )
    wrong = [line for line in mypy(tmp_path, "calls.py", CALLS, cache, monkeypatch) if ": error: " in line]
    assert {int(line.split(":")[1]) for line in wrong} == set(range(first, first + 4)), wrong


def test_a_typed_client_gives_attributes(tmp_path: Path) -> None:
    path = tmp_path / "lake.yaml"
    path.write_text(ATTRIBUTES, encoding="utf-8")
    names = loaded(tmp_path / "lake_names.py", render(load_program(path)))
    program = load_program(path)
    grant = Grant(grantee="user:ann", effect="allow", privilege="USE", entity=Entity("table", "c/t"))
    policy, state = tmp_path / "policy.tar.gz", tmp_path / "state.tar.gz"
    policy.write_bytes(policy_bundle(program))
    state.write_bytes(state_bundle(program, State(grants=(grant,))))
    with Embedded(policy, state) as client:
        lake, table, catalog = names.Lake(client), names.Table("c/t"), names.Catalog("c")
        assert lake.check("ann", "read", table, attributes={"user": {"rank": 4}}) is True
        assert lake.check("ann", "read", table) is False
        given = {"with": {"to": {"color": "red"}}, "entity": {"tags": ["red"]}, "request": {"mfa": True}}
        assert lake.check("ann", "move", table, with_={"to": catalog}, attributes=given) is True
        assert lake.filter("ann", "open", [catalog], attributes={"entity": {"color": "red"}}) == [catalog]
        assert lake.filter("ann", "open", [catalog], attributes={"entity": {"color": "blue"}}) == []


FILTERED_CALLS = """\
from lake_names import Column, Lake, Schema, Table


def calls(lake: Lake) -> str:
    lake.row_filter("eve", Schema("m/s"))
    lake.column_masks("eve", [Table("m/s/t")])
    return lake.row_filter("eve", Table("m/s/t"), groups=["x"]).sql + lake.column_masks("eve", [Column("m/s/t/c")])[0].sql
"""


@pytest.mark.slow
@pytest.mark.xdist_group("mypy")
def test_filters_are_asked_for_the_types_that_have_any(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program, _, _ = filtered_policy.made(tmp_path)
    (tmp_path / "lake_names.py").write_text(render(program), encoding="utf-8")
    wrong = [line for line in mypy(tmp_path, "calls.py", FILTERED_CALLS, cache, monkeypatch) if ": error: " in line]
    assert [line.partition(": error:")[0].rpartition(":")[2] for line in wrong] == ["5", "6"]


def test_a_typed_client_says_which_filter_applies(tmp_path: Path) -> None:
    program, _, files = filtered_policy.made(tmp_path)
    names = loaded(tmp_path / "lake_names.py", render(program))
    asking = names.Lake(Embedded(*files))
    assert asking.row_filter("ann", names.Table.of("m", "s", "t")).name == "all_rows"
    assert asking.column_masks("eve", [names.Column.of("m", "s", "t", "ssn")])[0].name == "hashed"
    assert [operation.value for operation in names.TableOperation] == ["load"]
    assert not hasattr(names, "ColumnOperation")
