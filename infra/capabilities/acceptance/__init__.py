"""Nodes join when they are good, and leave a few at a time."""
