"""Machine translation by drafting and verifying."""

from pathlib import Path

__version__ = "0.1.0"
BUNDLED_MODEL = Path(__file__).parent / "models" / "de-en"
"""The German–English pair that is part of the package."""
