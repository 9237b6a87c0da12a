"""Drift: what the roles made true is recorded, sealed, and compared ever after in one SSH trip per node."""
