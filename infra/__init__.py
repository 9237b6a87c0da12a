"""Causeway: GPU-cluster regions and the links between them, as code."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The checkout: everything that is named by a relative path is found from here."""
