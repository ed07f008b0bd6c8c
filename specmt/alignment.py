"""Which source word a target word comes from: the verifier's cross-attention over a finished translation.

A forced-decoding pass of the verifier, a sentence at a time, when the translation is finished: so an alignment depends
on the two texts alone, and who asks for none pays nothing. The native engine runs it itself (`base.Attending`); for the
others it is computed here, in float32 and numpy, which takes several times as long. A token's source is where the heads
of the last decoder layer but one look, on average, when they predict the token (Garg et al., "Jointly Learning to Align
and Translate with Transformer Models", EMNLP 2019, arXiv 1909.02074). On the bundled pair, the position that has read
the token tells much less (docs/reliability.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import numpy as np

from specmt.arrays import FloatArray, IntArray
from specmt.bundles.architecture import Architecture
from specmt.bundles.positions import position_table
from specmt.bundles.tensors import SOURCE_POSITIONS, TARGET_POSITIONS
from specmt.engines.base import Attending
from specmt.text.vocabulary import EOS_ID, Vocabulary

_EPSILON = np.float32(1e-5)

Pairs = tuple[tuple[int, int], ...]
"""(source word, target word), both counted from 0, sorted."""


def can_align(architecture: Architecture) -> bool:
    """Whether an aligner computes what such a verifier does; a converted one may be another."""
    norms = architecture.encoder_pre_norm and architecture.decoder_pre_norm and architecture.encoder_final_norm
    embeddings = architecture.scaled_embeddings and not architecture.source_vocabulary_size
    is_fairseqs = architecture.activation == "relu" and not architecture.starts_from_padding
    return norms and embeddings and not architecture.encoder_heads and is_fairseqs


class Aligner:
    """Aligns sentences with the verifier of a pair."""

    def __init__(
        self,
        architecture: Architecture,
        load_weights: Callable[[], Mapping[str, FloatArray]],
        attending: Attending | None = None,
    ) -> None:
        """Align with a pair's verifier.

        Args:
            load_weights: gives a bundle's weights in float32 when they are needed; `can_align` says of which.
            attending: an engine's own way, in which no weights are needed.
        """
        self._architecture = architecture
        self._load_weights = load_weights
        self._attending = attending
        self._layer = max(architecture.decoder_layers - 2, 0)

    @cached_property
    def _weights(self) -> Mapping[str, FloatArray]:
        return self._load_weights()

    def words(self, source_ids: Sequence[int], target_ids: Sequence[int], vocabulary: Vocabulary) -> Pairs:
        """Aligned words of a sentence and its translation; neither has end-of-sentence.

        A target token that attends most to the source's end-of-sentence has no source word.
        """
        if not source_ids or not target_ids:
            return ()
        best = self.attention([*source_ids, EOS_ID], [*target_ids, EOS_ID]).argmax(axis=1).tolist()
        source_words, target_words = (_word_of_each(ids, vocabulary) for ids in (source_ids, target_ids))
        pairs = zip(best[: len(target_ids)], target_words, strict=True)
        return tuple(sorted({(source_words[token], word) for token, word in pairs if token < len(source_ids)}))

    def attention(self, source_ids: Sequence[int], target_ids: Sequence[int]) -> FloatArray:
        """What each target token attends to, averaged over heads, shape (target tokens, source tokens); rows sum to 1.

        Args:
            source_ids, target_ids: with end-of-sentence.
        """
        read = [EOS_ID, *target_ids[:-1]]
        if self._attending is not None:
            return self._attending(source_ids, read, self._layer)
        memory = self._encoder(source_ids)
        x = self._embedded(read, TARGET_POSITIONS)
        hidden = np.triu(np.full((len(read), len(read)), -np.inf, dtype=np.float32), k=1)
        for index in range(self._layer + 1):
            layer = f"verifier.decoder.layers.{index}"
            normed = self._norm(x, f"{layer}.self_attn_layer_norm")
            weights = self._scores(normed, normed, f"{layer}.self_attn", hidden)
            x = x + self._attend(weights, normed, f"{layer}.self_attn")
            normed = self._norm(x, f"{layer}.encoder_attn_layer_norm")
            weights = self._scores(normed, memory, f"{layer}.encoder_attn")
            if index == self._layer:
                break
            x = x + self._attend(weights, memory, f"{layer}.encoder_attn")
            x = x + self._feed_forward(x, layer)
        attention: FloatArray = weights.mean(axis=0)
        return attention

    def _encoder(self, ids: Sequence[int]) -> FloatArray:
        x = self._embedded(ids, SOURCE_POSITIONS)
        for index in range(self._architecture.encoder_layers):
            layer = f"verifier.encoder.layers.{index}"
            normed = self._norm(x, f"{layer}.self_attn_layer_norm")
            x = x + self._attend(self._scores(normed, normed, f"{layer}.self_attn"), normed, f"{layer}.self_attn")
            x = x + self._feed_forward(x, layer)
        return self._norm(x, "verifier.encoder.layer_norm")

    def _embedded(self, ids: Sequence[int], table: str) -> FloatArray:
        width = self._architecture.width
        positions = position_table(len(ids), width, self._weights.get(f"{table}.weight"))
        rows: IntArray = np.array(ids, dtype=np.int64)
        embedded: FloatArray = self._weights["embeddings.weight"][rows] * np.float32(math.sqrt(width)) + positions
        return embedded

    def _norm(self, x: FloatArray, name: str) -> FloatArray:
        centred = x - x.mean(axis=1, keepdims=True)
        deviation = np.sqrt((centred * centred).mean(axis=1, keepdims=True) + _EPSILON)
        normed: FloatArray = centred / deviation * self._weights[f"{name}.weight"] + self._weights[f"{name}.bias"]
        return normed

    def _project(self, x: FloatArray, name: str) -> FloatArray:
        projected: FloatArray = x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]
        return projected

    def _heads(self, x: FloatArray, name: str) -> FloatArray:
        """Shape (heads, positions, head width)."""
        return self._project(x, name).reshape(len(x), self._architecture.heads, -1).swapaxes(0, 1)

    def _scores(self, x: FloatArray, memory: FloatArray, name: str, hidden: FloatArray | None = None) -> FloatArray:
        """Attention weights, shape (heads, positions of `x`, positions of `memory`)."""
        query, keys = self._heads(x, f"{name}.q_proj"), self._heads(memory, f"{name}.k_proj")
        scores = query @ keys.swapaxes(1, 2) * np.float32(query.shape[2] ** -0.5)
        scores = scores if hidden is None else scores + hidden
        weights = np.exp(scores - scores.max(axis=2, keepdims=True))
        normalised: FloatArray = weights / weights.sum(axis=2, keepdims=True)
        return normalised

    def _attend(self, weights: FloatArray, memory: FloatArray, name: str) -> FloatArray:
        attended = (weights @ self._heads(memory, f"{name}.v_proj")).swapaxes(0, 1)
        return self._project(attended.reshape(len(attended), -1), f"{name}.out_proj")

    def _feed_forward(self, x: FloatArray, layer: str) -> FloatArray:
        normed = self._norm(x, f"{layer}.final_layer_norm")
        return self._project(np.maximum(self._project(normed, f"{layer}.fc1"), 0), f"{layer}.fc2")


def _word_of_each(ids: Sequence[int], vocabulary: Vocabulary) -> list[int]:
    """The word, counted from 0, that each token is a part of."""
    words, word = [], -1
    for id_ in ids:
        word += vocabulary.starts_word(id_) or word < 0
        words.append(word)
    return words
