# Tests of the explanation by itself; of the policy in library.yaml.
package privtab.library.explain_test

import data.privtab.library.explain
import data.privtab.library.lib

test_only_the_smallest_sets_are_told if {
	found := explain.smallest_missing with explain.all_missing as {{"a"}, {"a", "b"}, {"b", "c"}}
	found == {{"a"}, {"b", "c"}}
}

test_the_empty_set_is_below_all_others if {
	explain.smallest_missing == {set()} with explain.all_missing as {set(), {"a"}}
}

test_missing_sets_come_smallest_first if {
	found := explain.missing with explain.all_missing as {{"b", "c"}, {"z"}, {"a"}}
		with explain.allowed as false
	found == [["a"], ["z"], ["b", "c"]]
}

test_nothing_is_missing_where_it_is_allowed if {
	explain.missing == [] with explain.all_missing as {{"a"}}
		with explain.allowed as true
}

test_an_entry_of_the_index_names_the_entities_of_its_rows if {
	lib.origins(true, "shelf:b/s") == ["shelf:b/s"]
	lib.origins(["branch:b"], "shelf:b/s") == ["branch:b"]
}

test_a_role_within_a_scope_is_told_by_its_own_name if {
	within := {"scoped:[\"shelf:b/s\",\"role:reader\"]": ["role:reader", "shelf:b/s"]}
	scoped := "scoped:[\"shelf:b/s\",\"role:reader\"]"
	explain.name_of(scoped) == "role:reader" with data.privtab_state.library.within as within
	explain.name_of("role:reader") == "role:reader" with data.privtab_state.library.within as within
}

test_an_atom_without_an_entity_is_told_by_its_type if {
	atom := {"kind": "owner", "slot": "", "type": "book", "index": 2, "single": null}
	explain.text(atom) == "owner (book)" with explain.paths as {"": ["branch:b", "shelf:b/s"]}
	explain.text(atom) == "owner (book:b/s/x)" with explain.paths as {"": ["branch:b", "shelf:b/s", "book:b/s/x"]}
}

test_a_single_entity_has_the_path_of_what_it_belongs_to if {
	atom := {"kind": "has", "privilege": "LOOK", "slot": "", "type": "card_index", "index": 0, "single": "card_index"}
	explain.text(atom) == "LOOK (card_index:b)" with explain.paths as {"": ["branch:b", "shelf:b/s", "book:b/s/x"]}
}

test_a_request_that_is_none_is_denied_and_says_so if {
	found := data.privtab.library.decision with input as {"action": {"name": "fly"}, "resource": {"type": "book"}}
		with data.privtab.library.lib.ready as true
	found.decision == false
	found.context.error.kind == "invalid_request"
}
