package privtab.library

import data.privtab.library.lib

# METADATA
# title: "get"
# description: "self or owner (branch)"
# scope: rule
# custom:
#   id: "library/user/get"
#   labels:
#     row: "user/get"
#     from: "row"
#     source: "rules.txt:9"
allowed(user, path) if {
	input.action.name == "get"
	input.resource.type == "user"
	count(path) == 2
	lib.member(user, path[0], path[0])
	user_get_either(user, path)
	lib.named(user)
}

user_get_either(user, path) if lib.is_self(user, path[1])

user_get_either(user, path) if lib.owns(user, path[0], path[0])
