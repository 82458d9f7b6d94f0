"""The language server: the knowledge of `lint`, `fmt` and `describe` about a policy, in editors that speak the Language Server Protocol."""
