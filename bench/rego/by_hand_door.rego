# What an expert would write for one operation of a query engine, the list of tables: privileges that show a table are one, and the
# data is entity → principal. `seen` also knows denials, owners, groups and what lies below, as the policy does. `each` is the form that examples have: a decision for each item, by `with`.
package by_hand_door

import data.by_hand_door_state as state

default batch := []

batch := [position |
	some position, given in input.action.filterResources
	shown(given.table)
] if {
	input.action.operation == "FilterTables"
}

each contains position if {
	some position
	given := input.action.filterResources[position]
	allow with input.action.resource as given
}

default allow := false

allow if {
	input.action.operation == "FilterTables"
	shown(input.action.resource.table)
}

shown(table) if {
	schema := concat("/", [table.catalogName, table.schemaName])
	own := concat("/", [schema, table.tableName])
	some key in [own, schema, table.catalogName]
	holders := state.shows[key]
	some principal in state.principals[input.context.identity.user]
	holders[principal]
}

default seen := []

seen := [position |
	some position, given in input.action.filterResources
	visible(given.table)
] if {
	input.action.operation == "FilterTables"
	trim(input.context.identity.user, "*?") != ""
}

principals := array.concat(
	object.get(state.principals, input.context.identity.user, []),
	[$"group:{group}" | some group in array.concat(input.context.identity.groups, ["public"])],
)

visible(table) if {
	keys := keys_of(table)
	some key in keys
	holders := state.shows[key]
	some principal in principals
	holders[principal]
	not denied(keys)
}

visible(table) if {
	some key in keys_of(table)
	holders := state.owners[key]
	some principal in principals
	holders[principal]
}

visible(table) if {
	holders := state.below[keys_of(table)[0]]
	some principal in principals
	holders[principal]
}

denied(keys) if {
	some key in keys
	holders := state.denies[key]
	some principal in principals
	holders[principal]
}

keys_of(table) := [own, schema, table.catalogName, ""] if {
	schema := concat("/", [table.catalogName, table.schemaName])
	own := concat("/", [schema, table.tableName])
	regex.match(`^[^/%*?\x00-\x1f]+/[^/%*?\x00-\x1f]+/[^/%*?\x00-\x1f]+$`, own)
}
