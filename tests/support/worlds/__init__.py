"""Random policies, states and requests from a seed: small worlds that combine all features of the language.

A seed gives the same world in every version. What the language gained later is a feature with a module of its own, which draws
from `features.generator(name, seed)`: a world has it only if the caller lists it. States and requests follow the policy.
"""

from worlds.asking import choices, requests, stated_flags, with_unusable_names
from worlds.names import GROUPS, PRIVILEGES, ROLES, USERS, Names, entity, names
from worlds.policies import FEATURES, IN_PORTIONS, IN_SPARK, SHARDED, policy
from worlds.states import EPOCH, moments, state, timed

__all__ = [
    "EPOCH",
    "FEATURES",
    "GROUPS",
    "IN_PORTIONS",
    "IN_SPARK",
    "PRIVILEGES",
    "ROLES",
    "SHARDED",
    "USERS",
    "Names",
    "choices",
    "entity",
    "moments",
    "names",
    "policy",
    "requests",
    "state",
    "stated_flags",
    "timed",
    "with_unusable_names",
]
