"""Machine translation by drafting and verifying."""
