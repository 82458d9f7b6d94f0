# METADATA
# title: Why a decision is what it is
# description: >-
#   Reads the minimal sets of the row from the program in the bundle, so it knows no table. An allow tells by which set
#   and through whom; a denial lists the smallest sets of atoms each of which would turn it.
package privtab.library.explain

import data.privtab.library.lib
import data.privtab_program.library as program
import data.privtab_state.library as state

default allowed := false

allowed := data.privtab.library.allow

rule := program.rules[input.resource.type][input.action.name]

user := lib.subject

who := lib.all_principals(user)

# METADATA
# title: The context of a decision
# scope: document
context := object.union(completeness, {
	"rule": rule.id,
	"missing": missing,
	"reasons": reasons,
	"effects": effects,
	"source": rule.source,
	"revision": program.revision,
}) if {
	valid
}

context := {
	"error": {"kind": "invalid_request", "message": "unknown operation, entity type, or path of another depth"},
	"missing": [],
	"reasons": [],
	"effects": [],
	"revision": program.revision,
} if {
	not valid
	count(unsaid) == 0
}

context := {
	"error": {"kind": "invalid_request", "message": concat("", [
		"the context must say of these flags whether they are set, true or false: ",
		concat(", ", sort(unsaid)),
	])},
	"missing": [],
	"reasons": [],
	"effects": [],
	"revision": program.revision,
} if {
	count(unsaid) > 0
}

# Flags that the operation requires and the request does not mention.
unsaid contains flag if {
	some flag in rule.required_flags
	not lib.said(flag)
}

default valid := false

valid if {
	lib.subject
	lib.well_formed
	form
	count(unsaid) == 0
	every name, types in rule["with"] {
		lib.with_object(name, {type | some type in types})
	}
}

# The keys of the resource, and of each `with` object.
paths[""] := lib.path(input.resource)

paths[name] := lib.path(entity) if {
	some name, entity in input.context["with"]
	name != ""
}

form := "item" if count(paths[""]) == count(lib.chains[input.resource.type])

form := "call" if {
	rule.unnamed
	count(paths[""]) == count(lib.chains[input.resource.type]) - 1
	not program.entities[input.resource.type].single
}

flags_set := [flag |
	some flag in rule.flags
	lib.flag(flag)
]

object_types := [concat("=", [slot, input.context["with"][slot].type]) |
	some slot in sort(object.keys(rule["with"]))
	count(rule["with"][slot]) > 1
]

variant := concat(" ", array.concat(flags_set, object_types))

minimal_sets := rule.minimal[form][variant]

# The program may leave out minimal sets of a row that has very many; an explanation that lacks some says so.
default completeness := {}

completeness := {"minimal_sets_complete": false} if cut

cut if not minimal_sets

cut if variant in rule.minimal_cut[form]

# What is missing.
default missing := []

missing := [pair[1] |
	not allowed
	some pair in sort([[count(atoms), sort(atoms)] | some atoms in smallest_missing])
]

smallest_missing := {atoms |
	some atoms in all_missing
	not some_smaller(atoms)
}

some_smaller(atoms) if {
	some other in all_missing
	other != atoms
	count(other - atoms) == 0
}

all_missing := {atoms |
	some row in minimal_sets
	atoms := union({missing_of[i] | some i in row})
}

missing_of[i] := set() if {
	some i, atom in rule.atoms
	holds(atom)
}

missing_of[i] := {text(atom)} if {
	some i, atom in rule.atoms
	atom.kind != "has"
	not holds(atom)
}

missing_of[i] := denials(atom) if {
	some i, atom in rule.atoms
	atom.kind == "has"
	not holds(atom)
	granted(atom)
}

missing_of[i] := {text(atom)} | denials(atom) if {
	some i, atom in rule.atoms
	atom.kind == "has"
	not holds(atom)
	not granted(atom)
}

# What holds, and through whom.
default reasons := []

reasons := [reason(rule.atoms[i]) | some i in held[0]] if {
	allowed
	count(held) > 0
}

held := [row |
	some row in minimal_sets
	every i in row {
		holds(rule.atoms[i])
	}
]

reason(atom) := {"atom": text(atom), "on": key(atom), "through": through(atom)} if {
	not atom.kind in {"has", "self", "service_admin"}
}

reason(atom) := {"atom": text(atom), "through": through(atom)} if atom.kind in {"self", "service_admin"}

reason(atom) := {"atom": text(atom), "on": found[1], "through": found[2]} if {
	atom.kind == "has"
	found := sort(owner_ways(atom))[0]
}

reason(atom) := {"atom": text(atom), "on": found[1], "through": found[2]} if {
	atom.kind == "has"
	count(owner_ways(atom)) == 0
	found := sort(grant_ways(atom))[0]
}

# Nearest first: [distance from the object, key, principal].
owner_ways(atom) := {[distance, keys[position], $"owner {principal}"] |
	atom.privilege in program.semantics.owner.holds
	keys := looked_at(atom)
	some position
	distance := (count(keys) - 1) - position
	some principal in who
	lib.owner(root(atom), keys[position], principal)
}

grant_ways(atom) := {[distance, origin, name] |
	keys := looked_at(atom)
	some key in keys
	some principal in who
	origins := lib.allowed_on(root(atom), atom.privilege, key, principal)
	name := name_of(principal)
	some origin in origins
	some position, place in keys
	place == origin
	distance := (count(keys) - 1) - position
} | {[distance, key, role] |
	keys := keys_of(atom)
	some position, key in keys
	key in looked_at(atom)
	distance := (count(keys) - 1) - position
	some role in declared(array.slice(keys, 0, position + 1))
	atom.privilege in program.roles[trim_prefix(role, "role:")].grants[split(key, ":")[0]]
}

granted(atom) if count(grant_ways(atom)) > 0

denials(atom) := {$"deny {atom.privilege} ({origin}) to {name_of(principal)}" |
	program.semantics.deny == "overrides"
	some key in looked_at(atom)
	some principal in who
	some origin in lib.denied_on(root(atom), atom.privilege, key, principal)
}

# The user's declared roles that count at the last of the keys.
declared(keys) := ({principal |
	some principal in who
	startswith(principal, "role:")
	program.roles[trim_prefix(principal, "role:")]
} | lib.scoped(user, keys)) | lib.scoped_now(user, keys)

# A role within a scope is told by its own name, and by the entities that the rows of the state name.
name_of(principal) := state.within[principal][0]

name_of(principal) := principal if not state.within[principal]

looked_at(atom) := keys_of(atom) if program.semantics.inheritance == "down"

looked_at(atom) := [key(atom)] if program.semantics.inheritance == "none"

# The keys from the root to an atom's target; undefined where the request does not name it.
keys_of(atom) := array.slice(paths[atom.slot], 0, atom.index + 1) if {
	atom.single == null
	paths[atom.slot][atom.index]
}

keys_of(atom) := array.concat(array.slice(paths[atom.slot], 0, atom.index + 1), below) if {
	atom.single != null
	paths[atom.slot][atom.index]
	below := [lib.single(paths[atom.slot][atom.index], link[0]) |
		some i, link in lib.chains[atom.single]
		i > atom.index
	]
}

key(atom) := keys[count(keys) - 1] if keys := keys_of(atom)

# The key of the root entity on the path, below which the state of an atom's target is found.
root(atom) := paths[atom.slot][0]

default key_or_type(_) := ""

key_or_type(atom) := key(atom)

key_or_type(atom) := atom.type if not key(atom)

text(atom) := $"{atom.privilege} ({key_or_type(atom)})" if atom.kind == "has"

text(atom) := $"{atom.kind} ({key_or_type(atom)})" if atom.kind in {"owner", "member", "holds"}

text(atom) := "self" if atom.kind == "self"

text(atom) := "service admin" if atom.kind == "service_admin"

holds(atom) if {
	atom.kind == "has"
	lib.has(user, atom.privilege, keys_of(atom))
}

holds(atom) if {
	atom.kind == "owner"
	lib.owns(user, root(atom), key(atom))
}

holds(atom) if {
	atom.kind == "member"
	lib.member(user, root(atom), key(atom))
}

holds(atom) if {
	atom.kind == "self"
	lib.is_self(user, key(atom))
}

holds(atom) if {
	atom.kind == "holds"
	lib.holds(user, key(atom))
}

holds(atom) if {
	atom.kind == "service_admin"
	lib.service_admin(user)
}

# Membership: [order, through].
ways_in(atom) := union({
	{[0, concat("", ["user:", user])] | lib.shard(root(atom)).members[key(atom)][user]},
	{[1, $"group:{name}"] |
		program.entities[atom.type].principal == "group"
		some name in lib.names_of(key(atom))
		lib.in_group_named(user, name)
	},
})

through(atom) := $"user:{user}" if atom.kind in {"self", "service_admin"}

through(atom) := sort(ways_in(atom))[0][1] if atom.kind == "member"

through(atom) := sort({principal |
	some principal in who
	lib.owner(root(atom), key(atom), principal)
})[0] if {
	atom.kind == "owner"
}

through(atom) := sort({$"role:{name}" |
	some name in lib.names_of(key(atom))
	lib.holds_named(user, name)
})[0] if {
	atom.kind == "holds"
}

# What success does.
default effects := []

effects := [$"{effect.text} ({key_or_type(effect.target)})" | some effect in rule.effects] if allowed
