"""Failures, checkpoints and spares: what a cluster of this size really delivers."""
