"""Settings of all tests."""

from __future__ import annotations

from hypothesis import settings

# Machines that test are often busy: no deadline. The same examples in every run, so that a failure is one's own.
settings.register_profile("specmt", deadline=None, max_examples=60, derandomize=True)
settings.load_profile("specmt")
