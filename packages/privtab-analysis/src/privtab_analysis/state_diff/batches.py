"""Batches of subjects who are affected by changed rows at the same places."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from privtab_analysis.state_diff.subjects import Subject


class Batch(NamedTuple):
    """Subjects that are affected at or below some paths, `roots`, apart from `others`: at or below these, other subjects are, too, or only some."""

    subjects: Sequence[Subject]
    roots: frozenset[str]
    others: frozenset[str] = frozenset()


class AffectedPlaces:
    """The paths at or below which subjects are affected."""

    def __init__(self, affected: Mapping[Subject, Collection[str]]) -> None:
        by_paths: dict[frozenset[str], list[Subject]] = defaultdict(list)
        for subject in sorted(affected):
            by_paths[frozenset(affected[subject])].append(subject)
        self._groups = list(by_paths.items())
        """Paths, and the subjects that are affected at or below exactly these."""
        listed: dict[str, set[int]] = defaultdict(set)
        for number, paths in enumerate(by_paths):
            for path in paths:
                listed[path].add(number)
        self._at: dict[str, frozenset[int]] = {}
        """The groups that are affected at a path, or at one that contains it."""
        for path in sorted(listed):
            self._at[path] = self._at.get(self._nearest(path), frozenset()) | listed[path]
        self._subjects: dict[frozenset[int], frozenset[Subject]] = {frozenset(): frozenset()}

    def _nearest(self, path: str) -> str:
        """The longest of the paths that is a prefix of a path; the root if there is none."""
        while path and path not in self._at:
            path = path.rpartition("/")[0]
        return path

    def subjects(self, path: str) -> frozenset[Subject]:
        """The subjects that are affected at a path."""
        return self._of(self._at.get(self._nearest(path), frozenset()))

    def _of(self, groups: frozenset[int]) -> frozenset[Subject]:
        if groups not in self._subjects:
            self._subjects[groups] = frozenset(chain.from_iterable(self._groups[number][1] for number in groups))
        return self._subjects[groups]

    def batches(self) -> list[Batch]:
        """Each subject with each of its paths, in as few batches as possible: by the subjects of paths, or by the paths of subjects."""
        by_groups: dict[frozenset[int], list[str]] = defaultdict(list)
        inner: dict[frozenset[int], set[str]] = defaultdict(set)
        for path in sorted(self._at):
            by_groups[self._at[path]].append(path)
            if path:
                inner[self._at.get(self._nearest(path.rpartition("/")[0]), frozenset())].add(path)
        if len(by_groups) >= len(self._groups):
            return [Batch(subjects, paths) for paths, subjects in self._groups]
        found = []
        for groups, paths in by_groups.items():
            others = inner[groups].union(*(self._groups[number][0] for number in groups))
            found.append(Batch(sorted(self._of(groups)), frozenset(paths), frozenset(others.difference(paths))))
        return found
