package system.authz_test

import data.system.authz

access := {
	"tokens": {
		crypto.sha256("asks"): ["ask"],
		crypto.sha256("reports"): ["status"],
		crypto.sha256("both"): ["ask", "status"],
		crypto.sha256("CN=svc"): ["ask"],
	},
	"certificates": {"CN=svc": ["ask"], "asks": ["status"]},
}

allowed(method, path, identity) if may({"method": method, "path": split(path, "/"), "identity": identity})

may(request) if {
	authz.allow with input as request with data.privtab_access as access
}

questions := {
	["POST", "v1/data/privtab/shop/allow"],
	["GET", "v1/data/privtab/shop/allow"],
	["POST", "v1/data/privtab/shop/check"],
	["POST", "v1/data/privtab/shop/concern"],
	["POST", "v1/data/privtab/shop/decision"],
	["POST", "v1/data/privtab/shop/decisions"],
	["POST", "v1/data/privtab/shop/explained"],
	["POST", "v1/data/privtab/shop/visible"],
	["POST", "v1/data/privtab/shop/filters/applied"],
	["POST", "v1/data/privtab/shop/filters/applied_many"],
	["POST", "v1/data/privtab/shop/inactive"],
	["GET", "v1/data/privtab/shop/state_revision"],
	["GET", "v1/data/privtab/shop/state_windowed"],
	["GET", "v1/data/privtab_program"],
	["GET", "v1/data/privtab_program/shop"],
	["GET", "v1/data/privtab_program/shop/revision"],
	["GET", "v1/data/privtab_program/shop/system"],
	["GET", "v1/data/privtab_program/shop/state"],
	["GET", "v1/data/privtab_state/shop/revision"],
	["GET", "v1/data/privtab_state/shop/windowed/revision"],
}

reports := {["GET", "v1/status"], ["GET", "v1/config"], ["GET", "metrics"]}

nobodys := {
	["GET", ""],
	["POST", ""],
	["GET", "v1/data"],
	["POST", "v1/data"],
	["GET", "v1/data/privtab"],
	["GET", "v1/data/privtab/shop"],
	["POST", "v1/data/privtab/shop"],
	["POST", "v1/data/privtab/shop/lib"],
	["POST", "v1/data/privtab/shop/filters"],
	["POST", "v1/data/privtab/shop/filters/literal"],
	["POST", "v1/data/privtab/shop/filters/applied/sql"],
	["PUT", "v1/data/privtab/shop/filters/applied"],
	["POST", "v1/data/privtab/shop/allow/more"],
	["PUT", "v1/data/privtab/shop/allow"],
	["PATCH", "v1/data/privtab/shop/allow"],
	["DELETE", "v1/data/privtab/shop/allow"],
	["HEAD", "v1/data/privtab/shop/allow"],
	["POST", "v0/data/privtab/shop/allow"],
	["GET", "v1/data/privtab_program/shop/rules"],
	["PUT", "v1/data/privtab_program/shop"],
	["POST", "v1/data/privtab_program/shop"],
	["GET", "v1/data/privtab_state"],
	["GET", "v1/data/privtab_state/shop"],
	["GET", "v1/data/privtab_state/shop/windowed"],
	["GET", "v1/data/privtab_state/shop/allow"],
	["PUT", "v1/data/privtab_state/shop/revision"],
	["GET", "v1/data/privtab_access"],
	["GET", "v1/data/system"],
	["GET", "v1/policies"],
	["PUT", "v1/policies/mine"],
	["DELETE", "v1/policies/mine"],
	["GET", "v1/query"],
	["POST", "v1/query"],
	["POST", "v1/compile"],
	["POST", "v1/compile/privtab/shop/allow"],
	["POST", "v1/status"],
	["PUT", "v1/config"],
	["GET", "debug/pprof"],
	["GET", "health/live"],
	["POST", "health"],
}

identities := {"asks", "reports", "both", "CN=svc", "", "unknown", crypto.sha256("asks")}

test_questions_need_the_role_ask if {
	every question in questions {
		every identity in {"asks", "both", "CN=svc"} {
			allowed(question[0], question[1], identity)
		}
		every identity in identities - {"asks", "both", "CN=svc"} {
			not allowed(question[0], question[1], identity)
		}
	}
}

test_reports_need_the_role_status if {
	every report in reports {
		every identity in {"reports", "both"} {
			allowed(report[0], report[1], identity)
		}
		every identity in identities - {"reports", "both"} {
			not allowed(report[0], report[1], identity)
		}
	}
}

test_everything_else_is_refused_to_everybody if {
	every request in nobodys {
		every identity in identities {
			not allowed(request[0], request[1], identity)
		}
	}
}

test_health_is_open if {
	may({"method": "GET", "path": ["health"]})
	may({"method": "GET", "path": ["health"], "params": {"bundles": ["true"]}})
	not may({"method": "GET", "path": ["health"], "params": {"explain": ["full"]}})
}

test_without_an_identity_nothing_else_is if {
	every request in questions | reports {
		not may({"method": request[0], "path": split(request[1], "/")})
		not may({"method": request[0], "path": split(request[1], "/"), "identity": null})
	}
}

test_an_answer_is_not_explained_by_opa if {
	question := {"method": "POST", "path": ["v1", "data", "privtab", "shop", "allow"], "identity": "asks"}
	may(object.union(question, {"params": {"pretty": ["true"]}}))
	not may(object.union(question, {"params": {"explain": ["full"]}}))
	not may(object.union(question, {"params": {"instrument": ["true"], "pretty": ["true"]}}))
}

test_a_name_has_no_levels if {
	not may({"method": "POST", "path": ["v1", "data", "privtab", "shop/lib", "allow"], "identity": "asks"})
	not may({"method": "GET", "path": ["v1", "data", "privtab_state", "shop/allow", "revision"], "identity": "asks"})
	not may({"method": "GET", "path": ["v1", "data", "privtab_program", "shop/rules"], "identity": "asks"})
}

test_a_certificate_counts_by_its_subject_alone if {
	question := {"method": "POST", "path": ["v1", "data", "privtab", "shop", "allow"]}
	may(object.union(question, {"identity": "CN=svc", "client_certificates": [{}]}))
	not may(object.union(question, {"identity": "asks", "client_certificates": [{}]}))
	not may(object.union(question, {"identity": "CN=other", "client_certificates": [{}]}))
	not authz.allow with input as object.union(question, {"identity": "CN=svc", "client_certificates": []})
		with data.privtab_access as {"tokens": {}, "certificates": {"CN=svc": ["ask"]}}
}

test_without_a_list_of_roles_nothing_is_open if {
	not authz.allow with input as {"method": "GET", "path": ["v1", "status"], "identity": "reports"}
}

doors := {"shop": {"doors": {"till": {"answers": {"allow": {}, "batch": {}}}}}}

at_door(method, path) if {
	request := {"method": method, "path": split(path, "/"), "identity": "asks"}
	authz.allow with input as request
		with data.privtab_access as access
		with data.privtab_program as doors
}

test_of_a_door_what_its_policy_lists_is_open if {
	at_door("POST", "v1/data/privtab/shop/doors/till/allow")
	at_door("GET", "v1/data/privtab/shop/doors/till/batch")
	every path in {"lib", "lib/operation", "allow/more", "refused", ""} {
		not at_door("POST", $"v1/data/privtab/shop/doors/till/{path}")
	}
	not at_door("POST", "v1/data/privtab/shop/doors/till")
	not at_door("POST", "v1/data/privtab/shop/doors/other/allow")
	not at_door("POST", "v1/data/privtab/other/doors/till/allow")
	not at_door("PUT", "v1/data/privtab/shop/doors/till/allow")
	not at_door("GET", "v1/data/privtab_program/shop/doors")
	not allowed("POST", "v1/data/privtab/shop/doors/till/allow", "asks")
}
