"""Door documents: rules that translate another system's requests for a policy, and its decisions into that system's answers."""
