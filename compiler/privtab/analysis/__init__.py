"""Questions about a policy and a state that go beyond one answer."""
