package privtab.library

import data.privtab.library.lib

# METADATA
# title: "open"
# description: "service admin"
# scope: rule
# custom:
#   id: "library/branch/open"
#   labels:
#     row: "branch/open"
#     from: "row"
#     source: "rules.txt:1"
allowed(user, path) if {
	input.action.name == "open"
	input.resource.type == "branch"
	count(path) == 1
	lib.service_admin(user)
}
