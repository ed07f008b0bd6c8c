"""Tiny pairs of models with random weights, as architectures, tensors and bundles."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from scripted import VOCABULARY_SIZE, tiny_tokenizer
from torch import Tensor

from specmt.bundles.architecture import Architecture
from specmt.bundles.bundle import RANGES, TOKENIZER, WEIGHTS, DecodingDefaults, write_bundle
from specmt.bundles.tensors import (
    DRAFTER_OUTPUT,
    SOURCE_POSITIONS,
    TARGET_POSITIONS,
    VERIFIER_OUTPUT,
    expected_shapes,
    ids_name,
)
from specmt.bundles.weights import save_weights
from specmt.text.vocabulary import BOS_ID, EOS_ID, MASK_ID, PAD_ID, UNK_ID

# Networks this small gain nothing from a second core, and lose much where another program uses it.
torch.set_num_threads(1)

TINY = Architecture(
    vocabulary_size=VOCABULARY_SIZE,
    width=16,
    heads=2,
    feed_forward_width=24,
    encoder_layers=1,
    decoder_layers=1,
    drafter_layers=1,
    draft_length=4,
    bigram_rank=4,
)
DEFAULTS = DecodingDefaults(draft_length=3, beta=2, tau=0.5, max_tokens_factor=1.0, max_tokens_offset=4)


def random_weights(architecture: Architecture, seed: int = 0, projections: float = 0.6) -> dict[str, Tensor]:
    """Weights large enough that what is read matters for what is said; `projections`: their standard deviation.

    As in a trained pair, neither model ever says a special id other than end-of-sentence.
    """
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in expected_shapes(architecture).items():
        deviation = 0.3 if name == "embeddings.weight" else projections if len(shape) > 1 else 0.1
        mean = 1.0 if name.endswith("norm.weight") else 0.0
        weights[name] = torch.randn(shape, generator=generator) * deviation + mean
    # One unit of the last states is always 10, and only special ids listen to it.
    for norm in ("verifier.decoder.layer_norm", "drafter.layer_norm"):
        weights[f"{norm}.weight"][0], weights[f"{norm}.bias"][0] = 0.0, 10.0
    weights["embeddings.weight"][:, 0] = 0.0
    weights["embeddings.weight"][[BOS_ID, PAD_ID, UNK_ID, MASK_ID], 0] = -3.0
    for output in (VERIFIER_OUTPUT, DRAFTER_OUTPUT):
        if ids_name(output) in weights:
            others = torch.randperm(architecture.vocabulary_size - MASK_ID - 1, generator=generator) + MASK_ID + 1
            ids = torch.cat([torch.tensor([EOS_ID]), others[: len(weights[ids_name(output)]) - 1]]).sort().values
            weights[ids_name(output)], weights[f"{output}.weight"] = ids, weights["embeddings.weight"][ids]
    return weights


BUNDLE_FILES = ("manifest.json", "tokenizer.model", "model.safetensors")
"""Of a tiny bundle."""


def write_tiny_bundle(
    path: Path,
    weights: dict[str, Tensor] | None = None,
    architecture: Architecture = TINY,
    decoding: DecodingDefaults = DEFAULTS,
    source_language: str = "de",
    ranges: bool = False,
) -> None:
    """A bundle that loads; `weights` in place of fitting ones; `ranges`: with a file that stands for some."""

    def write_files(folder: Path) -> None:
        (folder / TOKENIZER).write_bytes(tiny_tokenizer())
        save_weights(random_weights(architecture) if weights is None else weights, folder / WEIGHTS)
        if ranges:
            (folder / RANGES).write_text("{}")

    write_bundle(
        path,
        languages=(source_language, "en"),
        architecture=architecture,
        decoding=decoding,
        write_files=write_files,
        training={"config": {"name": "tiny"}, "packages": {}},
        scores={"validation": {"bleu": 1.5}},
    )


def fairseq_verifier(architecture: Architecture, weights: dict[str, Tensor]) -> tuple[Any, Any]:
    """fairseq's own `transformer` with a pair's weights, and its dictionary."""
    from specmt.fairseq_backend import compat  # noqa: F401  (before fairseq)

    from fairseq.data import Dictionary  # isort: skip
    from fairseq.models.transformer import TransformerModel, base_architecture  # isort: skip

    dictionary = Dictionary()
    for id_ in range(len(dictionary), architecture.vocabulary_size):
        dictionary.add_symbol(f"piece{id_}")
    args = Namespace(share_all_embeddings=True)
    tables = {"encoder": SOURCE_POSITIONS, "decoder": TARGET_POSITIONS}
    for side, table in tables.items():
        settings = {
            "layers": getattr(architecture, f"{side}_layers"),
            "embed_dim": architecture.width,
            "ffn_embed_dim": architecture.feed_forward_width,
            "attention_heads": architecture.heads,
            "normalize_before": True,
            "learned_pos": f"{table}.weight" in weights,
        }
        vars(args).update({f"{side}_{name}": value for name, value in settings.items()})
        setattr(args, f"max_{table}", getattr(architecture, table) or None)
    base_architecture(args)
    task = SimpleNamespace(source_dictionary=dictionary, target_dictionary=dictionary)
    model = TransformerModel.build_model(args, task).eval()
    state = {name.removeprefix("verifier."): part for name, part in weights.items() if name.startswith("verifier.")}
    for name in ("encoder.embed_tokens", "decoder.embed_tokens", "decoder.output_projection"):
        state[f"{name}.weight"] = weights["embeddings.weight"]
    # What every checkpoint holds; without it fairseq drops the last layer norms.
    for side, table in tables.items():
        if f"{table}.weight" in weights:
            unused = torch.zeros(PAD_ID + 1, architecture.width)
            state[f"{side}.embed_positions.weight"] = torch.cat([unused, weights[f"{table}.weight"]])
    state |= {"encoder.version": torch.tensor([3.0]), "decoder.version": torch.tensor([3.0])}
    model.load_state_dict(state)
    return model, dictionary
