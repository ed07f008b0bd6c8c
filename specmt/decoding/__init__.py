"""From requests to hypotheses: the loops over an engine, drafting and verification among them."""
