"""Machines you already have: reached, configured, verified; never created, never deleted."""
