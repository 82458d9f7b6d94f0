"""Plug-ins for single systems, which do more than documents can say; found by the entry points in `pyproject.toml`.

Another package adds a system in the same way: `privtab.push_targets` names modules that are a `privtab_connect.pushdown.TargetModule`,
`privtab.store_apis` modules with a function `routes`, as `privtab_server.store.server.app` describes it.
"""
