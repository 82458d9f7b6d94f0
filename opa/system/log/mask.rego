# METADATA
# title: What decision logs tell
# description: |
#   OPA asks `data.system.log.mask` before it writes a decision anywhere. Of a request only what decides is logged:
#   user, operation, resource, the objects beside it and the flags. Properties, groups among them, and whatever else a
#   caller sent are always left out, as is the SQL of filters, which contains their values.
#   `data.privtab_log` says what becomes of names:
#
#     {"privtab_log": {"users": "hash", "resources": "keep", "salt": "…"}}
#
#   `keep`, the default: as it is. `hash`: the SHA-256 of salt and name, so that lines of one user can be recognised.
#   `remove`: left out. Where users or resources are not kept, explanations go too, since they name them; rule, answer
#   and revision stay. Any other value, and `hash` without a salt, counts as `remove`.
# scope: package
package system.log

# --- the request: put together anew, so that nothing is in it that nobody thought of ---

mask contains {"op": "upsert", "path": "/input", "value": shown} if not is_null(object.get(input, "input", null))

# The answer: explanations name users and resources.
mask contains {"op": "remove", "path": $"/result/context/{part}"} if {
	hidden
	some part in {"missing", "reasons", "effects", "error"}
	is_object(input.result)
	_ = input.result.context[part]
}

mask contains {"op": "remove", "path": $"/result/{at}/context"} if {
	hidden
	is_array(input.result)
	_ = input.result[at].context
}

# What a filter divides by: names and attributes, of as much as the state has.
mask contains {"op": "remove", "path": $"/result/{part}"} if {
	some part in {"keys", "principals", "places", "attributed", "of_user", "of_entities"}
	is_object(input.result)
	_ = input.result[part]
}

# The SQL of row filters and column masks: what a caller, their groups and attributes are called stands in it.
mask contains {"op": "remove", "path": "/result/sql"} if {
	is_object(input.result)
	_ = input.result.sql
}

mask contains {"op": "remove", "path": $"/result/{at}/sql"} if {
	is_array(input.result)
	_ = input.result[at].sql
}

# At a door it stands anywhere.
mask contains {"op": "remove", "path": "/result"} if {
	["privtab", system, "doors", door, answer] = split(input.path, "/")
	data.privtab_program[system].doors[door].answers[answer].sql
}

# What a door says beside its answer.
mask contains {"op": "remove", "path": $"/result/{part}"} if {
	hidden
	at_door
	some part, value in input.result
	is_object(value)
}

shown := asked if not at_door

shown := through_door if at_door

asked := {key: value |
	some [key, value] in union({
		request_parts(input.input),
		{["requests", requests] | is_array(input.input.requests)},
		{["items", input.input.items] |
			not hidden
			is_array(input.input.items)
		},
	})
}

requests := shown_requests(input.input.requests)

shown_requests(list) := [{key: value | some [key, value] in request_parts(request)} | some request in list]

# Another system's request is logged as the policy's own, and why it is none.
at_door if {
	["privtab", _, "doors", _, _] = split(input.path, "/")
}

through_door := object.union(
	{"operation": logged.operation, "requests": shown_requests(logged.requests)},
	{"refused": refused | refused := object.remove(logged.refused, hidden_parts)},
) if {
	["privtab", system, "doors", door, answer] = split(input.path, "/")
	logged := data.privtab[system].doors[door].lib.logged[answer] with input as input.input
} else := {}

hidden_parts := {"message"} if {
	hidden
} else := set()

request_parts(request) := union({
	{["subject", entity(request.subject, users)] | is_object(request.subject)},
	{["action", {"name": request.action.name}] | is_string(request.action.name)},
	{["resource", entity(request.resource, resources)] | is_object(request.resource)},
	{["context", {name: value | some [name, value] in context_parts(request.context)}] | is_object(request.context)},
})

context_parts(context) := union({
	{[name, value] | some name, value in context; is_boolean(value)},
	{["with", {name: entity(object, resources) | some name, object in context["with"]}] | is_object(context["with"])},
})

# Type and name of a user, a resource or an object beside it.
entity(found, how) := {key: value |
	some [key, value] in union({
		{["type", found.type] | is_string(found.type)},
		{["id", named(found.id, how)] | is_string(found.id)},
	})
}

named(name, "keep") := name

named(name, "hash") := crypto.sha256(concat("", [settings.salt, name]))

# --- what is wanted ---

users := manner("users")

resources := manner("resources")

hidden if users != "keep"

hidden if resources != "keep"

manner(what) := "keep" if {
	object.get(settings, what, "keep") == "keep"
} else := "hash" if {
	settings[what] == "hash"
	is_string(settings.salt)
	settings.salt != ""
} else := "remove"

default settings := {}

settings := data.privtab_log
