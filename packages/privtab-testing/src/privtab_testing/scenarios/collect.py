"""Turns paths into plans: which scenario files there are, and which policies they test."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from privtab.base import Diagnostic, PolicyInvalid, Severity, SourceFile, UsageError, dataclass
from privtab.ir import Can, Program, Rule, walk_reached
from privtab.language import YamlNode, compose_yaml
from privtab.pipeline import ChosenPolicy, find_policies, find_policy, resolve_policy, system_folder
from privtab.state import State
from privtab_testing.scenarios import Case, CasePlan, Subject, finding
from privtab_testing.scenarios.author import Author
from privtab_testing.scenarios.cases import read_cases, read_suites, read_walkthroughs
from privtab_testing.scenarios.needs import read_needs
from privtab_testing.scenarios.tree import Fields, ScenarioReader, read_params

MARK = "scenarios"
"""The key that marks a scenario file."""


def plans(paths: Iterable[str | Path]) -> list[CasePlan]:
    """The plan of every subject that the paths cover, sorted by policy.

    A path is a policy by name or file, with the scenario files for it in its folder; a scenario file; or a folder with
    everything below it. Of a policy with a variant or readings (`ChosenPolicy`): the files of this variant, whose own
    readings these replace. Raises PolicyInvalid with every finding.
    """
    found: list[Diagnostic] = []
    named = [ChosenPolicy.of(path) for path in paths]
    plain = [policy.policy for policy in named if not policy]
    scripts, policies = _scripts(plain, found) if plain or not named else ([], [])
    by_subject: dict[Subject, list[Script]] = {Subject(policy=policy): [] for policy in policies}
    for script in scripts:
        by_subject.setdefault(script.subject, []).append(script)
    for chosen in filter(None, named):
        path = find_policy(chosen.policy)
        subject = Subject(policy=path, variant=chosen.variant, readings=tuple(sorted(chosen.readings.items())))
        of_variant = [script for script in _scripts([path], found)[0] if script.subject.variant == chosen.variant]
        for script in of_variant:
            by_subject.setdefault(subject if chosen.readings else script.subject, []).append(script)
        if not of_variant:
            by_subject.setdefault(subject, [])
    all_plans = [_plan(s, by_subject[s], found) for s in sorted(by_subject, key=lambda s: s.title)]
    if any(diagnostic.severity is Severity.ERROR for diagnostic in found):
        raise PolicyInvalid(found)
    return [plan for plan in all_plans if plan is not None]


def _scripts(paths: Iterable[str | Path], found: list[Diagnostic]) -> tuple[list[Script], list[Path]]:
    """The scenario files that are given or lie beside a given policy, and the policies."""
    scripts: dict[Path, Script] = {}
    policies: set[Path] = set()
    for argument in map(Path, paths):
        path = system_folder(argument) or argument
        if path.is_file() and (".scenarios." in path.name or SourceFile.is_marked(path, MARK, unreadable=False)):
            scripts |= _read([path], found)
            continue
        folder_policies = find_policies([path])
        folders = sorted({policy.parent for policy in folder_policies} | ({path} if path.is_dir() else set()))
        files = [file for folder in folders for file in (folder.rglob if folder == path else folder.glob)("*.*")]
        candidates = _read(sorted({file for file in files if file.is_file() and is_scenarios(file)}), found)
        resolved_policies = {policy.resolve() for policy in folder_policies}
        matching = {
            file: script for file, script in candidates.items() if script.subject.policy.resolve() in resolved_policies
        }
        scripts |= matching
        policies |= set(folder_policies)
        if not matching and not folder_policies and not found:
            raise UsageError(f"no policy and no scenario file in {argument}")
    if not scripts and not policies:
        raise PolicyInvalid(found)
    return list(scripts.values()), sorted(policies)


def _read(files: Iterable[Path], found: list[Diagnostic]) -> dict[Path, Script]:
    read = ((file, read_script(file, default_policy(file), found)) for file in files)
    return {file.resolve(): script for file, script in read if script is not None}


def is_scenarios(path: Path) -> bool:
    """Return whether a file is meant as a scenario file, by its name or by its key."""
    return path.suffix in SourceFile.SUFFIXES and (
        ".scenarios." in path.name or SourceFile.is_marked(path, MARK, unreadable=False)
    )


def default_policy(path: Path) -> Path | None:
    """The policy of a file that names none: for `X.scenarios.yaml` `X.yaml`, else the only policy of the folder."""
    stem = path.name.partition(".scenarios.")[0]
    if stem != path.name:
        candidates = [path.with_name(f"{stem}{suffix}") for suffix in SourceFile.SUFFIXES]
        return next(filter(Path.is_file, candidates), candidates[0])
    neighbours = [policy for policy in find_policies([path.parent]) if policy.parent == path.parent]
    return neighbours[0] if len(neighbours) == 1 else None


def _plan(subject: Subject, scripts: list[Script], found: list[Diagnostic]) -> CasePlan | None:
    """All cases for a subject, from all its files."""
    program = _program(subject, scripts, found)
    if program is None:
        return None
    worlds: list[State] = []
    cases: list[Case] = []
    for script in scripts:
        states, file_cases = cases_of(script, program, found)
        cases += [replace(case, world=case.world + len(worlds)) if worlds else case for case in file_cases]
        worlds += states
    return CasePlan(
        subject=subject,
        program=program,
        files=tuple(script.source.path for script in scripts),
        worlds=tuple(worlds),
        cases=tuple(cases),
        rules=dict(_rules_to_cover(subject, program)),
    )


def _program(subject: Subject, scripts: list[Script], found: list[Diagnostic]) -> Program | None:
    """The program of a subject; its errors become findings, as errors of the scenarios do."""
    try:
        checked = resolve_policy(subject.policy, variant=subject.variant, readings=dict(subject.readings)).check()
        program, diagnostics = checked.program, checked.findings.kept
    except UsageError:
        findings = [diagnostic for script in scripts for diagnostic in _wrong_choices(subject, script)]
        if not findings:
            raise
        found += findings
        return None
    if program is None:
        found += [diagnostic for diagnostic in diagnostics if diagnostic.severity is Severity.ERROR]
    return program


def _wrong_choices(subject: Subject, script: Script) -> Iterator[Diagnostic]:
    """Findings for the variant, or else each reading, that a file selects and the policy does not have."""
    reader = ScenarioReader(script.source, [])
    if subject.variant is not None:
        try:
            resolve_policy(subject.policy, variant=subject.variant)
        except UsageError as error:
            yield finding("T101", reader.span(script.fields["variant"]), str(error))
            return
    for row, name in reader.pairs(script.fields.get("readings"), "`readings`"):
        if (row.value, name.value) in subject.readings:
            try:
                resolve_policy(subject.policy, variant=subject.variant, readings={row.value: name.value})
            except UsageError as error:
                span = row.span if str(error).startswith("no row") else name.span
                yield finding("T101", span, str(error))


def _rules_to_cover(subject: Subject, program: Program) -> Iterator[tuple[tuple[str, str], Rule]]:
    """The rules that cases should cover: all; for a variant, the rules that it changes; for other readings, those that they change in it."""
    if subject.variant is None and not subject.readings:
        yield from program.rules.items()
        return
    base_program = resolve_policy(subject.policy, variant=subject.variant if subject.readings else None).check().program
    for key, rule in program.rules.items():
        if base_program is None or _content(program, rule) != _content(base_program, base_program.rules.get(key)):
            yield key, rule


def _content(program: Program, rule: Rule | None) -> object:
    """The content of a rule and of the rules that it reaches."""
    if rule is None:
        return None
    reached = [node for node in walk_reached(program, rule.item_condition) if not isinstance(node, Can)]
    effects = rule.effects, rule.delegations
    return rule.gate, rule.requires, rule.each, rule.report, effects, rule.creates, rule.withs, tuple(reached)


FORMAT = "1"
READERS = {"cases": read_cases, "needs": read_needs, "suites": read_suites, "walkthroughs": read_walkthroughs}
_HEAD_HINT = "a scenario file begins with `scenarios: 1` and `policy: FILE.yaml`"
KEYS = ("scenarios", "policy", "variant", "readings", "title", "note", "state", "params", "let", *READERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """One scenario file as read, before it is checked against a program."""

    file: Path
    source: SourceFile
    subject: Subject
    fields: Mapping[str, YamlNode]


def check_script(path: Path, text: SourceFile) -> tuple[Diagnostic, ...]:
    """The findings of a scenario file whose text is given, as `plans` finds them in its file. Raises as `plans`."""
    found: list[Diagnostic] = []
    script = read_script(path, default_policy(path), found, text)
    program = None if script is None else _program(script.subject, [script], found)
    if script is not None and program is not None:
        cases_of(script, program, found)
    return tuple(sorted(set(found)))


def read_script(
    path: Path, default: Path | None, found: list[Diagnostic], text: SourceFile | None = None
) -> Script | None:
    """Read a file and its head; None after findings. `default`: the policy if the file names none; `text`: by default, what it has."""
    source_file = text or SourceFile.load(path)
    root = compose_yaml(source_file, found, _HEAD_HINT)
    if root is None:
        return None
    reader = ScenarioReader(source_file, found)
    fields = reader.fields(root, "a scenario file", KEYS, required=("scenarios",))
    if fields is None:
        return None
    reader.word(fields["scenarios"], "`scenarios`", (FORMAT,))
    policy = reader.text(fields.get("policy"), "`policy`")
    policy_path = default if policy is None else _policy(path, policy.value)
    if policy_path is None or not policy_path.is_file():
        node = fields.get("policy", fields["scenarios"])
        message = "the file names no policy" if policy_path is None else f"there is no policy {policy_path.as_posix()}"
        reader.report("T101", node, message, "write `policy: FILE.yaml`, from the folder of this file")
        return None
    variant = reader.text(fields.get("variant"), "`variant`")
    readings = tuple((row.value, name.value) for row, name in reader.pairs(fields.get("readings"), "`readings`"))
    subject = Subject(
        policy=policy_path, variant=None if variant is None else variant.value, readings=tuple(sorted(readings))
    )
    return Script(file=path, source=source_file, subject=subject, fields=fields)


def _policy(path: Path, name: str) -> Path:
    sibling = path.parent / name
    if sibling.is_file() or Path(name).suffix in SourceFile.SUFFIXES:
        return sibling
    return path.parent / f"{name}.yaml"


def cases_of(script: Script, program: Program, found: list[Diagnostic]) -> tuple[list[State], list[Case]]:
    """All cases of a file, and their states."""
    reader = ScenarioReader(script.source, found)
    fields: Fields = dict(script.fields)
    let_entries = reader.entries(fields.get("let"), "`let`")
    lets = {key.text: value for key, value in let_entries}
    params = read_params(reader, fields.get("params"))
    author = Author(reader, program, script.file.parent, params, lets, fields.get("state"))
    for key, read in READERS.items():
        if key in fields:
            read(author, fields[key])
    if not author.cases and not found:
        reader.report("T203", fields["scenarios"], "the file has no cases")
    return author.states, author.cases
