"""Paths below `/api/metalakes`, and the names of their objects in bodies: data alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The paths and the names in answers of objects of a type."""

    folder: str = ""
    """The part of the path that holds them, in the path of what contains them."""
    one: str
    """The name of one of them in a body."""
    many: str = ""
    """The name of several; as a rule, the name of one with an `s`."""
    listed: str = "names"
    """The name of a listing without details; empty if listings always have them."""
    gone: tuple[str, ...] = ("dropped",)
    """The fields of success in the answer to a deletion."""
    lower: tuple[str, ...] = ()
    """Fields of enumerations, which are answered in lower case."""
    deep: str = ""
    """The parameter without which one that holds others is not deleted."""
    rows: tuple[str, ...] = ("audit",)
    """Fields that are rows or come from the journal: they are not part of what describes an object."""
    default: tuple[str, str] | None = None
    """A field that has the value of another one where it is missing."""
    wrapped: bool = False
    """True if the body of a creation has the object in a field, and its answer leaves it out."""


KINDS: Mapping[str, Kind] = {
    "metalake": Kind(one="metalake", listed="", deep="force"),
    "catalog": Kind(
        folder="catalogs",
        one="catalog",
        listed="identifiers",
        deep="force",
        lower=("type",),
        default=("provider", "type"),
    ),
    "schema": Kind(folder="schemas", one="schema", listed="identifiers", deep="cascade"),
    "table": Kind(folder="tables", one="table", listed="identifiers"),
    "view": Kind(folder="views", one="view", listed="identifiers"),
    "topic": Kind(folder="topics", one="topic", listed="identifiers"),
    "fileset": Kind(folder="filesets", one="fileset", listed="identifiers", lower=("type",)),
    "model": Kind(folder="models", one="model", listed="identifiers"),
    "function": Kind(folder="functions", one="function", listed="identifiers", lower=("functionType",)),
    "user": Kind(folder="users", one="user", gone=("removed",), rows=("audit", "roles")),
    "group": Kind(folder="groups", one="group", gone=("removed",), rows=("audit", "roles")),
    "role": Kind(folder="roles", one="role", gone=("dropped", "deleted"), rows=("audit", "securableObjects")),
    "tag": Kind(folder="tags", one="tag"),
    "policy": Kind(folder="policies", one="policy", many="policies"),
    "job_template": Kind(folder="jobs/templates", one="jobTemplate", lower=("jobType",), wrapped=True),
}
"""The objects that are created, listed, loaded, altered and deleted, each in the folder of what contains it in the policy."""
ACTS = (
    ("GET", "{}/objects/{}/{}/roles", "roles_of_object"),
    ("GET", "{}/objects/{}/{}/tags", "tags_of_object"),
    ("GET", "{}/objects/{}/{}/tags/{}", "tag_of_object"),
    ("POST", "{}/objects/{}/{}/tags", "tag_object"),
    ("GET", "{}/tags/{}/objects", "objects_of_tag"),
    ("GET", "{}/owners/{}/{}", "owner"),
    ("PUT", "{}/owners/{}/{}", "set_owner"),
    ("PUT", "{}/permissions/roles/{}", "override"),
    ("PUT", "{}/permissions/roles/{}/{}/{}/grant|revoke", "permit"),
    ("PUT", "{}/permissions/users|groups/{}/grant|revoke", "assign"),
)
"""The other paths, and the methods of ApiRequest that take what stands for `{}` and for alternatives."""
