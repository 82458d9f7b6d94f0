# What an expert would write for one operation of a query engine, the list of tables: privileges that show a table are one, and the
# data is entity → principal. `each` is the form that examples have: a decision for each item, by `with`.
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
