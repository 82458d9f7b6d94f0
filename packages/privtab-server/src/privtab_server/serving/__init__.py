"""Shared by the HTTP servers of privtab: sockets and TLS, limits, bearer tokens, error answers, the access log, metrics.

Independent of decisions and registries; `authzen` and `registry.server` provide the endpoints.
"""
