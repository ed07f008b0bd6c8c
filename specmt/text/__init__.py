"""Text alone: spelling, sentences, vocabularies, and what may be said. Nothing here knows of models."""
