"""The store: the rows of a state in a database, each change authorised by the policy and kept in a journal.

store = Store.open("grants.db", program)
store.perform(Request(user="ann", action="create_table", resource=Entity.parse("table:web/new")))
"""

from privtab_server.store.journal import Entry, Journal
from privtab_server.store.planning import Plan
from privtab_server.store.store import Outcome, Store

__all__ = ["Entry", "Journal", "Outcome", "Plan", "Store"]
