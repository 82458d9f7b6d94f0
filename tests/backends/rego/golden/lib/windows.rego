# Rows that hold for a time. A state with such rows lies where rules that know no time find nothing. What holds at any
# time is there as in other states; in `windows`, times are in the place of `true`: pairs of nanoseconds, from the first
# on and before the second.
package privtab.library.lib

import data.privtab_state.library as state
import data.privtab_state.library.windowed as timed

# Whether rows of the state hold for a time.
default windowed := false

windowed if timed.revision

ready if timed.revision

now := time.now_ns()

open_now(times) if {
	some [begin, end] in times
	begin <= now
	now < end
}

# The user's principals at the moment: themselves, their groups, their roles.
all_principals(user) := array.concat(user_always(user), [principal |
	some principal, times in timed.windows.principals[user]
	open_now(times)
]) if {
	timed.revision
}

user_always(user) := split(timed.principals[user], "\n")

user_always(user) := [] if not timed.principals[user]

# Declared roles of a user that count within one of these keys.
scoped_now(user, keys) := union({
	{principal | some principal in timed.scoped[user][keys[_]]},
	{principal |
		some principal, times in timed.windows.scoped[user][keys[_]]
		open_now(times)
	},
})

has(user, privilege, keys) if {
	timed.revision
	principals_now := all_principals(user)
	granted_now(principals_now, privilege, keys)
	not denied_now(principals_now, privilege, keys)
}

granted_now(principals_now, privilege, keys) if {
	holders := timed.allow[privilege][keys[_]]
	holders[principals_now[_]]
}

granted_now(principals_now, privilege, keys) if {
	holders := timed.windows.allow[privilege][keys[_]]
	some times in holders[principals_now[_]]
	open_now(times)
}

denied_now(principals_now, privilege, keys) if {
	holders := timed.deny[privilege][keys[_]]
	holders[principals_now[_]]
}

denied_now(principals_now, privilege, keys) if {
	holders := timed.windows.deny[privilege][keys[_]]
	some times in holders[principals_now[_]]
	open_now(times)
}

owns(user, key) if {
	timed.revision
	owned_now(all_principals(user), [key])
}

owns_any(user, keys) if {
	timed.revision
	owned_now(all_principals(user), keys)
}

owned_now(principals_now, keys) if {
	owners := timed.owners[keys[_]]
	owners[principals_now[_]]
}

owned_now(principals_now, keys) if {
	owners := timed.windows.owners[keys[_]]
	open_now(owners[principals_now[_]])
}

in_group_named(user, name) if {
	timed.revision
	$"group:{name}" in all_principals(user)
}

holds_named(user, name) if {
	timed.revision
	some principal in all_principals(user)
	named_role(principal) == $"role:{name}"
}

named_role(principal) := state.within[principal][0]

named_role(principal) := principal if not state.within[principal]

owner(_, key, principal) if owned_now([principal], [key])

allowed_on(_, privilege, key, principal) := array.concat(
	[origin | some origin in origins(timed.allow[privilege][key][principal], key)],
	[origin |
		some origin, times in timed.windows.allow[privilege][key][principal]
		open_now(times)
	],
) if {
	timed.revision
}

denied_on(_, privilege, key, principal) := array.concat(
	[origin | some origin in origins(timed.deny[privilege][key][principal], key)],
	[origin |
		some origin, times in timed.windows.deny[privilege][key][principal]
		open_now(times)
	],
) if {
	timed.revision
}
