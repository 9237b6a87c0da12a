"""A list of machines becomes a declaration: read, placed, written, and held against the rules."""
