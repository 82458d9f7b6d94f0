package privtab.demo

state := data.privtab_state.demo

privilege := {"read": "READ", "list": "READ", "create": "WRITE", "copy": "WRITE"}

default allow := false

allow if permitted(input)

check := allow

default decision := {"decision": false, "context": {}}

decision := {"decision": true, "context": {"rule": rule_id, "effects": ["grant ALL (doc)"], "revision": "p1"}} if allow

decision := {"decision": false, "context": {"rule": rule_id, "missing": [[missing]], "effects": []}} if not allow

rule_id := sprintf("demo/%s/%s", [input.resource.type, input.action.name])

missing := sprintf("%s (%s:%s)", [privilege[input.action.name], input.resource.type, input.resource.id])

decisions := [answer |
	some item in input.requests
	answer := permitted_or_not(item)
] if input.requests

decisions := [answer |
	some item in input.items
	answer := holds_or_not(item[0], item[1])
] if input.items

explained := [answer |
	some item in input.requests
	answer := decision with input as item
]

visible := [at |
	some at, path in input.items
	holds(input.subject.id, privilege[input.action.name], path)
]

permitted(request) if {
	holds(request.subject.id, privilege[request.action.name], keys(request.resource))
	every extra in extras(request) {
		holds(request.subject.id, extra.privilege, extra.path)
	}
}

default permitted_or_not(_) := false

permitted_or_not(request) if permitted(request)

default holds_or_not(_, _) := false

holds_or_not(user, path) if holds(user, privilege[input.action.name], path)

holds(user, wanted, path) if {
	some key in path
	some principal in state.principals[user]
	state.allow[wanted][key][principal]
}

extras(request) := array.concat(
	[{"privilege": "READ", "path": keys(source)} |
		source := request.context["with"].source
	],
	[{"privilege": "ADMIN", "path": keys(request.resource)} |
		request.context.force == true
		request.action.name == "copy"
	],
)

keys(entity) := [sprintf("space:%s", [names[0]])] if {
	names := split(entity.id, "/")
	count(names) == 1
} else := [sprintf("space:%s", [names[0]]), sprintf("doc:%s", [entity.id])] if {
	names := split(entity.id, "/")
}
