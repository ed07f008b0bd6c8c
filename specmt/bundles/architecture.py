"""The shape of a pair of models: what an engine must know to run its weights."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from typing import Any

ACTIVATIONS = ("relu", "gelu", "swish")
_LEAST = {
    "vocabulary_size": 1,
    "width": 4,  # sinusoids of two frequencies
    "heads": 1,
    "feed_forward_width": 1,
    "encoder_layers": 1,
    "decoder_layers": 1,
}
_MOST_LAYERS = 1000
"""A size that is not true is found out before anything is made of it."""
MOST_UNITS = 32_896
"""Of a layer: the sums of so many products of 8-bit numbers fit into 32 bits."""


@dataclass(frozen=True)
class Architecture:
    """Sizes of verifier and drafter, which are Transformers.

    What stands after `bigram_rank` differs from its default only in verifiers that were converted. The drafter is
    always pre-norm with ReLU, has the decoder's sizes and uses the matrices that the decoder reads and writes with.
    """

    vocabulary_size: int
    """Of the target, and of the source unless `source_vocabulary_size` says otherwise."""
    width: int
    """Units of a hidden state."""
    heads: int
    feed_forward_width: int
    encoder_layers: int
    decoder_layers: int
    drafter_layers: int
    """0 where there is no drafter."""
    draft_length: int
    """The most `[MASK]` slots that the drafter fills."""
    bigram_rank: int
    target_vocabulary_size: int = 0
    """Tokens that the verifier can say; 0: all."""
    draft_vocabulary_size: int = 0
    """Tokens that the drafter can say; 0: all."""
    source_vocabulary_size: int = 0
    """Tokens of an embedding matrix that the source has for itself; 0: it shares the decoder's."""
    tied_output: bool = True
    """Whether the output projection is the decoder's embedding matrix."""
    encoder_heads: int = 0
    """Of the encoder where they differ from the decoder's; 0: the same."""
    encoder_feed_forward_width: int = 0
    """Of the encoder where it differs from the decoder's; 0: the same."""
    encoder_pre_norm: bool = True
    """Layer norm before each sublayer; else after the sum of its input and its result."""
    decoder_pre_norm: bool = True
    encoder_final_norm: bool = True
    """Whether a layer norm follows the last layer."""
    decoder_final_norm: bool = True
    scaled_embeddings: bool = True
    """Whether embeddings are multiplied by the square root of the width."""
    activation: str = "relu"
    """Of the verifier's feed-forward layers: relu, gelu (exact), or swish."""
    source_positions: int = 0
    """Positions in the table that the encoder learned, end-of-sentence's included; 0: sinusoids, for any number."""
    target_positions: int = 0
    """The same of the decoder, which the drafter reads as well."""
    output_bias: bool = False
    """Whether the verifier adds a bias to the scores of tokens."""
    starts_from_padding: bool = False
    """Whether the decoder starts from padding's embedding; else from that of end-of-sentence."""

    def __post_init__(self) -> None:
        """Refuse sizes that no network has, heads that do not share the width, activations that no engine has."""
        sizes = {name: value for name, value in asdict(self).items() if type(value) is int}
        for name, value in sizes.items():
            if value < _LEAST.get(name, 0):
                raise ValueError(f"{name} must be at least {_LEAST.get(name, 0)}")
        if max(self.encoder_layers, self.decoder_layers, self.drafter_layers) > _MOST_LAYERS:
            raise ValueError(f"there may be {_MOST_LAYERS} layers at most")
        if max(self.width, self.feed_forward_width, self.feed_forward_width_of_encoder) > MOST_UNITS:
            raise ValueError(f"a layer may have {MOST_UNITS:,} units at most")
        has_drafter = self.drafter_layers > 0
        drafters = (self.draft_length, self.bigram_rank, self.draft_vocabulary_size or has_drafter)  # 0: all tokens
        if any((size > 0) != has_drafter for size in drafters):
            raise ValueError("draft_length, bigram_rank and draft_vocabulary_size are a drafter's")
        if self.width % 2 and not (self.source_positions and self.target_positions):
            raise ValueError("width must be even: positions are sines and cosines")
        if any(self.width % heads for heads in (self.heads, self.heads_of_encoder)):
            raise ValueError("width must be a multiple of heads")
        drafts_all = self.drafter_layers > 0 and not self.draft_vocabulary_size
        if self.target_vocabulary_size and drafts_all and not self.tied_output:
            raise ValueError("a drafter that says all tokens needs an output matrix of all tokens")
        if self.activation not in ACTIVATIONS:
            raise ValueError(f"activation must be one of {', '.join(ACTIVATIONS)}")
        if any(positions == 1 for positions in (self.source_positions, self.target_positions)):
            raise ValueError("a table of learned positions must have at least 2: for a token and end-of-sentence")

    @property
    def target_tokens(self) -> int:
        """Tokens that the verifier can say."""
        return self.target_vocabulary_size or self.vocabulary_size

    @property
    def draft_tokens(self) -> int:
        """Tokens that the drafter can say."""
        return self.draft_vocabulary_size or self.vocabulary_size

    @property
    def heads_of_encoder(self) -> int:
        """Attention heads of the encoder's layers."""
        return self.encoder_heads or self.heads

    @property
    def feed_forward_width_of_encoder(self) -> int:
        """Inner units of the encoder's layers."""
        return self.encoder_feed_forward_width or self.feed_forward_width

    @property
    def max_source_tokens(self) -> int | None:
        """The most tokens that a source may have, end-of-sentence not counted; None: any number."""
        return self.source_positions - 1 if self.source_positions else None

    @property
    def max_target_tokens(self) -> int | None:
        """The most tokens that a target may have, end-of-sentence counted, as it is never read; None: any number."""
        return self.target_positions or None

    @property
    def source_embeddings(self) -> str:
        """The matrix that source ids are looked up in."""
        return "source_embeddings" if self.source_vocabulary_size else "embeddings"

    @property
    def output(self) -> str:
        """The matrix that scores target tokens."""
        return "embeddings" if self.tied_output else "output"

    def with_drafter(self, layers: int, draft_length: int, bigram_rank: int, vocabulary_size: int) -> Architecture:
        """The same verifier with a drafter of this shape, or with none (all 0)."""
        return replace(
            self,
            drafter_layers=layers,
            draft_length=draft_length,
            bigram_rank=bigram_rank,
            draft_vocabulary_size=vocabulary_size,
        )

    def to_json(self) -> dict[str, Any]:
        """What a manifest says: sizes, and what is not as in every pair that specmt trains."""
        values, optional = asdict(self), {field.name: field.default for field in fields(self)}
        return {name: value for name, value in values.items() if optional[name] != value}
