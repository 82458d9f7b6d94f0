"""The subjects of a matrix (users, or groups and roles considered alone), with their principals as numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from privtab.arrow import Codes, Lists, Truth
from privtab.engines.index import Index

NONE = np.int64(np.iinfo(np.int64).max)
"""Stands for no way: greater than every way."""

Holding: TypeAlias = tuple[str, str]
"""How a subject holds a role: through which group (empty: directly), and the key of the scope (empty: everywhere)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One subject of the matrix. `user`: its user name; None for a group or a role."""

    principal: str
    user: str | None
    principals: tuple[str, ...]
    scopes: Mapping[str, Iterable[str]]
    """By key of a scope, the declared roles held within it."""
    through: Mapping[str, tuple[Holding, ...]]
    """Role → its holdings, in the order of preference for reports; roles that are not held through a group may be missing."""


class SubjectArrays:
    """The subjects of a matrix as arrays."""

    def __init__(self, subjects: Sequence[Subject], index: Index, declared: Iterable[str]) -> None:
        self.labels = [subject.principal for subject in subjects]
        self.users = [subject.user for subject in subjects]
        self.count = len(subjects)
        self.number = {user: number for number, user in enumerate(self.users) if user is not None}
        self.abstract: Truth = np.array([user is None for user in self.users], np.bool_)
        """Which subjects are groups or roles; required memberships are assumed for them."""
        self.admin: Truth = np.array([user in index.service_admins for user in self.users], np.bool_)
        codes: dict[str, int] = {}
        owners, values = [], []
        for number, subject in enumerate(subjects):
            for principal in subject.principals:
                owners.append(number)
                values.append(codes.setdefault(principal, len(codes)))
        self.codes = codes
        owner_codes, value_codes = np.array(owners, np.int64), np.array(values, np.int64)
        self.principals = Lists(owner_codes, value_codes, self.count)
        self.holders = Lists(value_codes, owner_codes, len(codes))
        """Principal → subjects."""
        self.pairs: Codes = np.sort(owner_codes << 32 | value_codes)
        self._name(subjects, index, declared)

    def _name(self, subjects: Sequence[Subject], index: Index, declared: Iterable[str]) -> None:
        """Set the names of principals, sorted so that ways can be compared; a role within a scope has the role's name."""
        display_names = [index.within[p][0] if p in index.within else p for p in self.codes]
        all_names = {*display_names, *declared, *self.labels}
        self.names = sorted(all_names)
        rank = {name: number for number, name in enumerate(self.names)}
        self.rank: Codes = np.array([rank[name] for name in display_names], np.int64)
        """Principal → the rank of its name."""
        self.rank_of = rank
        self.own_rank: Codes = np.array([rank[label] for label in self.labels], np.int64)
        self.groups = sorted(
            {group for subject in subjects for holdings in subject.through.values() for group, _ in holdings}
        )
        self.number_of_group = {group: number for number, group in enumerate(self.groups)} | {"": -1}
        scoped_holdings: dict[tuple[Holding, ...], int] = {}
        group_codes = sorted(
            (
                number << 32 | rank[role],
                # If the preferred holding is unscoped, the group does not depend on the entity.
                -2 - scoped_holdings.setdefault(holdings, len(scoped_holdings))
                if holdings[0][1]
                else self.number_of_group[holdings[0][0]],
            )
            for number, subject in enumerate(subjects)
            for role, holdings in subject.through.items()
            if role in rank
        )
        self.mixed = list(scoped_holdings)
        self._group_keys: Codes = np.array([key for key, _ in group_codes], np.int64)
        self._group_codes: Codes = np.array([code for _, code in group_codes], np.int64)

    @cached_property
    def label_column(self) -> pa.StringArray:
        """The labels as an Arrow array, created once, since there may be as many as users."""
        return pa.array(self.labels, pa.string())

    @cached_property
    def user_column(self) -> pa.StringArray:
        """The users as an Arrow array."""
        return pa.array(self.users, pa.string())

    @cached_property
    def name_column(self) -> pa.StringArray:
        """The names of principals as an Arrow array."""
        return pa.array(self.names, pa.string())

    @cached_property
    def group_column(self) -> pa.StringArray:
        """The groups as an Arrow array."""
        return pa.array(self.groups, pa.string())

    def group(self, subjects: Codes, ranks: Codes) -> Codes:
        """The number of the group through which each subject holds the principal with that rank; -1: directly.

        A code below -1 means that it depends on the entity: the holdings are `mixed[-2 - code]`.
        """
        return values_of_keys(self._group_keys, self._group_codes, subjects << 32 | ranks)


def values_of_keys(keys: Codes, values: Codes, sought: Codes) -> Codes:
    """The value of each wanted key among sorted `keys`; -1 if it is missing."""
    if not len(keys):
        return np.full(len(sought), -1, np.int64)
    positions = np.minimum(np.searchsorted(keys, sought), len(keys) - 1)
    found: Codes = np.where(keys[positions] == sought, values[positions], -1)
    return found


def contained(keys: Codes, sought: Codes) -> Truth:
    """Whether each wanted key is among the sorted `keys`."""
    if not len(keys):
        return np.zeros(len(sought), np.bool_)
    positions = np.minimum(np.searchsorted(keys, sought), len(keys) - 1)
    found: Truth = keys[positions] == sought
    return found
