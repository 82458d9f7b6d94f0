"""`privtab explore`: pages over a policy and a state, on this machine or as a folder."""

from __future__ import annotations

import sys
import webbrowser
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from threading import Thread
from time import time_ns
from typing import TYPE_CHECKING, Annotated, Any

from privtab.base import STATE_HELP, SourceFile, UsageError, moment_text, needing, no_collection, write_file
from privtab.command import (
    AtOption,
    PolicyArguments,
    err,
    is_stored,
    load_policy,
    load_state,
    option,
    out,
)
from privtab_server.commands._serving import PageSettings

if TYPE_CHECKING:
    from privtab.ir import Program
    from privtab.state import Places, State
    from privtab_pages.explore.world import World

PANEL = "Ask"


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """The inputs beside a policy."""

    state: Annotated[Path | None, option("--state -s STATE", STATE_HELP)] = None
    since: Annotated[list[str] | None, option("--since POLICY", "Another version to compare with; repeatable.")] = None
    since_state: Annotated[
        list[Path] | None, option("--since-state STATE", "Another state to compare with; repeatable.")
    ] = None
    at: AtOption = None


def run(
    policy: PolicyArguments,
    *,
    looked: Looked,
    export: Annotated[Path | None, option("--export FOLDER", "Write pages into a folder instead of serving.")] = None,
    entity: Annotated[
        list[str] | None, option("--entity TYPE:PATH", "With --export: an entity to show permissions on; repeatable.")
    ] = None,
    no_open: Annotated[bool, option("--no-open", "Do not open a browser.")] = False,
    settings: PageSettings,
) -> None:
    """Explore a policy and a state in a browser: decisions, permissions, hypothetical changes, heat maps, differences.

    The pages are read-only, load nothing from elsewhere, and are for this machine. On an address that others can reach, a
    token is required (`--token-file`); browsers ask for it as the password.

    Example:
      privtab explore gravitino/1.1.0 -s sample:gravitino --listen 0
      privtab explore cdap/final --since cdap/revised --no-open
      privtab explore lake.yaml -s store:grants.db --since-state store:grants.db@1
      privtab explore lake.yaml -s state.yaml --export site --entity schema:l/web
    """
    if entity and export is None:
        raise UsageError("`--entity` is for `--export`: a running page asks about any entity")
    world = _world(policy, looked)
    with no_collection(keep=True), err().spinner("working out") as tell:
        for stage in world.warm():
            tell(f"working out {stage}")
    if export is not None:
        _export(world, export, entity or [])
        return
    _serve(world, settings, opens=not no_open)


def _world(policy: PolicyArguments, looked: Looked) -> World:
    from privtab.engines import OpenEngine
    from privtab.pipeline import policy_artifacts, policy_revision
    from privtab.state import Places, index_document
    from privtab_pages.explore.world import World, caller_of, request_of

    program, moment, state = policy.program(), time_ns() if looked.at is None else looked.at, looked.state
    if looked.since_state and state is None:
        raise UsageError("`--since-state` compares with a state: give `--state`")

    def read(path: Path) -> tuple[State, Places, bool]:
        loaded, places, partial = load_state(program, path, for_queries=True)
        return loaded.at(moment), places.some(loaded.held(moment)), partial

    with err().spinner("reading the state"):
        found = None if state is None else read(state)
        earlier = {str(path): read(path)[:2] for path in looked.since_state or ()}
    rows = None if found is None else found[0]
    return World(
        program=program,
        shown=policy.policy,
        revision=policy_revision(program, parallel=True),
        state=rows,
        places=Places.NONE if found is None else found[1],
        state_shown="" if state is None else str(state),
        moment=moment,
        moment_shown=moment_text(moment - moment % 1_000_000_000),
        partial=found is not None and found[2],
        request=request_of(program),
        caller=caller_of(program),
        engine=None
        if rows is None
        else lambda: OpenEngine.of(policy_artifacts(program).program, index_document(program, rows), moment),
        versions={
            name: cache(lambda name=name: load_policy(name))
            for name in _versions(policy.policy, looked.since or (), program)
        },
        states=earlier,
        texts=_texts(policy.policy, state),
        **_choices(policy),
    )


def _texts(policy: str, state: Path | None) -> dict[str, str]:
    """The texts of a policy and a state that are files of YAML, to be edited on a page, where a text is read without a variant."""
    from privtab.pipeline import ChosenPolicy, find_policy

    files = {} if is_stored(policy) or ChosenPolicy.of(policy) else {"policy": find_policy(policy)}
    if state is not None and state.suffix in SourceFile.SUFFIXES and state.is_file():
        files["state"] = state
    return {name: SourceFile.load(path).text for name, path in files.items()}


def _choices(policy: PolicyArguments) -> dict[str, Any]:
    """The variants of a policy, and how it is loaded with one and with readings; nothing of one that is compiled."""
    if is_stored(policy.policy):
        return {}
    from privtab.pipeline import load_program, resolve_policy

    resolved = resolve_policy(policy.policy).policy

    def chosen(variant: str | None, readings: dict[str, str]) -> Program:
        return load_program(policy.policy, variant=variant, readings=readings)

    return {"variants": () if resolved is None else resolved.variants, "chosen": chosen}


def _versions(policy: str, since: Iterable[str], program: Program) -> list[str]:
    """The policies to compare with: the named policies, else the other versions that are found under the system's name."""
    from privtab.pipeline import policy_names

    named = list(dict.fromkeys(since))
    if named:
        for name in named:
            load_policy(name)  # a wrong name is told now
        return named
    return [name for name in policy_names() if name.startswith(f"{program.system}/") and name != policy]


def _export(world: World, folder: Path, entities: list[str]) -> None:
    from privtab_pages.explore.site import exported

    files = exported(world, entities)
    for name, content in files.items():
        write_file(folder / name, content)
    out().print(f"{folder}/  {len(files):,} files; index.html is the first page")


def _serve(world: World, settings: PageSettings, *, opens: bool) -> None:
    with needing("`privtab explore`", "serve"):
        from privtab_pages.explore.children import Children
        from privtab_pages.explore.server import Explorer, Scope, application, names_of
        from privtab_pages.explore.site import answer
        from privtab_server.serving.tokens import Tokens
    from privtab_analysis.html import prepare
    from privtab_server.serving.server import is_loopback

    host, _ = settings.address()
    if not (is_loopback(host) or settings.token_file):
        raise UsageError(f"{host} can be reached from other machines: give `--token-file`")
    tls = settings.checked_tls(tokens=settings.token_file is not None, quiet=is_loopback(host))
    tokens = Tokens(settings.token_file, Scope) if settings.token_file is not None else None
    hosts = names_of(host, settings.public_url)
    url = ""
    prepare("explore")
    children = Children(partial(answer, world)) if Children.possible() else None

    def make(base: str) -> Any:
        nonlocal url
        url = base
        return application(Explorer(world=world, tokens=tokens, hosts=hosts, children=children))

    def served() -> tuple[str, dict[str, object]]:
        if opens and sys.stdout.isatty():  # beside the server: some browsers return when they end
            Thread(target=webbrowser.open, args=(url,), daemon=True).start()
        return f"{world.shown}, to look at,", {"policy": world.shown, "state": world.state_shown}

    settings.serve(tls, make, served)
