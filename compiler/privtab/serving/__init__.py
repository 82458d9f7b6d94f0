"""What every HTTP server of privtab needs: sockets and TLS, limits, bearer tokens, error answers, the access log, metrics.

It knows nothing of decisions or registries; `authzen` and `registry.server` bring the endpoints.
"""
