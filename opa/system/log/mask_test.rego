package system.log_test

import data.system.log

request := {
	"subject": {"type": "user", "id": "ann", "properties": {"groups": ["hr"]}, "cookie": "secret"},
	"action": {"name": "copy", "properties": {"why": "secret"}},
	"resource": {"type": "dataset", "id": "web/x", "properties": {"owner": "secret"}},
	"context": {"with": {"to": {"type": "project", "id": "lab", "secret": 1}}, "replace": true, "ip": "secret"},
	"token": "secret",
}

plain := {
	"subject": {"type": "user", "id": "ann"},
	"action": {"name": "copy"},
	"resource": {"type": "dataset", "id": "web/x"},
	"context": {"with": {"to": {"type": "project", "id": "lab"}}, "replace": true},
}

denial := {"decision": false, "context": {"rule": "r", "missing": [["READ (dataset:web/x)"]], "effects": []}}

shown(event) := value if {
	some {"op": "upsert", "path": "/input", "value": value} in log.mask with input as event
}

removed(event) := {path | some {"op": "remove", "path": path} in log.mask with input as event}

test_of_a_request_what_decides_is_shown if {
	shown({"input": request}) == plain
	removed({"input": request, "result": denial}) == set()
}

test_of_a_batch_too if {
	shown({"input": {"requests": [request, {"subject": "ann"}]}}) == {"requests": [plain, {}]}
	shown({"input": {"items": [["ann", ["project:web"]]], "action": {"name": "read"}}}) == {
		"items": [["ann", ["project:web"]]],
		"action": {"name": "read"},
	}
}

test_hashed_users_are_told_apart_and_not_told if {
	first := shown({"input": request}) with data.privtab_log as {"users": "hash", "salt": "s"}
	other := shown({"input": request}) with data.privtab_log as {"users": "hash", "salt": "t"}
	first.subject == {"type": "user", "id": crypto.sha256("sann")}
	other.subject.id != first.subject.id
	first.resource == plain.resource
}

test_hashing_without_a_salt_removes if {
	every settings in [{"users": "hash"}, {"users": "hash", "salt": ""}, {"users": "hash", "salt": 1}] {
		found := shown({"input": request}) with data.privtab_log as settings
		found.subject == {"type": "user"}
	}
}

test_removed_resources_are_nowhere if {
	event := {"input": request, "result": denial}
	found := shown(event) with data.privtab_log as {"resources": "remove"}
	found.subject == plain.subject
	found.resource == {"type": "dataset"}
	found.context == {"with": {"to": {"type": "project"}}, "replace": true}
	gone := removed(event) with data.privtab_log as {"resources": "remove"}
	gone == {"/result/context/missing", "/result/context/effects"}
}

test_items_and_explanations_go_where_names_are_hidden if {
	event := {"input": {"items": [["ann", ["project:web"]]]}, "result": [denial, true]}
	found := shown(event) with data.privtab_log as {"users": "remove"}
	found == {}
	gone := removed(event) with data.privtab_log as {"users": "remove"}
	gone == {"/result/0/context"}
}

test_what_is_said_wrongly_removes if {
	every settings in [{"users": "no"}, {"users": null}, "keep", ["keep"]] {
		found := shown({"input": request}) with data.privtab_log as settings
		found.subject == {"type": "user"}
	}
}

test_what_is_no_request_is_not_shown if {
	every value in ["secret", ["secret"], 7, {"subject": "secret", "requests": "secret", "items": "secret"}] {
		shown({"input": value}) == {}
	}
	log.mask == set() with input as {"path": "privtab_program"}
}

asked_at_door := {
	"path": "privtab/shop/doors/till/allow",
	"input": {"who": "ann", "token": "secret"},
	"result": {"allow": false, "refused": {"reason": "role_not_held", "message": "user:ann does not hold"}},
}

logged_of_door := {"allow": {
	"operation": "COPY",
	"requests": [request],
	"refused": {"reason": "role_not_held", "message": "user:ann does not hold"},
}}

test_what_a_door_is_asked_is_shown_as_the_policys_request if {
	found := shown(asked_at_door) with data.privtab.shop.doors.till.lib.logged as logged_of_door
	found == {"operation": "COPY", "requests": [plain], "refused": logged_of_door.allow.refused}
	removed(asked_at_door) == set()
}

test_names_at_a_door_are_hidden_too if {
	found := shown(asked_at_door) with data.privtab.shop.doors.till.lib.logged as logged_of_door
		with data.privtab_log as {"users": "remove", "resources": "remove"}
	found.requests[0].subject == {"type": "user"}
	found.refused == {"reason": "role_not_held"}
	gone := removed(asked_at_door) with data.privtab_log as {"users": "remove"}
	gone == {"/result/refused"}
}

test_of_a_door_that_is_not_there_nothing_is_shown if {
	shown(asked_at_door) == {}
}

test_what_a_filter_divides_by_is_left_out if {
	concern := {"revision": "r", "keys": ["dataset:web/x"], "principals": ["user:ann"], "end": []}
	removed({"input": request, "result": concern}) == {"/result/keys", "/result/principals"}
}

test_sql_is_left_out if {
	filter := {"name": "own", "sql": "team IN ('hr')"}
	removed({"path": "privtab/shop/filters/applied", "input": request, "result": filter}) == {"/result/sql"}
	many := {"path": "privtab/shop/filters/applied_many", "input": {"requests": [request]}, "result": [filter, filter]}
	removed(many) == {"/result/0/sql", "/result/1/sql"}
}

test_sql_at_a_door_is_left_out if {
	every result in [["team IN ('hr')"], {"expression": "team IN ('hr')"}, [{"index": 0, "sql": "team IN ('hr')"}]] {
		asked := object.union(asked_at_door, {"result": result})
		"/result" in removed(asked) with data.privtab_program.shop.doors.till.answers.allow as {"sql": true}
	}
	removed(asked_at_door) == set() with data.privtab_program.shop.doors.till.answers.allow as {"at": []}
}
