"""Pairs of models on disk: manifest, tensors and weights."""
