# METADATA
# title: What callers may ask of this OPA
# description: |
#   For `opa run --server --authentication=token --authorization=basic opa/system/authz/authz.rego access.json` (or
#   `--authentication=tls`).
#   Everything is refused but
#     - `GET /health`, which tells nothing but ready or not, to everybody;
#     - questions to the policies, their filters and their doors, the policies' names and the revision of the state,
#       with the role `ask`;
#     - status, metrics and configuration, with the role `status`.
#   Policies and data cannot be read or written otherwise, with any token: bundles bring them.
#
#   Who has which role is in `data.privtab_access`, see docs/how-to/securing.md: tokens by their SHA-256, so that the
#   file does not contain the tokens themselves, and certificates by their subject.
# scope: package
package system.authz

default allow := false

allow if {
	input.path == ["health"]
	input.method == "GET"
	known_parameters({"bundles", "plugins", "exclude-plugin"})
}

allow if {
	question
	"ask" in roles
}

allow if {
	report
	"status" in roles
}

# What each policy answers. Nothing below or above it: a whole package would answer at length for everything at once.
# `inactive`, `state_revision` and `state_windowed` are of policies for states in shards; `concern` is for filters.
answers := {
	"allow", "check", "concern", "decision", "decisions", "explained", "inactive", "state_revision",
	"state_windowed", "visible",
}

# Each of these begins with a part of the path, by which OPA finds the one that counts.
question if {
	input.path[2] == "privtab"
	input.method in {"GET", "POST"}
	["v1", "data", "privtab", system, answer] = input.path
	answer in answers
	system_name(system)

	# `explain` would print how the answer came about, and with it what the state holds.
	known_parameters({"input", "pretty"})
}

# Which row filters and column masks apply.
question if {
	input.path[2] == "privtab"
	input.method in {"GET", "POST"}
	["v1", "data", "privtab", system, "filters", answer] = input.path
	answer in {"applied", "applied_many"}
	system_name(system)
	known_parameters({"input", "pretty"})
}

# What the doors of a policy answer, as the policy's bundle lists it.
question if {
	input.path[2] == "privtab"
	input.method in {"GET", "POST"}
	["v1", "data", "privtab", system, "doors", door, answer] = input.path
	every name in [system, door] {
		system_name(name)
	}
	answer in object.keys(data.privtab_program[system].doors[door].answers)
	known_parameters({"input", "pretty"})
}

# The names of all policies, which clients check requests by; those of one; its revision, and the name of its system.
question if {
	input.path[2] == "privtab_program"
	input.method == "GET"
	array.slice(input.path, 0, 2) == ["v1", "data"]
	program_part(array.slice(input.path, 3, count(input.path)))
	known_parameters({"pretty"})
}

# Of the state its revision alone.
question if {
	input.path[2] == "privtab_state"
	input.method == "GET"
	["v1", "data", "privtab_state", system, "revision"] = input.path
	system_name(system)
	known_parameters({"pretty"})
}

question if {
	input.path[2] == "privtab_state"
	input.method == "GET"
	["v1", "data", "privtab_state", system, "windowed", "revision"] = input.path
	system_name(system)
	known_parameters({"pretty"})
}

program_part([])

program_part([system]) if system_name(system)

program_part([system, value]) if {
	system_name(system)
	value in {"revision", "state", "system"}
}

report if {
	input.path in {["v1", "status"], ["v1", "config"], ["metrics"]}
	input.method == "GET"
	known_parameters({"pretty"})
}

# One name: OPA reads a `%2F` inside of it as another level of the document.
system_name(text) if regex.match(`^[a-z][a-z0-9_]*$`, text)

known_parameters(names) if object.keys(object.get(input, "params", {})) - names == set()

# A token's roles. A certificate's text is no token: where certificates are asked for, they alone count.
roles := data.privtab_access.tokens[crypto.sha256(input.identity)] if {
	no_certificate
	is_string(input.identity)
	input.identity != ""
}

# A certificate's roles, by the subject of the first one, which is the caller's own and was checked by TLS.
roles := data.privtab_access.certificates[input.identity] if {
	not no_certificate
	is_string(input.identity)
}

no_certificate if count(object.get(input, "client_certificates", [])) == 0
