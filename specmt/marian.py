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

from specmt.architecture import Architecture
from specmt.dictionaries import Segmentation
from specmt.errors import InputError, reason
from specmt.fairseq_backend.foreign import Verifier
from specmt.tensors import SOURCE_POSITIONS, TARGET_POSITIONS, VERIFIER_OUTPUT, expected_shapes
from specmt.vocabulary import BOS_ID, PAD_ID, SPECIAL_PIECES, UNK_ID

CONFIG = "config.json"
_TOKENIZER_CONFIG = "tokenizer_config.json"
_SOURCE_PIECES, _TARGET_PIECES = "vocab.json", "target_vocab.json"
_CODES = "source.spm"
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
"""In the order in which they are looked for."""
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}
"""Names of transformers, and ours."""
_TARGET_TOKEN = re.compile(r">>.+<<")
_SPECIALS = SPECIAL_PIECES[: UNK_ID + 1]
_NEVER = -1000.0
"""The bias (nats) of what is never said: start and padding."""
_SHOWN_TOKENS = 8


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
    name: str
    """As its configuration says; empty if it does not."""


def read_model(folder: Path, languages: tuple[str, str] | None, target_token: str) -> MarianModel:
    """Read a folder that transformers wrote, or that was made for it.

    Args:
        languages: source and target; None: as the tokenizer's configuration says.
        target_token: what is put before every source of a model of several target languages, such as `>>fra<<`.

    Raises:
        InputError: a file is missing or damaged, or the model is one that the engines do not compute.
    """
    settings = _json(folder / CONFIG)
    kind = settings.get("model_type")
    if kind != "marian":
        raise InputError(
            f"{folder / CONFIG}: a model of type {kind!r}; of transformers' models, only marian is converted"
        )
    languages = languages or _languages(folder)
    source = _pieces(folder / _SOURCE_PIECES)
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
        _bytes(folder / _CODES),
        weights_path,
        str(settings.get("_name_or_path") or ""),
    )


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: {reason(error)}") from None


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(_bytes(path))
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise InputError(f"{path}: not a JSON object")
    return content


def _languages(folder: Path) -> tuple[str, str]:
    path = folder / _TOKENIZER_CONFIG
    settings = _json(path) if path.exists() else {}
    source, target = settings.get("source_lang"), settings.get("target_lang")
    if not (isinstance(source, str) and isinstance(target, str) and source and target):
        raise InputError(f"{path}: does not say the languages; give them, as in --languages de-en")
    return source, target


def _pieces(path: Path) -> list[str]:
    """The pieces of a vocabulary in the order of their ids.

    Raises:
        InputError: ids that are not 0, 1, ..., a special piece that is missing, or what no line of a dictionary holds.
    """
    ids = _json(path)
    pieces = sorted(ids, key=lambda piece: ids[piece] if type(ids[piece]) is int else -1)
    if [ids[piece] for piece in pieces] != list(range(len(pieces))):
        raise InputError(f"{path}: not pieces with the ids 0, 1, and so on")
    for special in _SPECIALS[PAD_ID:]:
        if special not in ids:
            raise InputError(f"{path}: {special} is missing")
    if odd := [piece for piece in pieces if not piece or set(piece) & set(" \r\n")]:
        raise InputError(f"{path}: {odd[0]!r} is no piece of a SentencePiece model")
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


def _tensors(path: Path) -> dict[str, Tensor]:
    try:
        if path.suffix == ".safetensors":
            return dict(load_file(path))
        state = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise InputError(f"{path}: {reason(error)}") from None
    except SafetensorError:
        raise InputError(f"{path}: not a safetensors file, or a damaged one") from None
    except Exception:  # of a file that is something else, torch says whatever it stumbles over
        raise InputError(f"{path}: not a file of tensors alone, or a damaged one") from None
    if not isinstance(state, Mapping):
        raise InputError(f"{path}: not a file of tensors alone")
    return {str(name): part for name, part in state.items() if isinstance(part, Tensor)}


class _Reader:
    """Takes tensors under transformers' names as a bundle's."""

    def __init__(self, path: Path, settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
        self._path, self._settings = path, settings
        self._tensors = {name.removeprefix("model."): part for name, part in tensors.items()}

    def verifier(self, source: Sequence[str], target: Sequence[str]) -> Verifier:
        """All of them.

        Args:
            source, target: pieces by Marian's ids.

        Raises:
            InputError: see `read_model`.
        """
        read, embedded = (self._take(f"{side}.embed_tokens.weight", "shared.weight") for side in ("encoder", "decoder"))
        output = self._take("lm_head.weight", "decoder.embed_tokens.weight", "shared.weight")
        bias = self._take("final_logits_bias").flatten()
        for pieces, *parts in ((source, read), (target, embedded, output, bias)):
            if any(len(part) != len(pieces) for part in parts):
                raise InputError(f"{self._path}: not as many tokens as the vocabulary has, {len(pieces)}")
        weights = {"embeddings.weight": _by_our_ids(embedded, target)}
        joined, tied = source == target and torch.equal(read, embedded), torch.equal(output, embedded)
        if not joined:
            weights["source_embeddings.weight"] = _by_our_ids(read, source)
        if not tied:
            weights[f"{VERIFIER_OUTPUT}.weight"] = _by_our_ids(output, target)
        weights[f"{VERIFIER_OUTPUT}.bias"] = _by_our_ids(bias, target)
        weights[f"{VERIFIER_OUTPUT}.bias"][[BOS_ID, PAD_ID]] = _NEVER
        weights[f"{SOURCE_POSITIONS}.weight"] = self._positions("encoder", read.size(1))
        weights[f"{TARGET_POSITIONS}.weight"] = self._positions("decoder", read.size(1))
        architecture = self._architecture(weights, 0 if joined else len(weights["source_embeddings.weight"]), tied)
        for name, shape in expected_shapes(architecture).items():
            if name.startswith("verifier."):
                weights[name] = self._take(name.removeprefix("verifier."))
            if tuple(weights[name].shape) != shape:
                raise InputError(f"{self._path}: {name} has shape {list(weights[name].shape)}, expected {list(shape)}")
            if not weights[name].is_floating_point() or not bool(weights[name].isfinite().all()):
                raise InputError(f"{self._path}: {name} holds what is no finite number")
        return Verifier(architecture, {name: part.float() for name, part in weights.items()})

    def _take(self, *names: str) -> Tensor:
        """The first of them that is there."""
        for name in names:
            if name in self._tensors:
                return self._tensors[name]
        raise InputError(f"{self._path}: {names[0]} is missing: not a Marian model, or a part of one")

    def _positions(self, side: str, width: int) -> Tensor:
        """Sinusoids as Marian has them: from 0 on, of frequencies that fall by 10000 over the width, not half of it."""
        name = f"{side}.embed_positions.weight"
        if name in self._tensors:
            return self._tensors[name]
        places = torch.arange(self._integer("max_position_embeddings"))[:, None]
        angles = places / 10000 ** (torch.arange(0, width, 2, dtype=torch.float64) / width)
        return torch.cat([angles.sin(), angles.cos()], dim=1).float()

    def _integer(self, name: str) -> int:
        value = self._settings.get(name)
        if type(value) is not int or value < 1:
            raise InputError(f"{self._path.parent / CONFIG}: {name}: {value!r}, expected a number of at least 1")
        return value

    def _architecture(self, weights: Mapping[str, Tensor], source_vocabulary_size: int, tied: bool) -> Architecture:
        embeddings, settings, path = weights["embeddings.weight"], self._settings, self._path.parent / CONFIG
        activation = settings.get("activation_function")
        if activation not in _ACTIVATIONS:
            raise InputError(
                f"{path}: activation_function {activation!r} cannot be converted; {', '.join(_ACTIVATIONS)} can"
            )
        if settings.get("normalize_embedding"):
            raise InputError(f"{path}: layer norm of embeddings (normalize_embedding) cannot be converted")
        heads, encoder_heads = (self._integer(f"{side}_attention_heads") for side in ("decoder", "encoder"))
        inner, encoder_inner = (self._integer(f"{side}_ffn_dim") for side in ("decoder", "encoder"))
        try:
            return Architecture(
                vocabulary_size=len(embeddings),
                width=embeddings.size(1),
                heads=heads,
                feed_forward_width=inner,
                encoder_layers=self._integer("encoder_layers"),
                decoder_layers=self._integer("decoder_layers"),
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
                scaled_embeddings=bool(settings.get("scale_embedding")),
                activation=_ACTIVATIONS[activation],
                source_positions=len(weights[f"{SOURCE_POSITIONS}.weight"]),
                target_positions=len(weights[f"{TARGET_POSITIONS}.weight"]),
                output_bias=True,
                starts_from_padding=self._starts_from_padding(),
            )
        except ValueError as error:
            raise InputError(f"{path}: {error}") from None

    def _starts_from_padding(self) -> bool:
        """Else the decoder starts from end-of-sentence."""
        start, *known = (self._settings.get(f"{name}_token_id") for name in ("decoder_start", "pad", "eos"))
        if start not in known:
            raise InputError(f"{self._path.parent / CONFIG}: a decoder that starts from token {start}: not converted")
        return start == known[0]


def _by_our_ids(rows: Tensor, pieces: Sequence[str]) -> Tensor:
    """Rows in the order of a dictionary's ids: the special pieces, then the others; zeros for what Marian lacks."""
    ids = {piece: id_ for id_, piece in enumerate(pieces)}
    order = [ids.get(piece, len(pieces)) for piece in (*_SPECIALS, *(p for p in pieces if p not in _SPECIALS))]
    return torch.cat([rows, torch.zeros_like(rows[:1])])[order]
