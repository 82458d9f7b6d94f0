package privtab.library

import data.privtab.library.lib

# METADATA
# title: "create"
# description: "can enter (shelf) and WRITE (shelf)"
# scope: rule
# custom:
#   id: "library/book/create"
#   labels:
#     row: "book/create"
#     from: "row"
#     source: "rules.txt:3"
allowed(user, path) if {
	input.action.name == "create"
	input.resource.type == "book"
	count(path) in {2, 3}
	book_create(user, path)
}

book_create(user, path) if {
	shelf_enter(user, array.slice(path, 0, 2))
	lib.has(user, "WRITE", array.slice(path, 0, 2))
}

# METADATA
# title: "read"
# description: "can enter (shelf) and (READ/WRITE (book) or owner (branch, shelf, book))"
# scope: rule
# custom:
#   id: "library/book/read"
#   labels:
#     row: "book/read"
#     from: "row"
#     source: "rules.txt:4"
allowed(user, path) if {
	input.action.name == "read"
	input.resource.type == "book"
	count(path) == 3
	book_read(user, path)
}

book_read(user, path) if {
	book_read_either(user, path)
	shelf_enter(user, array.slice(path, 0, 2))
}

book_read_either(user, path) if lib.has(user, "READ", path)

book_read_either(user, path) if lib.has(user, "WRITE", path)

book_read_either(user, path) if lib.owns_any(user, path)

# METADATA
# title: "list"
# description: "can enter (shelf)"
# scope: rule
# custom:
#   id: "library/book/list"
#   each: "can read (book)"
#   labels:
#     row: "book/list"
#     from: "row"
#     source: "rules.txt:5"
allowed(user, path) if {
	input.action.name == "list"
	input.resource.type == "book"
	count(path) == 3
	book_list_call(user, path)
	book_read(user, path)
}

allowed(user, path) if {
	input.action.name == "list"
	input.resource.type == "book"
	count(path) == 2
	book_list_call(user, path)
}

book_list_call(user, path) if shelf_enter(user, array.slice(path, 0, 2))

# METADATA
# title: "lend"
# description: "READ (book) and (WRITE (book) when overnight)"
# scope: rule
# custom:
#   id: "library/book/lend"
#   labels:
#     row: "book/lend"
#     from: "row"
#     source: "rules.txt:6"
allowed(user, path) if {
	input.action.name == "lend"
	input.resource.type == "book"
	count(path) == 3
	to_path := lib.with_object("to", {"user"})
	lib.member(user, path[0], path[0])
	lib.has(user, "READ", path)
	book_lend_when_overnight(user, path, to_path)
	lib.named(user)
}

book_lend_when_overnight(_, _, _) if not lib.flag("overnight")

book_lend_when_overnight(user, path, _) if lib.has(user, "WRITE", path)

# METADATA
# title: "place"
# description: "WRITE (book) and READ (beside)"
# scope: rule
# custom:
#   id: "library/book/place"
#   labels:
#     row: "book/place"
#     from: "row"
#     source: "rules.txt:7"
allowed(user, path) if {
	input.action.name == "place"
	input.resource.type == "book"
	count(path) == 3
	beside_path := lib.with_object("beside", {"book", "shelf"})
	lib.member(user, path[0], path[0])
	lib.has(user, "WRITE", path)
	book_place_for_beside(user, path, beside_path)
}

book_place_for_beside(user, _, beside_path) if {
	input.context["with"].beside.type == "book"
	lib.has(user, "READ", array.slice(beside_path, 0, 3))
}

book_place_for_beside(user, _, beside_path) if {
	input.context["with"].beside.type == "shelf"
	lib.has(user, "READ", array.slice(beside_path, 0, 2))
}

# METADATA
# title: "find"
# description: "LOOK (card_index)"
# scope: rule
# custom:
#   id: "library/book/find"
#   labels:
#     row: "book/find"
#     from: "row"
#     source: "rules.txt:8"
allowed(user, path) if {
	input.action.name == "find"
	input.resource.type == "book"
	count(path) == 3
	lib.member(user, path[0], path[0])
	lib.has(user, "LOOK", array.concat(array.slice(path, 0, 1), [lib.single(path[0], "card_index")]))
}
