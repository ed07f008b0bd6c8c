"""Strategies measured side by side, and how that is shown."""
