"""`privtab what-can --steps`: find how a user could gain privileges by operations that grant."""

from __future__ import annotations

from dataclasses import KW_ONLY
from pathlib import Path as File
from typing import TYPE_CHECKING, Any

from privtab.base import UsageError, count, dataclass, load_plugin, needing
from privtab.command import (
    QuestionOptions,
    Terminal,
    err,
    fail_if,
    out,
    print_if_data,
)
from privtab_analysis.commands import _ask as ask
from privtab_analysis.commands._shown import show_place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from privtab.ir import Program
    from privtab.reference import Reference
    from privtab.state import State
    from privtab_analysis.authorised import Authority
    from privtab_analysis.effects import GainedFact, Path, Step
    from privtab_analysis.goals import Goal
    from privtab_analysis.paths import ReachableRights

MAX_PATHS = 20
"""Default maximum of paths shown as text."""
OPERATION = "can "
"""Begins an operation as a goal, as in conditions."""


def find_paths(
    user: str | None,
    resource: str | None,
    options: ask.PathOptions,
    carried: ask.RequestOptions,
    asked: QuestionOptions,
    limit: int | None,
    format_: str,
) -> None:
    """Show how a user could gain a privilege in several steps, using operations that grant it or change a store.

    Without a goal: everything that the user could gain. Every answer says which changes are not considered. With `--all`:
    everything that any user could gain on existing entities; exits with 1 if any could.
    """
    from privtab.reference import Reference
    from privtab_analysis.entitlements.universe import notes as unknown
    from privtab_analysis.goals import goal, operation_goal

    all_users, target = options.everyone, options.gain
    if (resource is None) != (target is None):
        raise UsageError("a goal has both: what-can USER ENTITY --gain PRIVILEGE, or --gain 'can OPERATION'")
    if all_users and target is not None:
        raise UsageError("`--all` is about every goal: leave ENTITY and `--gain` out")
    if format_ == "csv":
        raise UsageError("paths are text or JSON: leave `--format csv` out")
    is_operation = target is not None and target.startswith(OPERATION)
    max_steps = options.most_steps()
    program = asked.program()
    with needing("a path through a store", "store"):
        authority = load_plugin("privtab.states", "store").authority(program, options.authorise or ())
    found = carried.general(program, objects=is_operation)
    loaded, _, partial = asked.rows(program)
    reference = Reference(program, loaded)
    active = carried.active_roles(program)
    groups = carried.groups()
    query = _PathsQuery(
        reference,
        loaded,
        authority,
        _administrators(program),
        max_steps=max_steps,
        format=format_,
        most=ask.shown_number(limit, format_, MAX_PATHS),
        flags=found.flags,
        groups=groups,
        active=active,
    )
    if all_users:
        if active is not None:
            raise UsageError("active roles are those of one user: leave `--caller` out with `--all`")
        fail_if(query.all_users() or partial)
        return
    assert user is not None
    name = ask.user_name(user)
    known_entities = [e for e in map(ask.entity, [resource] if resource else []) if e.type in program.entities]
    principals = [f"user:{name}", *(f"group:{group}" for group in groups)]
    query.notes = notes = unknown(program, loaded, principals, known_entities)
    if target is None or resource is None:
        query.gains(name)
    elif is_operation:
        wanted = target.removeprefix(OPERATION)
        query.target(name, operation_goal(reference, wanted, ask.entity(resource), found.objects, found.flags))
    else:
        query.target(name, goal(reference, target, ask.entity(resource)))
    if format_ != "json":
        ask.show_notes(notes)
    fail_if(partial)


@dataclass
class _PathsQuery:
    """A query with its options; answers are printed. `most`: how many paths are shown; 0 for all."""

    reference: Reference
    state: State
    authority: Authority
    administrators: Sequence[str]
    _: KW_ONLY
    max_steps: int | None
    format: str
    most: int
    flags: frozenset[str]
    groups: tuple[str, ...]
    active: tuple[str, ...] | None
    notes: tuple[str, ...] | None = None

    def _printed(self, answer: dict[str, Any]) -> bool:
        """Print an answer as JSON, with its limits, if that is the format."""
        from privtab_analysis.authorised import NOT_CONSIDERED

        notes = {} if self.notes is None else {"notes": self.notes}
        return print_if_data(self.format, {**answer, "not_considered": NOT_CONSIDERED, **notes})

    def reach(self, user: str, goal: Goal | None = None) -> ReachableRights:
        """Everything that a user could gain."""
        from privtab_analysis.paths import ReachableRights

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
        with err().spinner("looking for paths", after=1.0):
            reach = self.reach(user, goal)
            path = reach.path(goal)
        answer = {
            "user": user,
            "goal": goal.text,
            "reachable": path is not None,
            "path": None if path is None else _path_json(path),
        }
        if self._printed(answer):
            return
        console = out()
        if path is None:
            within = "" if self.max_steps is None else f" within {count(self.max_steps, 'step')}"
            verdict, style, text = "NO PATH", "bold green", f"user:{user} cannot gain {goal.text}{within}"
        elif not path.certain:
            why = "by these steps" if path.steps else f": {'; '.join(reach.undecided())}, and that is not followed"
            verdict, style = "PERHAPS", "bold red"
            text = f"it is not ruled out that user:{user} gains {goal.text} {why}"
        elif not path.steps:
            verdict, style, text = "HELD", "bold", f"user:{user} has {goal.text} already"
        else:
            remark = "" if path.shortest else ", perhaps not the fewest"
            steps = count(len(path.steps), "step")
            verdict, style, text = "PATH", "bold red", f"user:{user} to {goal.text} in {steps}{remark}"
        console.print_styled((verdict, style), f"  {text}")
        if path is not None:
            _show_steps(console, path.steps)
            _legend(console, path.steps)
        _show_not_considered(console)

    def gains(self, user: str) -> None:
        """Print the rights that a user could gain on existing entities, and the entities that they could create."""
        with err().spinner("looking for paths", after=1.0):
            reach = self.reach(user)
            facts = reach.gains()
            shown = facts[: self.most or None]
            paths = ((fact, reach.path_to(fact)) for fact in shown)
            found = [(fact, path) for fact, path in paths if path is not None]
        creations = reach.creating_actions()
        facts_created = {a: [str(fact) for fact in reach.actions[a] if fact.kind != "exists"] for a in creations}
        answer = {
            "user": user,
            "count": len(facts),
            "gains": [{"fact": str(fact), "path": _path_json(path)} for fact, path in found],
            "makes": [
                {"operation": a.rule.operation, "resource": a.resource, "brings": created}
                for a, created in facts_created.items()
            ],
            "undecided": reach.undecided(),
        }
        if self._printed(answer):
            return
        console = out()
        console.print(f"what user:{user} could gain", style="bold")
        console.print(f"{count(len(facts), 'right') if facts else 'nothing'} on existing entities", style="dim")
        for _, path in found:
            console.print()
            console.print_styled((path.goal, "bold red"), (f"  in {count(len(path.steps), 'step')}", "dim"))
            _show_steps(console, path.steps)
        console.more(len(facts) - len(shown), apart=True)
        if creations:
            console.print("\nwhat they could make, and then hold", style="bold")
            for action, created in console.first(list(facts_created.items()), self.most, apart=True):
                brings = f": {_join_by_object(created)}" if created else ""
                console.print(f"  {action.rule.operation} {action.resource}{brings}")
        _legend(console, [step for _, path in found for step in path.steps], creates=bool(creations))
        for text in reach.undecided():
            console.print(f"\nnot followed: {text}")
        _show_not_considered(console)

    def all_users(self) -> bool:
        """Print the rights that each user could gain on existing entities; returns whether any could."""
        from privtab_analysis.entitlements.universe import users
        from privtab_analysis.paths import SearchSpace, escalations

        search_space = SearchSpace(self.reference, self.state)
        known = users(self.reference.program, self.state)
        stranger = "stranger"
        while stranger in known:
            stranger += "_"
        names = sorted(known.union(self.administrators))
        found: list[tuple[str, GainedFact, Path]] = []
        with err().progress(len(names)) as tell:
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
                tell()
        found.sort(key=lambda escalation: (len(escalation[2].steps), escalation[0], str(escalation[1])))
        rows = [{"user": user or None, "fact": str(fact), "path": _path_json(path)} for user, fact, path in found]
        answer = {"count": len(found), "escalations": rows[: self.most or None]}
        if self._printed(answer):
            return bool(found)
        console = out()
        for user, _, path in console.first(found, self.most, apart=True):
            subject = f"user:{user}" if user else "a stranger"
            gain = f"{subject} {'could' if path.certain else 'may perhaps'} gain "
            steps = f"  in {count(len(path.steps), 'step')}"
            console.print_styled(gain, (path.goal, "bold red"), (steps, "dim"))
            _show_steps(console, path.steps)
            console.print()
        if found:
            names = sorted({user for user, _, _ in found})
            err().print(f"{count(len(found), 'escalation')} of {count(len(names), 'user')}")
        else:
            console.print("no user can gain anything on existing entities")
        _show_not_considered(console)
        return bool(found)


def _administrators(program: Program) -> tuple[str, ...]:
    """The service administrators that the settings name."""
    from privtab.checks import settings_above
    from privtab.state import UsedParts

    if not UsedParts.of(program).service_admins:
        return ()
    return tuple(name.removeprefix("user:") for name in settings_above(File("privtab.toml")).administrators)


def _show_steps(console: Terminal, steps: Sequence[Step]) -> None:
    for number, step in enumerate(steps, start=1):
        with_ = "".join(f" {name}={object_}" for name, object_ in step.with_.items())
        text = f"{step.rule.operation} {step.resource}{with_}"
        console.print_styled((f"  {number}  ", "dim"), text, end="")
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
                console.print_styled((f"     {label:<6} ", "dim"), content)


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


def _legend(console: Terminal, steps: Sequence[Step], *, creates: bool = False) -> None:
    if creates or any(step.creates for step in steps):
        console.print("\na name that begins with `new` stands for an entity that they create there", style="dim")


def _show_not_considered(console: Terminal) -> None:
    from privtab_analysis.authorised import NOT_CONSIDERED

    console.print(f"\nnot considered: {'; '.join(NOT_CONSIDERED)}", style="dim")


def _path_json(path: Path) -> dict[str, Any]:
    from privtab_analysis.answer_view import rule_json

    return {
        "shortest": path.shortest,
        "certain": path.certain,
        "steps": [
            {
                "operation": step.rule.operation,
                "resource": step.resource,
                "with": step.with_,
                "rule": rule_json(step.rule),
                "changes": step.changes,
                "makes": step.creates,
                "because": step.because,
                "brings": [str(fact) for fact in step.gained if fact.kind not in ("exists", "vacant")],
            }
            for step in path.steps
        ],
    }
