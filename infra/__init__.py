"""Causeway: GPU-cluster regions and the roads between them, as code."""
