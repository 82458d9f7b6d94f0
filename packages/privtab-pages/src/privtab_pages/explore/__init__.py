"""Pages over a policy and a state to look at: decisions, who and what, changes, as a server or as a folder; nothing is changed."""
