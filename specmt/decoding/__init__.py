"""From requests to hypotheses: the loops over an engine, and what the verifier accepts."""
