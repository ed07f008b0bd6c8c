"""Marian models as transformers makes them: random weights, small tokenizers."""

from __future__ import annotations

import io
import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import sentencepiece
import torch
from foreign import rounded
from numpy.typing import NDArray

from specmt.conversion.converting import Conversion, convert
from specmt.text.vocabulary import EOS_ID, PAD_ID, UNK_ID

ROOT = Path(__file__).parent.parent
SMOKE = ROOT / "data" / "smoke"
LINES = [
    *(SMOKE / "valid.de").read_text(encoding="utf-8").splitlines()[:12],
    "  Straße 東京 😀 ",
    "Der Hund\u00a0sieht 3,5 % mehr.",
]
TOKENS = (">>eng<<", ">>fra<<")
TOLERANCE = 2e-3
"""Between log-probabilities in float32 that sum in another order, in nats; they spread over some ten."""
LIMIT = 48
"""Positions, and tokens of a translation with the one that it starts from."""
VARIANTS: dict[str, dict[str, Any]] = {
    "opus": {},
    "relu, unscaled": {"activation_function": "relu", "scale_embedding": False},
    "another encoder": {"encoder_layers": 3, "encoder_ffn_dim": 40, "encoder_attention_heads": 2},
    "vocabularies of their own": {"share_encoder_decoder_embeddings": False},
}


@cache
def tokenizer(language: str) -> bytes:
    """A small SentencePiece model with the special pieces that Marian's have."""
    return learned_pieces((SMOKE / f"train.{language}").read_text(encoding="utf-8").splitlines()[:1000], 120)


def learned_pieces(lines: list[str], size: int) -> bytes:
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=size,
        bos_id=-1,
        eos_id=0,
        unk_id=1,
        pad_id=-1,
        minloglevel=2,
    )
    return bytes(model.getvalue())


def pieces(language: str) -> list[str]:
    processor = sentencepiece.SentencePieceProcessor(model_proto=tokenizer(language))
    return [processor.id_to_piece(id_) for id_ in range(len(processor))]


def numbered(*names: str) -> dict[str, int]:
    return {piece: id_ for id_, piece in enumerate(dict.fromkeys([*names, "<pad>"]))}


class Marian:
    """transformers' own model with random weights and its tokenizer, saved as they save themselves."""

    def __init__(self, folder: Path, settings: dict[str, Any] | None = None, tokens: tuple[str, ...] = ()) -> None:
        from transformers import MarianConfig, MarianMTModel, MarianTokenizer

        self.folder, settings = folder, settings or {}
        folder.mkdir(parents=True, exist_ok=True)
        shared = settings.get("share_encoder_decoder_embeddings", True)
        own = [pieces("de"), pieces("en")]
        vocabularies = [numbered(*own[0], *own[1], *tokens)] if shared else [numbered(*names) for names in own]
        for name, vocabulary in zip(("vocab.json", "target_vocab.json"), vocabularies, strict=False):
            (folder / name).write_text(json.dumps(vocabulary), encoding="utf-8")
        for name, language in (("source.spm", "de"), ("target.spm", "en")):
            (folder / name).write_bytes(tokenizer(language))
        size = len(vocabularies[-1])
        sizes = {"layers": 2, "ffn_dim": 48, "attention_heads": 4}
        config = MarianConfig(
            **{f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in sizes.items()}
            | {"vocab_size": len(vocabularies[0]), "decoder_vocab_size": size, "d_model": 32}
            | {"activation_function": "swish", "scale_embedding": True, "static_position_embeddings": True}
            | {"max_position_embeddings": LIMIT, "eos_token_id": 0, "pad_token_id": size - 1}
            | {"decoder_start_token_id": size - 1, "forced_eos_token_id": None, "init_std": 0.25}
            | settings
        )
        torch.manual_seed(3)
        self.model = MarianMTModel(config).eval()
        self._make_ordinary()
        self.model.save_pretrained(folder)
        vocabulary_files = {"vocab": str(folder / "vocab.json")}
        if not shared:
            vocabulary_files |= {"target_vocab_file": str(folder / "target_vocab.json"), "separate_vocabs": "yes"}
        self.tokenizer = MarianTokenizer(
            source_spm=str(folder / "source.spm"),
            target_spm=str(folder / "target.spm"),
            source_lang="de",
            target_lang="en",
            **vocabulary_files,
        )
        self.tokenizer.save_pretrained(folder)
        self.source_pieces = list(vocabularies[0])
        # Marian's ids of the target to ours.
        specials = {"<pad>": PAD_ID, "</s>": EOS_ID, "<unk>": UNK_ID}
        others = iter(range(UNK_ID + 1, UNK_ID + 1 + size))
        self.ours = [specials[name] if name in specials else next(others) for name in vocabularies[-1]]

    def _make_ordinary(self) -> None:
        """Weights in the 8 bits of a bundle, and layer norms and a bias as in models that were trained."""
        with torch.no_grad():
            self.model.final_logits_bias.normal_(0, 0.5)
            for norm in (module for module in self.model.modules() if isinstance(module, torch.nn.LayerNorm)):
                norm.weight.normal_(1, 0.1)
                norm.bias.normal_(0, 0.1)
            for parameter in self.model.parameters():
                if parameter.dim() == 2:
                    parameter.copy_(rounded(parameter))
            for side in (self.model.model.encoder, self.model.model.decoder):
                side.embed_tokens.weight[side.embed_tokens.padding_idx] = 0
                side.embed_positions.weight.copy_(rounded(side.embed_positions.weight))

    def converted(self, calibration: list[str] | None = None, target_token: str = "") -> Path:
        bundle = self.folder.parent / "bundle"
        convert(Conversion(self.folder, target_token=target_token), bundle, calibration)
        return bundle

    def log_probs(self, line: str, said: list[int]) -> NDArray[np.float32]:
        """Of the tokens (by our ids) behind each prefix of what was said (Marian's ids), padding left out."""
        inputs = self.tokenizer(line, return_tensors="pt")
        start = self.model.config.decoder_start_token_id
        with torch.no_grad():
            logits = self.model(**inputs, decoder_input_ids=torch.tensor([[start, *said]])).logits[0]
        logits[:, start] = -torch.inf
        found = torch.full((len(said) + 1, max(self.ours) + 1), -torch.inf)
        found[:, self.ours] = logits.log_softmax(dim=-1)
        return found.numpy()
