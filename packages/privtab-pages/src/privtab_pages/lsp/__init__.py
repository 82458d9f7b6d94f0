"""The language server: what `lint`, `fmt` and `describe` know of a policy, in editors that speak the Language Server Protocol."""
