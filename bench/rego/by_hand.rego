# What an expert would write for a single operation: may the user select from the table? The data is privilege → entity → role, and
# a list of the roles of each user, including those of groups; the caller sends the keys of the ancestors.
package by_hand

import data.by_hand_state as state

# METADATA
# entrypoint: true
default allow := false

allow if may_select(input.user, input.path)

# METADATA
# entrypoint: true
decisions := [answer |
	some item in input.items
	answer := may_select(item[0], item[1])
]

default may_select(_, _) := false

may_select(user, path) if {
	roles := state.roles[user]
	schema_path := array.slice(path, 0, 3)
	catalog_path := array.slice(path, 0, 2)
	allowed(roles, "SELECT_TABLE", path)
	allowed(roles, "USE_SCHEMA", schema_path)
	allowed(roles, "USE_CATALOG", catalog_path)
	not denied(roles, "SELECT_TABLE", path)
	not denied(roles, "USE_SCHEMA", schema_path)
	not denied(roles, "USE_CATALOG", catalog_path)
}

allowed(roles, privilege, path) if {
	some entity in path
	holders := state.allow[privilege][entity]
	some role in roles
	holders[role]
}

denied(roles, privilege, path) if {
	some entity in path
	holders := state.deny[privilege][entity]
	some role in roles
	holders[role]
}
