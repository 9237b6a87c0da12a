"""Proof that nodes do what the roles promise: what is expected, the checks, and their verdicts."""
