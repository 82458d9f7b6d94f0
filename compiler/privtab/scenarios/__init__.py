"""Scenarios: the answers that a policy must give, how much of its table they prove, and the faults they would miss."""
