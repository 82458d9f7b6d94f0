"""Who is asked about: users, and groups and roles as if somebody held nothing else, with their principals by number."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from privtab.engines.index import Index
from privtab.engines.lookups import Codes, Lists, Truth

NONE = np.int64(np.iinfo(np.int64).max)
"""No way: greater than every way."""

Holding: TypeAlias = tuple[str, str]
"""How somebody holds a role: the group by which (empty: in person), and the key of the scope (empty: everywhere)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One row of the matrix. `user`: the name that asks; None for a group or a role, which is nobody in person."""

    principal: str
    user: str | None
    principals: tuple[str, ...]
    scopes: Mapping[str, Iterable[str]]
    """The declared roles held within scopes, by the scope's key."""
    through: Mapping[str, tuple[Holding, ...]]
    """Role → how it is held, what is told first in front; roles that no group brings may be left off."""


class SubjectArrays:
    """The subjects of a matrix as arrays."""

    def __init__(self, subjects: Sequence[Subject], index: Index, declared: Iterable[str]) -> None:
        self.labels = [subject.principal for subject in subjects]
        self.users = [subject.user for subject in subjects]
        self.count = len(subjects)
        self.number = {user: at for at, user in enumerate(self.users) if user is not None}
        self.abstract: Truth = np.array([user is None for user in self.users], np.bool_)
        """Groups and roles: who belongs to what is taken as given for them."""
        self.admin: Truth = np.array([user in index.service_admins for user in self.users], np.bool_)
        codes: dict[str, int] = {}
        owners, values = [], []
        for at, subject in enumerate(subjects):
            for principal in subject.principals:
                owners.append(at)
                values.append(codes.setdefault(principal, len(codes)))
        self.codes = codes
        owner_codes, value_codes = np.array(owners, np.int64), np.array(values, np.int64)
        self.principals = Lists(owner_codes, value_codes, self.count)
        self.holders = Lists(value_codes, owner_codes, len(codes))
        """Principal → subjects."""
        self.pairs: Codes = np.sort(owner_codes << 32 | value_codes)
        self._name(subjects, index, declared)

    def _name(self, subjects: Sequence[Subject], index: Index, declared: Iterable[str]) -> None:
        """What principals are called: a role within a scope by the role's name. In order, so that ways can be compared."""
        called = [index.within[p][0] if p in index.within else p for p in self.codes]
        named = {*called, *declared, *self.labels}
        self.names = sorted(named)
        rank = {name: at for at, name in enumerate(self.names)}
        self.rank: Codes = np.array([rank[name] for name in called], np.int64)
        """Principal → the place of its name among all."""
        self.rank_of = rank
        self.own_rank: Codes = np.array([rank[label] for label in self.labels], np.int64)
        self.groups = sorted({group for subject in subjects for by in subject.through.values() for group, _ in by})
        self.number_of_group = {group: at for at, group in enumerate(self.groups)} | {"": -1}
        mixed: dict[tuple[Holding, ...], int] = {}
        by = sorted(
            (
                at << 32 | rank[role],
                # Held everywhere by what is told first: where it is asked about does not matter.
                -2 - mixed.setdefault(held, len(mixed)) if held[0][1] else self.number_of_group[held[0][0]],
            )
            for at, subject in enumerate(subjects)
            for role, held in subject.through.items()
            if role in rank
        )
        self.mixed = list(mixed)
        self._group_keys: Codes = np.array([key for key, _ in by], np.int64)
        self._group_codes: Codes = np.array([code for _, code in by], np.int64)

    @cached_property
    def label_column(self) -> pa.StringArray:
        """The labels as a column to take rows from; made once, since there may be as many as users."""
        return pa.array(self.labels, pa.string())

    @cached_property
    def user_column(self) -> pa.StringArray:
        """The users as such a column."""
        return pa.array(self.users, pa.string())

    @cached_property
    def name_column(self) -> pa.StringArray:
        """The names of principals as such a column."""
        return pa.array(self.names, pa.string())

    @cached_property
    def group_column(self) -> pa.StringArray:
        """The groups as such a column."""
        return pa.array(self.groups, pa.string())

    def group(self, subjects: Codes, ranks: Codes) -> Codes:
        """The group by which each subject holds the principal with that rank; -1: in person.

        Below: it depends on the place, by the holdings `mixed[-2 - code]`.
        """
        return looked_up(self._group_keys, self._group_codes, subjects << 32 | ranks)


def looked_up(keys: Codes, values: Codes, wanted: Codes) -> Codes:
    """The value of each wanted key among sorted ones; -1 where it is not there."""
    if not len(keys):
        return np.full(len(wanted), -1, np.int64)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    found: Codes = np.where(keys[at] == wanted, values[at], -1)
    return found


def among(keys: Codes, wanted: Codes) -> Truth:
    """Whether each wanted key is among the sorted ones."""
    if not len(keys):
        return np.zeros(len(wanted), np.bool_)
    at = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    found: Truth = keys[at] == wanted
    return found
