"""Baked images: the root file system of a pool's nodes with all of their roles that depends on no host."""
