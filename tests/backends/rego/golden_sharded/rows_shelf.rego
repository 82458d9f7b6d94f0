package privtab.library

import data.privtab.library.lib

# METADATA
# title: "enter"
# description: "owner (branch, shelf) or READ (shelf)"
# scope: rule
# custom:
#   id: "library/shelf/enter"
#   labels:
#     row: "shelf/enter"
#     from: "row"
#     source: "rules.txt:2"
allowed(user, path) if {
	input.action.name == "enter"
	input.resource.type == "shelf"
	count(path) == 2
	shelf_enter(user, path)
}

shelf_enter(user, path) if {
	lib.member(user, path[0], path[0])
	shelf_enter_either(user, path)
}

shelf_enter_either(user, path) if lib.has(user, "READ", path)

shelf_enter_either(user, path) if lib.owns_any(user, path)
