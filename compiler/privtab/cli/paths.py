"""`privtab paths`: find how a user could gain privileges by operations that grant."""

from __future__ import annotations

from pathlib import Path as File
from typing import TYPE_CHECKING, Annotated, Any

import typer

from privtab._install import how_to_install
from privtab.cli._ask import (
    ActiveRoleOption,
    FlagOption,
    GroupOption,
    NoActiveRolesOption,
    StepsOption,
    WithOption,
    active_roles,
    check_required_flags,
    entity,
    flag_names,
    group_names,
    objects,
    rule_json,
    show_notes,
    show_place,
    user_name,
)
from privtab.cli._options import (
    AtOption,
    FormatOption,
    PartialOption,
    PolicyOption,
    ReadingOption,
    StateOption,
    VariantOption,
    load_state_for_queries,
    readings,
)
from privtab.cli._output import Format, delayed_spinner, err, fail_if, out, print_if_data, progress, spinner
from privtab.errors import UsageError
from privtab.plural import count

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console

    from privtab.analysis.authorised import Authority
    from privtab.analysis.effects import GainedFact, Path, Step
    from privtab.analysis.goals import Goal
    from privtab.analysis.paths import ReachableRights
    from privtab.ir.nodes import Program
    from privtab.reference.evaluate import Reference
    from privtab.state.nodes import State

PANEL = "Ask"

MAX_PATHS = 20
"""Default maximum of paths shown as text."""


def run(
    policy: PolicyOption,
    state: StateOption,
    user: Annotated[str | None, typer.Argument(metavar="USER", help="The user who would act.")] = None,
    target: Annotated[
        str | None,
        typer.Argument(metavar="PRIVILEGE", help="A privilege, a set, `owner` or `member`; omit with --operation."),
    ] = None,
    resource: Annotated[str | None, typer.Argument(metavar="ENTITY", help="The entity, as type:path.")] = None,
    operation: Annotated[
        str | None, typer.Option("--operation", metavar="OP", help="Find paths to an operation on ENTITY instead.")
    ] = None,
    with_: WithOption = None,
    flag: FlagOption = None,
    group: GroupOption = None,
    active_role: ActiveRoleOption = None,
    no_active_roles: NoActiveRolesOption = False,
    all_users: Annotated[
        bool, typer.Option("--all", help="Search for every user of the state, and for an unknown user.")
    ] = False,
    max_steps: StepsOption = None,
    authorise: Annotated[
        list[str] | None,
        typer.Option(
            "--authorise",
            metavar="TABLE[.add|.remove]=OPERATION",
            help="Operation that authorises rows in a store; repeatable.",
        ),
    ] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            "--limit", min=0, metavar="N", help=f"Number of paths; 0 for all. (default: {MAX_PATHS} for people)"
        ),
    ] = None,
    at: AtOption = None,
    allow_partial: PartialOption = False,
    variant: VariantOption = None,
    reading: ReadingOption = None,
    format_: FormatOption = Format.TEXT,
) -> None:
    """Show how a user could gain a privilege in several steps, by operations that grant or let them change a store.

    Without a target: everything that the user could gain. Every answer says which changes are not considered.

    With `--all`: what any user could gain on existing entities; exits with 1 if any could.

    Example:

    \b
      privtab paths bob WRITE dataset:web/clicks -p studio.yaml -s state.yaml
      privtab paths bob dataset:web/clicks --operation drop \\
              -p studio.yaml -s state.yaml
      privtab paths bob -p studio.yaml -s state.yaml
      privtab paths --all -p studio.yaml -s state.yaml
    """
    from privtab.cli._stored import load_policy
    from privtab.reference.evaluate import Reference

    _check(user, target, resource, operation, all_users=all_users)
    program = load_policy(policy, variant=variant, readings=readings(reading))
    flags = flag_names(flag, program)
    check_required_flags(flags, program)
    with spinner("reading the state"):
        loaded, partial = load_state_for_queries(program, state, allow_partial=allow_partial, at=at)
        reference = Reference(program, loaded)
    active = active_roles(active_role, none=no_active_roles, program=program)
    groups = group_names(group)
    query = _PathsQuery(reference, loaded, max_steps, format_, limit, flags, groups, active, authorise or ())
    if all_users:
        if active is not None:
            raise UsageError(
                "active roles are those of one user: leave `--active-role` and `--no-active-roles` out with `--all`"
            )
        any_escalation = query.all_users()
        fail_if(any_escalation or partial)
        return
    assert user is not None
    name = user_name(user)
    mentioned = (
        [entity(resource if operation is None and resource is not None else target)] if target is not None else []
    )
    from privtab.entitlements.universe import notes as unknown

    known_entities = [candidate for candidate in mentioned if candidate.type in program.entities]
    query.notes = unknown(
        program, loaded, [f"user:{name}", *(f"group:{group_name}" for group_name in query.groups)], known_entities
    )
    if target is None:
        query.gains(name)
    elif operation is not None:
        from privtab.analysis.goals import operation_goal

        query.target(name, operation_goal(reference, operation, entity(target), objects(with_), flags))
    else:
        from privtab.analysis.goals import goal

        assert resource is not None
        query.target(name, goal(reference, target, entity(resource)))
    if format_ is not Format.JSON:
        show_notes(query.notes)
    fail_if(partial)


def _check(
    user: str | None, target: str | None, resource: str | None, operation: str | None, *, all_users: bool
) -> None:
    """Check which arguments and options may be combined."""
    if all_users:
        if user is not None or operation is not None:
            raise UsageError("`--all` is about every user and every target: leave USER and --operation out")
    elif user is None:
        raise UsageError("name a USER, or ask for every user with `--all`")
    elif operation is not None:
        if target is None or resource is not None:
            raise UsageError("with --operation write `paths USER ENTITY --operation OP`")
    elif (target is None) != (resource is None):
        raise UsageError("write `paths USER PRIVILEGE ENTITY`, or `paths USER ENTITY --operation OP`, or `paths USER`")


class _PathsQuery:
    """A query with its options; answers are printed."""

    def __init__(
        self,
        reference: Reference,
        state: State,
        max_steps: int | None,
        format_: Format,
        limit: int | None,
        flags: frozenset[str],
        groups: tuple[str, ...],
        active: tuple[str, ...] | None,
        authorise: Sequence[str],
    ) -> None:
        self.authority = _authority(reference.program, authorise)
        self.administrators = _administrators(reference.program)
        self.reference = reference
        self.state = state
        self.max_steps = max_steps
        self.format = format_
        self.max_shown = (MAX_PATHS if format_ is Format.TEXT else 0) if limit is None else limit
        self.flags = flags
        self.groups = groups
        self.active = active
        self.notes: tuple[str, ...] = ()

    def reach(self, user: str, goal: Goal | None = None) -> ReachableRights:
        """Everything that a user could gain."""
        from privtab.analysis.paths import ReachableRights

        extra_entities = [] if goal is None else [goal.resource, *goal.with_.values()]
        return ReachableRights(
            self.reference,
            self.state,
            user,
            extra_entities=extra_entities,
            groups=self.groups,
            flags=self.flags,
            active_roles=self.active,
            max_steps=self.max_steps,
            authority=self.authority,
            administrators=self.administrators,
            recreates=goal is not None,
        )

    def target(self, user: str, goal: Goal) -> None:
        """Print the shortest path to one goal."""
        from privtab.analysis.authorised import NOT_CONSIDERED

        with delayed_spinner("looking for paths"):
            reach = self.reach(user, goal)
            path = reach.path(goal)
        path_document = None if path is None else _path_json(path)
        answer = {
            "user": user,
            "goal": goal.text,
            "reachable": path is not None,
            "path": path_document,
            "not_considered": NOT_CONSIDERED,
        }
        if print_if_data(self.format, {**answer, "notes": list(self.notes)}):
            return
        console = out()
        if path is None:
            within = "" if self.max_steps is None else f" within {count(self.max_steps, 'step')}"
            console.print("NO PATH", style="bold green", end="  ")
            console.print(f"user:{user} cannot gain {goal.text}{within}", soft_wrap=True)
        elif not path.certain:
            console.print("PERHAPS", style="bold red", end="  ")
            why = "by these steps" if path.steps else f": {'; '.join(reach.undecided())}, and that is not followed"
            console.print(f"it is not ruled out that user:{user} gains {goal.text} {why}", soft_wrap=True)
            _show_steps(console, path.steps)
            _legend(console, path.steps)
        elif not path.steps:
            console.print("HELD", style="bold", end="  ")
            console.print(f"user:{user} has {goal.text} already", soft_wrap=True)
        else:
            console.print("PATH", style="bold red", end="  ")
            remark = "" if path.shortest else ", perhaps not the fewest"
            console.print(f"user:{user} to {goal.text} in {count(len(path.steps), 'step')}{remark}", soft_wrap=True)
            _show_steps(console, path.steps)
            _legend(console, path.steps)
        _show_not_considered(console)

    def gains(self, user: str) -> None:
        """Print what a user could gain on existing entities, and what they could create."""
        from privtab.analysis.authorised import NOT_CONSIDERED

        with delayed_spinner("looking for paths"):
            reach = self.reach(user)
            facts = reach.gains()
            shown = facts[: self.max_shown or len(facts)]
            paths = ((fact, reach.path_to(fact)) for fact in shown)
            found = [(fact, path) for fact, path in paths if path is not None]
        creations = reach.creating_actions()
        facts_created = {a: [str(fact) for fact in reach.actions[a] if fact.kind != "exists"] for a in creations}
        answer = {
            "user": user,
            "count": len(facts),
            "gains": [{"fact": str(fact), "path": _path_json(path)} for fact, path in found],
            "makes": [
                {"operation": a.rule.operation, "resource": str(a.resource), "brings": created}
                for a, created in facts_created.items()
            ],
            "undecided": list(reach.undecided()),
            "not_considered": NOT_CONSIDERED,
            "notes": list(self.notes),
        }
        if print_if_data(self.format, answer):
            return
        console = out()
        console.print(f"what user:{user} could gain", style="bold", soft_wrap=True)
        if not facts:
            console.print("nothing on existing entities", style="dim")
        else:
            console.print(f"{count(len(facts), 'right')} on existing entities", style="dim")
        for _, path in found:
            console.print(f"\n{path.goal}", style="bold red", end="")
            console.print(f"  in {count(len(path.steps), 'step')}", style="dim")
            _show_steps(console, path.steps)
        _show_omitted(console, len(facts) - len(shown))
        if creations:
            console.print("\nwhat they could make, and then hold", style="bold")
            for action, created in list(facts_created.items())[: self.max_shown or len(creations)]:
                text = f"  {action.rule.operation} {action.resource}" + (
                    f": {_join_by_object(created)}" if created else ""
                )
                console.print(text, soft_wrap=True)
            _show_omitted(console, len(creations) - (self.max_shown or len(creations)))
        _legend(console, [step for _, path in found for step in path.steps], creates=bool(creations))
        for text in reach.undecided():
            console.print(f"\nnot followed: {text}", soft_wrap=True)
        _show_not_considered(console)

    def all_users(self) -> bool:
        """Print what each user could gain on existing entities; returns whether any could."""
        from privtab.analysis.authorised import NOT_CONSIDERED
        from privtab.analysis.paths import SearchSpace, escalations
        from privtab.entitlements.universe import users

        search_space = SearchSpace(self.reference, self.state)
        known = users(self.reference.program, self.state)
        stranger = "stranger"
        while stranger in known:
            stranger += "_"
        names = sorted(known.union(self.administrators))
        found: list[tuple[str, GainedFact, Path]] = []
        with progress(len(names)) as bar:
            for name in [*names, ""]:
                gained = escalations(
                    self.reference,
                    self.state,
                    name or stranger,
                    space=search_space,
                    max_steps=self.max_steps,
                    authority=self.authority,
                    administrators=self.administrators,
                )
                found += [(name, fact, path) for fact, path in gained]
                bar.advance(bar.task_ids[0])
        found.sort(key=lambda escalation: (len(escalation[2].steps), escalation[0], str(escalation[1])))
        rows = [{"user": user or None, "fact": str(fact), "path": _path_json(path)} for user, fact, path in found]
        answer = {"count": len(found), "escalations": rows[: self.max_shown or len(rows)]}
        if print_if_data(self.format, answer | {"not_considered": NOT_CONSIDERED}):
            return bool(found)
        console = out()
        for user, _, path in found[: self.max_shown or len(found)]:
            subject = f"user:{user}" if user else "a stranger"
            console.print(f"{subject} {'could' if path.certain else 'may perhaps'} gain ", end="", soft_wrap=True)
            console.print(path.goal, style="bold red", end="", soft_wrap=True)
            console.print(f"  in {count(len(path.steps), 'step')}", style="dim")
            _show_steps(console, path.steps)
            console.print()
        _show_omitted(console, len(found) - (self.max_shown or len(found)))
        if found:
            names = sorted({user for user, _, _ in found})
            err().print(f"{count(len(found), 'escalation')} of {count(len(names), 'user')}", soft_wrap=True)
        else:
            console.print("no user can gain anything on existing entities")
        _show_not_considered(console)
        return bool(found)


def _authority(program: Program, settings: Sequence[str]) -> Authority:
    try:
        from privtab.store.authority import Authority as OfStores
    except ImportError as error:
        raise UsageError(f"paths through a store need {error.name}: {how_to_install('store')}") from error
    return OfStores(program, settings)


def _administrators(program: Program) -> tuple[str, ...]:
    """The service administrators that the settings name."""
    from privtab.lint.config import settings_for
    from privtab.state.names import uses

    if not uses(program).service_admins:
        return ()
    return tuple(name.removeprefix("user:") for name in settings_for(File("privtab.toml")).administrators)


def _show_steps(console: Console, steps: Sequence[Step]) -> None:
    for number, step in enumerate(steps, start=1):
        with_ = "".join(f" {name}={object_}" for name, object_ in step.with_.items())
        console.print(f"  {number}  ", style="dim", end="")
        text = f"{step.rule.operation} {step.resource}{with_}"
        console.print(text, end="", soft_wrap=True)
        show_place(console, f"{step.rule.span.path}:{step.rule.span.line}", at=5 + len(text))
        needs = [
            reason["atom"] + (f" by {reason['through']}" if not reason["through"].startswith("user:") else "")
            for reason in step.because
        ]
        gained = [str(fact) for fact in step.gained if fact.kind not in ("exists", "vacant")]
        in_store = ", ".join(step.changes)
        for label, content in (
            ("lets", in_store and f"them {in_store} in a store"),
            ("needs", _join_by_object(needs) or "nothing"),
            ("brings", _join_by_object(gained)),
        ):
            if content:
                console.print(f"     {label:<6} ", style="dim", end="")
                console.print(content, soft_wrap=True)


def _join_by_object(words: Sequence[str]) -> str:
    """Join words, grouping privileges on the same object: `READ, WRITE (x)`."""
    by_object: dict[str, list[str]] = {}
    for word in words:
        privilege, _, object_ = word.partition(" (")
        by_object.setdefault(object_, []).append(privilege)
    return ", ".join(
        f"{', '.join(privileges)} ({object_}" if object_ else ", ".join(privileges)
        for object_, privileges in by_object.items()
    )


def _legend(console: Console, steps: Sequence[Step], *, creates: bool = False) -> None:
    if creates or any(step.creates for step in steps):
        console.print("\na name that begins with `new` stands for an entity that they create there", style="dim")


def _show_not_considered(console: Console) -> None:
    from privtab.analysis.authorised import NOT_CONSIDERED

    console.print(f"\nnot considered: {'; '.join(NOT_CONSIDERED)}", style="dim", soft_wrap=True)


def _show_omitted(console: Console, number: int) -> None:
    if number > 0:
        console.print(f"\n… and {number:,} more; `--limit 0` lists them", style="dim")


def _path_json(path: Path) -> dict[str, Any]:
    return {
        "shortest": path.shortest,
        "certain": path.certain,
        "steps": [
            {
                "operation": step.rule.operation,
                "resource": str(step.resource),
                "with": {name: str(object_) for name, object_ in step.with_.items()},
                "rule": rule_json(step.rule),
                "changes": list(step.changes),
                "makes": step.creates,
                "because": [dict(reason) for reason in step.because],
                "brings": [str(fact) for fact in step.gained if fact.kind not in ("exists", "vacant")],
            }
            for step in path.steps
        ],
    }
