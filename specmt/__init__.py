"""Machine translation by drafting and verifying."""

__version__ = "0.1.0"
