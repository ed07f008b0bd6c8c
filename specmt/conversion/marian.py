"""Marian's models as transformers keeps them, such as OPUS-MT's: a folder of files in, a verifier and its text out.

Needs torch; transformers is not needed. The decoder starts from padding; what scores tokens has a bias; source and
target are cut by SentencePiece models of their own, and share one list of pieces or have two.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from specmt.bundles.architecture import Architecture
from specmt.bundles.tensors import SOURCE_POSITIONS, TARGET_POSITIONS, VERIFIER_OUTPUT, expected_shapes
from specmt.conversion.fairseq_checkpoint import Verifier
from specmt.conversion.foreign_files import Settings, Tensors, read_file, read_pickle, shown, tensors_in
from specmt.errors import InputError, reason
from specmt.text.dictionaries import Segmentation
from specmt.text.vocabulary import BOS_ID, EOS_ID, PAD_ID, SPECIAL_PIECES, UNK_ID

CONFIG = "config.json"
_TOKENIZER_CONFIG = "tokenizer_config.json"
SOURCE_PIECES = "vocab.json"
_TARGET_PIECES = "target_vocab.json"
CODES = "source.spm"
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
"""In the order in which they are looked for."""
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}
"""Names of transformers, and ours."""
_TARGET_TOKEN = re.compile(r">>[!-~]{1,40}<<")
_SPECIALS = SPECIAL_PIECES[: UNK_ID + 1]
_NEVER = -1000.0
"""The bias (nats) of what is never said: start and padding."""
_SHOWN_TOKENS = 8
_MOST_WIDTH, _MOST_LAYERS, _MOST_POSITIONS = 1 << 20, 1000, 1 << 16
"""Sizes that are not true are found out before anything is made of them."""
_NO_PIECE = re.compile("[ \r\n\ud800-\udfff]")
"""What no line of a dictionary holds, or no file of UTF-8."""


@dataclass(frozen=True)
class MarianModel:
    """What is read of a folder."""

    languages: tuple[str, str]
    verifier: Verifier
    segmentation: Segmentation
    source_dictionary: str
    """As fairseq writes dictionaries."""
    target_dictionary: str
    codes: bytes
    weights_path: Path
    name: object
    """Whatever its configuration says."""


def read_model(folder: Path, languages: tuple[str, str] | None, target_token: str) -> MarianModel:
    """Read a folder that transformers wrote, or that was made for it.

    Args:
        languages: source and target; None: as the tokenizer's configuration says.
        target_token: what is put before every source of a model of several target languages, such as `>>fra<<`.

    Raises:
        InputError: a file is missing or damaged, or the model is one that the engines do not compute.
    """
    settings = _settings(folder / CONFIG)
    kind = settings.word("model_type")
    if kind != "marian":
        raise InputError(
            f"{folder / CONFIG}: a model of type {kind!r}; of transformers' models, only marian is converted"
        )
    languages = languages or _languages(folder)
    source = _pieces(folder / SOURCE_PIECES)
    target = _pieces(folder / _TARGET_PIECES) if (folder / _TARGET_PIECES).exists() else source
    _check_target_token(folder, source, target_token)
    weights_path = next((folder / name for name in _WEIGHTS if (folder / name).is_file()), None)
    if not weights_path:
        raise InputError(f"{folder}: no weights: neither {' nor '.join(_WEIGHTS)}")
    verifier = _Reader(weights_path, settings, _tensors(weights_path)).verifier(source, target)
    return MarianModel(
        languages,
        verifier,
        Segmentation("sentencepiece", "none", *languages, prefix=target_token),
        _dictionary(source),
        _dictionary(target),
        read_file(folder / CODES),
        weights_path,
        settings.values.get("_name_or_path"),
    )


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_file(path))
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise InputError(f"{path}: not a JSON object")
    return content


def _settings(path: Path) -> Settings:
    return Settings(path, _json(path), "a Marian model")


def _languages(folder: Path) -> tuple[str, str]:
    path = folder / _TOKENIZER_CONFIG
    settings = _settings(path) if path.exists() else None
    source, target = (settings and settings.word(f"{side}_lang") for side in ("source", "target"))
    if not (source and target):
        raise InputError(f"{path}: does not say the languages; give them, as in --languages de-en")
    return source, target


def _pieces(path: Path) -> list[str]:
    """The pieces of a vocabulary in the order of their ids.

    Raises:
        InputError: ids that are not 0, 1, ..., a special piece that is missing, or what no line of a dictionary holds.
    """
    ids = _json(path)
    pieces = [""] * len(ids)
    for piece, id_ in ids.items():
        if not piece or _NO_PIECE.search(piece):
            raise InputError(f"{path}: {shown(piece)} is no piece of a SentencePiece model")
        if type(id_) is not int or not 0 <= id_ < len(ids) or pieces[id_]:
            raise InputError(
                f"{path}: {shown(piece)}: {shown(id_)}, expected ids from 0 to {len(ids) - 1}, each of one piece"
            )
        pieces[id_] = piece
    for special in _SPECIALS[PAD_ID:]:
        if special not in ids:
            raise InputError(f"{path}: {special} is missing")
    return pieces


def _check_target_token(folder: Path, pieces: Sequence[str], given: str) -> None:
    tokens = [piece for piece in pieces if _TARGET_TOKEN.fullmatch(piece)]
    if given in tokens or not (given or tokens):
        return
    if not tokens:
        raise InputError(f"{folder}: has no {given}: it is no model of several target languages")
    some = ", ".join(tokens[:_SHOWN_TOKENS]) + (" and others" if len(tokens) > _SHOWN_TOKENS else "")
    what = f"has no {given}" if given else "translates into several languages; --target-token says into which"
    raise InputError(f"{folder}: {what}: {some}")


def _dictionary(pieces: Sequence[str]) -> str:
    return "".join(f"{piece} 1\n" for piece in pieces if piece not in _SPECIALS)


def _tensors(path: Path) -> Tensors:
    try:
        state = load_file(path) if path.suffix == ".safetensors" else read_pickle(path)
    except OSError as error:
        raise InputError(f"{path}: {reason(error)}") from None
    except SafetensorError:
        raise InputError(f"{path}: not a safetensors file, or a damaged one") from None
    if not isinstance(state, Mapping):
        raise InputError(f"{path}: holds {shown(state)}, expected tensors by name")
    tensors = {name.removeprefix("model."): part for name, part in tensors_in(path, state).items()}
    return Tensors(path, tensors, f"the model that {CONFIG} and {SOURCE_PIECES} describe")


class _Reader:
    """Takes tensors under transformers' names as a bundle's."""

    def __init__(self, path: Path, settings: Settings, tensors: Tensors) -> None:
        self._path, self._settings, self._tensors = path, settings, tensors

    def verifier(self, source: Sequence[str], target: Sequence[str]) -> Verifier:
        """All of them.

        Args:
            source, target: pieces by Marian's ids.

        Raises:
            InputError: see `read_model`.
        """
        width, shared = self._settings.number("d_model", 1, _MOST_WIDTH), "shared.weight"
        read = self._first("encoder.embed_tokens.weight", shared, shape=(len(source), width))
        embedded = self._first("decoder.embed_tokens.weight", shared, shape=(len(target), width))
        output = self._first("lm_head.weight", "decoder.embed_tokens.weight", shared, shape=(len(target), width))
        bias = self._tensors.take("final_logits_bias", 1, len(target))[0]
        weights = {"embeddings.weight": _by_our_ids(embedded, target)}
        joined, tied = source == target and torch.equal(read, embedded), torch.equal(output, embedded)
        if not joined:
            weights["source_embeddings.weight"] = _by_our_ids(read, source)
        if not tied:
            weights[f"{VERIFIER_OUTPUT}.weight"] = _by_our_ids(output, target)
        weights[f"{VERIFIER_OUTPUT}.bias"] = _by_our_ids(bias, target)
        weights[f"{VERIFIER_OUTPUT}.bias"][[BOS_ID, PAD_ID]] = _NEVER
        weights[f"{SOURCE_POSITIONS}.weight"] = self._positions("encoder", width)
        weights[f"{TARGET_POSITIONS}.weight"] = self._positions("decoder", width)
        start = self._start(target)
        architecture = self._architecture(
            weights, 0 if joined else len(weights["source_embeddings.weight"]), tied, start
        )
        for name, shape in expected_shapes(architecture).items():
            if name.startswith("verifier."):
                weights[name] = self._tensors.take(name.removeprefix("verifier."), *shape)
        # Others, as of another program's, change nothing; transformers passes over them too.
        if left := [name for name in self._tensors.left() if "layer" in name]:
            raise InputError(f"{self._path}: {left[0]} has no place in the model that {CONFIG} describes")
        return Verifier(architecture, weights)

    def _first(self, *names: str, shape: tuple[int, int]) -> Tensor:
        """The first of them that is there."""
        return self._tensors.take(next((name for name in names if name in self._tensors.names), names[0]), *shape)

    def _positions(self, side: str, width: int) -> Tensor:
        """Sinusoids as Marian has them: from 0 on, of frequencies that fall by 10000 over the width, not half of it."""
        name = f"{side}.embed_positions.weight"
        if name in self._tensors.names:
            return self._tensors.take(name, None, width)
        places = torch.arange(self._settings.number("max_position_embeddings", 2, _MOST_POSITIONS))[:, None]
        angles = places / 10000 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
        return torch.cat([angles.sin(), angles.cos()], dim=1)[:, :width].float()

    def _start(self, pieces: Sequence[str]) -> str:
        """The piece that the decoder starts from."""
        name = "decoder_start_token_id"
        piece = pieces[self._settings.number(name, 0, len(pieces) - 1)]
        if piece not in (SPECIAL_PIECES[PAD_ID], SPECIAL_PIECES[EOS_ID]):
            found = f"{name}: {self._settings.values[name]}, which is {shown(piece)}"
            raise InputError(f"{self._settings.path}: {found}; only what starts from <pad> or </s> is converted")
        return piece

    def _architecture(
        self, weights: Mapping[str, Tensor], source_vocabulary_size: int, tied: bool, start: str
    ) -> Architecture:
        settings, (rows, width) = self._settings, weights["embeddings.weight"].shape
        if settings.flag("normalize_embedding"):
            raise InputError(f"{settings.path}: layer norm of embeddings (normalize_embedding) cannot be converted")
        heads, encoder_heads = (settings.heads(side, width) for side in ("decoder", "encoder"))
        inner, encoder_inner = (settings.number(f"{side}_ffn_dim", 1, _MOST_WIDTH) for side in ("decoder", "encoder"))
        layers, encoder_layers = (settings.number(f"{side}_layers", 1, _MOST_LAYERS) for side in ("decoder", "encoder"))
        try:
            return Architecture(
                vocabulary_size=rows,
                width=width,
                heads=heads,
                feed_forward_width=inner,
                encoder_layers=encoder_layers,
                decoder_layers=layers,
                drafter_layers=0,
                draft_length=0,
                bigram_rank=0,
                source_vocabulary_size=source_vocabulary_size,
                tied_output=tied,
                encoder_heads=encoder_heads if encoder_heads != heads else 0,
                encoder_feed_forward_width=encoder_inner if encoder_inner != inner else 0,
                encoder_pre_norm=False,
                decoder_pre_norm=False,
                encoder_final_norm=False,
                decoder_final_norm=False,
                scaled_embeddings=settings.flag("scale_embedding"),
                activation=_ACTIVATIONS[settings.one_of("activation_function", _ACTIVATIONS)],
                source_positions=len(weights[f"{SOURCE_POSITIONS}.weight"]),
                target_positions=len(weights[f"{TARGET_POSITIONS}.weight"]),
                output_bias=True,
                starts_from_padding=start == SPECIAL_PIECES[PAD_ID],
            )
        except ValueError as error:
            raise InputError(f"{settings.path}: {error}") from None


def _by_our_ids(rows: Tensor, pieces: Sequence[str]) -> Tensor:
    """Rows in the order of a dictionary's ids: the special pieces, then the others; zeros for what Marian lacks."""
    ids = {piece: id_ for id_, piece in enumerate(pieces)}
    order = [ids.get(piece, len(pieces)) for piece in (*_SPECIALS, *(p for p in pieces if p not in _SPECIALS))]
    return torch.cat([rows, torch.zeros_like(rows[:1])])[order]
