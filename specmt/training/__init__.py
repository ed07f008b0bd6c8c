"""From corpora to a bundle, in stages that can be resumed."""
