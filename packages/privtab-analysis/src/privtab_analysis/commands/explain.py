"""`privtab explain`: explain the decision on a request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

from privtab.base import count, dataclass
from privtab.command import (
    FormatOption,
    QuestionOptions,
    Terminal,
    argument,
    err,
    fail_if,
    option,
    out,
    print_if_data,
)
from privtab_analysis.commands import _ask as ask
from privtab_analysis.commands._shown import (
    chain_rows,
    rule_json,
    show_place,
    show_rows,
    show_rule,
    show_words,
    step_json,
)

if TYPE_CHECKING:
    from privtab.base import Request
    from privtab.ir import Program
    from privtab_analysis.changes import Change
    from privtab_analysis.explanation import Part, Proposal, RequestExplanation
    from privtab_analysis.provenance import Chain

PANEL = "Start here"

MOST_WAYS = 6
"""Maximum ways shown without `--all`."""
MOST_CHAINS = 3
"""Maximum chains of rows shown for one atom without `--all`."""


def run(
    user: Annotated[str, argument("USER", "The user.")],
    action: Annotated[str, argument("ACTION", "The operation.")],
    resource: Annotated[str, argument("RESOURCE", "The entity, as type:path (table:demo/hive/sales/orders).")],
    *,
    options: ask.RequestOptions,
    everything: Annotated[bool, option("--all", "Show all ways and rows, and the missing parts.")] = False,
    asked: QuestionOptions,
    format_: FormatOption = "text",
) -> None:
    """Explain why a request is allowed, row by row of the state, or what would allow it: roles, groups, grants, ownership.

    As the action, `row_filter` or `column_mask` asks which filter applies, and why earlier filters do not.

    Example:
      privtab explain alice load table:demo/hive/sales/orders -p gravitino/1.1.0 -s sample:gravitino
      privtab explain kim run job:demo/job_2 -p gravitino/1.1.0 -s sample:gravitino \\
              --with template=job_template:demo/nightly
    """
    from privtab.ir import vocabulary
    from privtab.pipeline import policy_revision
    from privtab.reference import Reference
    from privtab_analysis.entitlements.universe import asked_entities
    from privtab_analysis.entitlements.universe import notes as unknown
    from privtab_analysis.explanation import explain as explained

    program = asked.program()
    request = options.request(program, user, action, resource)
    loaded, places, partial = asked.rows(program)
    revision = policy_revision(program) if format_ == "json" else None
    reference = Reference(program, loaded, revision=revision)
    applied = None
    if action in ("row_filter", "column_mask") and (request.resource.type, action) not in program.rules:
        from privtab.engines import OpenEngine
        from privtab.pipeline import policy_artifacts
        from privtab.state import index_document

        vocabulary(program).check_filtered(request)
        opened = OpenEngine.of(policy_artifacts(program).program, index_document(program, loaded), asked.moment())
        applied = opened.engine.applied(request)
    with err().spinner("looking for ways", after=1.0):
        explanations = []
        for one in [request] if applied is None else _tried(program, request):
            explanations.append(explained(reference, one, loaded, places))
            if explanations[-1].decision.allowed:
                break  # no later filter is tried
    principals = [f"user:{request.user}", *(f"group:{name}" for name in request.groups)]
    notes = unknown(program, loaded, principals, asked_entities(program, request))
    document = _json(explanations[0]) if applied is None else _applied_json(request, asdict(applied), explanations)
    if not print_if_data(format_, {**document, "notes": list(notes)}):
        if applied is not None:
            _show_applied(out(), explanations[-1], applied.sql, denied=applied.denied)
        for explanation in explanations:
            _ExplanationPrinter(out(), program, explanation, everything).show()
        ask.show_notes(notes)
    fail_if(partial)


def _tried(program: Program, request: Request) -> list[Request]:
    """The questions whether each filter holds, in their order."""
    from privtab.ir import vocabulary

    names = vocabulary(program).filters[request.action][request.resource.type]
    return [replace(request, action=f"{request.action}.{name}") for name in names]


def _applied_json(
    request: Request, applied: Mapping[str, Any], explanations: Sequence[RequestExplanation]
) -> dict[str, Any]:
    tried = [{"operation": one.request.action, **_json(one)} for one in explanations]
    return {"request": request.to_json(), **applied, "tried": tried}


def _show_applied(console: Terminal, last: RequestExplanation, sql: str, *, denied: bool) -> None:
    """The answer, before the explanations of the filters that were tried, of which this is the last."""
    request, (kind, _, name) = last.request, last.request.action.partition(".")
    found = f"{kind.replace('_', ' ')} {name}" if last.decision.allowed else f"no {kind.replace('_', ' ')}"
    lacking = ": a value for its text is missing" if last.decision.allowed and denied else ""
    style = "bold red" if denied else "bold green"
    console.print_styled((found, style), f"{lacking}  user:{request.user} {request.resource}")
    console.print(f"  {sql}\n", soft_wrap=True)


def _json(explanation: RequestExplanation) -> dict[str, Any]:
    return {
        "request": explanation.request.to_json(),
        **explanation.decision.to_json(),
        "rule": rule_json(explanation.rule),
        "sets": [
            {"holds": all(p.holds for p in parts), "atoms": [_part_json(p) for p in parts]}
            for parts in explanation.sets
        ],
        "sets_complete": explanation.sets_complete,
        "turns": [[_change_json(change, explanation.request.user) for change in way] for way in explanation.turns],
        "proposals": [
            {
                "changes": [_change_json(change, explanation.request.user) for change in proposal.changes],
                "gains": proposal.gains,
                "exact": proposal.exact,
                "direct_grant": proposal.direct,
                "new_role": proposal.new_role,
            }
            for proposal in explanation.proposals
        ],
        "turns_complete": explanation.turns_complete,
        "demanding_flags": list(explanation.demanding),
        **(
            {}
            if explanation.request.active_roles is None
            else {"inactive_roles": list(explanation.inactive), "activating": list(explanation.activating)}
        ),
    }


def _part_json(part: Part) -> dict[str, Any]:
    return {
        "atom": part.atom,
        "holds": part.holds,
        "on": part.on,
        "through": part.through,
        "because": [[step_json(step) for step in chain] for chain in part.because],
        "denied": list(part.denied),
        "denied_by": [[step_json(step) for step in chain] for chain in part.denied_by],
    }


def _change_json(change: Change, user: str) -> dict[str, Any]:
    from privtab_analysis.changes import Give, RemoveDenial, change_kind, change_text

    plain: dict[str, Any]
    if isinstance(change, Give):
        plain = {"privilege": change.privilege, "entity": change.entity and str(change.entity)}
        plain = {key: value for key, value in plain.items() if value is not None}
        if change.table == "grants":
            plain |= {"also_at": list(map(str, change.also_at))} | ({} if change.to == "user" else {"to": change.to})
        elif change.table == "owners":
            plain["kind"] = change.to
    else:
        plain = asdict(change.row if isinstance(change, RemoveDenial) else change)
    for name, value in plain.items():
        if isinstance(value, dict):
            plain[name] = f"{value['type']}:{value['id']}"
    return {"change": change_kind(change), "text": change_text(change, user), **plain}


@dataclass
class _ExplanationPrinter:
    """Prints one explanation as text."""

    console: Terminal
    program: Program
    explanation: RequestExplanation
    everything: bool

    def __post_init__(self) -> None:
        explanation = self.explanation
        self.most_ways = len(explanation.sets) + len(explanation.proposals) if self.everything else MOST_WAYS
        self.most_chains = 10**6 if self.everything else MOST_CHAINS

    def show(self) -> None:
        """Print the decision, the rule and the reasons."""
        request, allowed = self.explanation.request, self.explanation.decision.allowed
        verdict = ("ALLOW", "bold green") if allowed else ("DENY", "bold red")
        asked = f"  user:{request.user} {request.action} {request.resource}{ask.besides(request)}"
        self.console.print_styled(verdict, asked)
        show_rule(self.console, self.program, self.explanation.rule)
        if allowed:
            self._allowed()
        else:
            self._denied()
        if self.explanation.inactive:
            self._title("not active")
            for role in self.explanation.inactive:
                self.console.print(f"  role:{role}")

    def _allowed(self) -> None:
        ways = [parts for parts in self.explanation.sets if all(part.holds for part in parts)]
        for number, parts in enumerate(ways[: self.most_ways], start=1):
            way = "allowed" if number == 1 else "also"
            self._title(f"{way} by" if parts else "allowed: anyone may")
            self._parts("", parts)
        self._more(len(ways) - self.most_ways, "way that holds", "ways that hold")
        self._cut(complete=self.explanation.sets_complete)
        others = [parts for parts in self.explanation.sets if not all(part.holds for part in parts)]
        for parts in others if self.everything else ():
            self._parts("not by", parts)
        if self.explanation.decision.effects:
            self._title("on success")
            for effect in self.explanation.decision.effects:
                self.console.print(f"  {effect}")

    def _denied(self) -> None:
        parts = list(dict.fromkeys(part for parts in self.explanation.sets for part in parts))
        self._parts("blocked by a denial", [part for part in parts if part.denied])
        self._parts("held already", [part for part in parts if part.holds])
        self._parts("missing, whatever is granted", [part for part in parts if part.fixed])
        if self.explanation.demanding:
            self._title(f"allowed without {' and '.join(f'`{flag}`' for flag in self.explanation.demanding)}")
        error = self.explanation.decision.context.get("error")
        found = self.explanation.proposals
        if error is not None:
            self._title(error["message"])
        elif self.explanation.activating:
            self._title("what would allow it")
            roles = " and ".join(f"role:{role}" for role in self.explanation.activating)
            self.console.print(f"  with {roles} active")
        elif not found and self.explanation.request.active_roles is not None:
            self._title("no role of the user that is not active would allow it")
        elif not found:
            complete = self.explanation.turns_complete
            nothing = "no grant, ownership, membership or role on these objects would allow it"
            self._title(nothing if complete else "nothing was found that would allow it")
            self._cut(complete=complete)
        else:
            several = "" if len(found) == 1 else f": any one of these {len(found)}, {_order(found)}"
            self._title(f"what would allow it{several}")
            for number, proposal in enumerate(found[: self.most_ways], start=1):
                self._way(number, proposal, len(str(min(len(found), self.most_ways))))
            self._more(len(found) - self.most_ways, "way", "ways")
            self._cut(complete=self.explanation.turns_complete)

    def _cut(self, *, complete: bool) -> None:
        """Print that the explanation is cut, since not all ways were computed."""
        if not complete:
            self.console.print("  not all ways are listed: there are too many", style="dim")

    def _way(self, number: int, proposal: Proposal, digits: int) -> None:
        from privtab_analysis.changes import Give, change_text

        user = self.explanation.request.user
        for n, change in enumerate(proposal.changes):
            label = f"{number:>{digits + 2}}  " if n == 0 else " " * (digits + 4)
            text = ("and " if n else "") + change_text(change, user)
            if proposal.new_role and isinstance(change, Give) and change.privilege is not None:
                text = text.removesuffix(f"user:{user}") + "a new role"
            self.console.print_styled((label, "dim"), text, end="")
            show_place(self.console, self._place(change), at=len(label) + len(text))
            if isinstance(change, Give) and change.also_at:
                *others, last = map(str, change.also_at)
                head = " " * (digits + 6) + "or at "
                show_words(
                    self.console, head, [*(f"{above}," for above in others), last], margin=len(head), style="dim"
                )
        if proposal.new_role:
            self.console.print(" " * (digits + 4) + f"and assign that role to user:{user}")
        if proposal.exact and len(self.explanation.proposals) > 1:
            gains = count(proposal.gains or 0, "permission")
            self.console.print(" " * (digits + 4) + f"which gives {gains}", style="dim")

    def _place(self, change: Change) -> str:
        from privtab.state import RowLocation
        from privtab_analysis.changes import RemoveDenial

        if not isinstance(change, RemoveDenial):
            return ""
        for chain in (chain for parts in self.explanation.sets for part in parts for chain in part.denied_by):
            row = change.row
            if chain[0].text == f"{row.privilege} denied to {row.grantee} at {row.entity}":
                return RowLocation.text_of(chain[0].place)
        return ""

    def _parts(self, title: str, parts: Sequence[Part]) -> None:
        """Print parts below a title; nothing without any."""
        if title and parts:
            self._title(title)
        for part in parts:
            self._part(part)

    def _part(self, part: Part) -> None:
        sign = ("  ✓ ", "green") if part.holds else ("  ✗ ", "red")
        state = "" if part.holds else "  denied" if part.denied else "  missing"
        self.console.print_styled(sign, part.atom, (state, "dim"))
        self._chains(part.denied_by)
        if part.because and part.denied:
            self.console.print("      though", style="dim")
        self._chains(part.because)

    def _chains(self, chains: tuple[Chain, ...]) -> None:
        for number, chain in enumerate(chains[: self.most_chains]):
            if number:
                self.console.print("      or", style="dim")
            show_rows(self.console, chain_rows(chain))
        self._more(len(chains) - self.most_chains, "row that gives it", "rows that give it", indent=6)

    def _title(self, text: str) -> None:
        self.console.print(f"\n{text}", style="bold")

    def _more(self, number: int, noun: str, nouns: str, *, indent: int = 2) -> None:
        self.console.more(number, noun if number == 1 else nouns, "`--all` shows them", indent=indent)


def _order(proposals: Sequence[Proposal]) -> str:
    """The order in which proposals are listed, in words."""
    exact = sum(proposal.exact for proposal in proposals)
    if exact == len(proposals):
        return "least privilege first"
    measured = sum(proposal.gains is not None for proposal in proposals)
    if not exact and measured:
        return "fewest rows first: the state is too large to count permissions"
    return f"least privilege first among {exact} that were counted" if exact else "not in order of privilege"
