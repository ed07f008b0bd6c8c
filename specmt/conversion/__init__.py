"""Models that were trained elsewhere, as bundles."""
