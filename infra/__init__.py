"""Causeway: GPU-cluster regions and the links between them, as code."""

from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
"""What the package brings itself lies here, in a checkout as where pip has installed it."""
CHECKOUT = PACKAGE.parent if (PACKAGE.parent / "playbooks" / "roles.yml").is_file() else None
"""The checkout; None where pip has installed the package alone, which only checks and plans."""
ROOT = CHECKOUT or Path.cwd()
"""Everything that is named by a relative path is found from here: the checkout, or where the user stands."""
