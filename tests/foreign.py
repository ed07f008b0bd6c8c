"""Models that fairseq makes, with random weights, and what fairseq says of them."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scripted import beams
from torch import Tensor

from specmt.bundles.weights import quantise
from specmt.conversion.converting import Conversion, convert
from specmt.decoding.hypotheses import Request
from specmt.decoding.loops import Greedy, RequestQueue, decode
from specmt.engines.base import AnyEngine
from specmt.loading import load_translator
from specmt.text.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID

if find_spec("fairseq"):
    from specmt.fairseq_backend import compat  # noqa: F401  (before fairseq)

SOURCE_SIZE, TARGET_SIZE = 104, 96
LIMIT = 20
"""Tokens of a translation in these tests, end-of-sentence included."""
SIZES = {"layers": 2, "embed_dim": 16, "ffn_embed_dim": 24, "attention_heads": 2}
PRE_NORM = {"encoder_normalize_before": True, "decoder_normalize_before": True}
SHARED = {"share_all_embeddings": True}
LEARNED = {"encoder_learned_pos": True, "decoder_learned_pos": True}

LINES = [
    "Ein Mann, der nicht da ist, kauft 3,5 % mehr Brot.",
    'Er sagte: "Das ist\'s!" & ging <b>weg</b> – um 10:30 Uhr | [ok]',
    "well-known E-Mail-Adressen z.B. a@b.de",
    "  viel   Platz  ",
    "Straße 東京 😀",
]


def dictionary_of(size: int) -> Any:  # noqa: ANN401
    from fairseq.data import Dictionary as FairseqDictionary

    dictionary = FairseqDictionary()
    for id_ in range(len(dictionary), size):
        dictionary.add_symbol(f"w{id_}")
    return dictionary


class Foreign:
    """fairseq's own model with random weights, as a checkpoint and dictionaries on disk."""

    def __init__(
        self, folder: Path, settings: dict[str, Any], seed: int = 0, projections: float = 0.6, ending: float = 0.2
    ) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        shared = settings.get("share_all_embeddings")
        self.source, self.target = dictionary_of(TARGET_SIZE if shared else SOURCE_SIZE), dictionary_of(TARGET_SIZE)
        self.source.save(str(folder / "dict.de.txt"))
        self.target.save(str(folder / "dict.en.txt"))
        self.settings, self.model = self._built(settings)
        state = self._random(self.model.state_dict(), seed, projections, bool(settings.get("no_decoder_final_norm")))
        for name in ("decoder.embed_tokens.weight", "decoder.output_projection.weight"):
            state[name][EOS_ID, 0] = ending
        state = {name: rounded(part) for name, part in state.items()}
        self.model.load_state_dict(state)
        self.state = {name: part.clone() for name, part in self.model.state_dict().items()}
        self.path = folder / "model.pt"
        self.save(self.state)

    def _built(self, settings: dict[str, Any]) -> tuple[Namespace, Any]:
        from fairseq.models import ARCH_CONFIG_REGISTRY
        from fairseq.models.transformer import TransformerModel, base_architecture

        sizes = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in SIZES.items()}
        registered = settings.get("arch")
        args = Namespace(**(settings if registered else {"arch": "transformer", **sizes, **settings}))
        complete = ARCH_CONFIG_REGISTRY[registered] if registered else base_architecture
        complete(args)
        vars(args).update({"task": "translation", "source_lang": "de", "target_lang": "en"})
        vars(args).update({"no_decoder_final_norm": settings.get("no_decoder_final_norm", False)})
        task = SimpleNamespace(source_dictionary=self.source, target_dictionary=self.target)
        return args, TransformerModel.build_model(args, task).eval()

    @staticmethod
    def _random(state: dict[str, Tensor], seed: int, projections: float, silent_by_bias: bool) -> dict[str, Tensor]:
        """Large enough that what is read matters, already in the 8 bits of a bundle, and silent about special ids.

        Unit 0 of the decoder's last states is large, and only the special ids listen to it, as in no trained model
        that says one.
        """
        generator = torch.Generator().manual_seed(seed)
        random = {}
        for name, part in state.items():
            if name.endswith("version") or "_float_tensor" in name:
                random[name] = part
                continue
            deviation = (
                0.3 if "embed_tokens" in name or "output_proj" in name else projections if part.dim() > 1 else 0.1
            )
            mean = 1.0 if name.endswith("norm.weight") else 0.0
            random[name] = torch.randn(part.shape, generator=generator) * deviation + mean
        last = max((name for name in state if name.startswith("decoder.layers.")), key=lambda name: name.split(".")[2])
        layer = ".".join(last.split(".")[:3])
        norm = "decoder.layer_norm" if "decoder.layer_norm.weight" in state else f"{layer}.final_layer_norm"
        random[f"{norm}.weight"][0], random[f"{norm}.bias"][0] = 0.0, 10.0
        if silent_by_bias:
            random[f"{layer}.fc2.bias"][0] = 60.0
        for name in ("decoder.embed_tokens.weight", "decoder.output_projection.weight", "encoder.embed_tokens.weight"):
            random[name][:, 0] = 0.0
            random[name][[BOS_ID, PAD_ID, UNK_ID], 0] = -3.0
        if torch.equal(state["decoder.output_projection.weight"], state["decoder.embed_tokens.weight"]):
            random["decoder.output_projection.weight"] = random["decoder.embed_tokens.weight"]
        if state["encoder.embed_tokens.weight"].data_ptr() == state["decoder.embed_tokens.weight"].data_ptr():
            random["encoder.embed_tokens.weight"] = random["decoder.embed_tokens.weight"]
        return random

    def save(self, state: dict[str, Any], **content: object) -> None:
        torch.save({"args": self.settings, "model": state, **content}, self.path)

    def converted(self, **how: Any) -> Path:  # noqa: ANN401
        convert(Conversion(self.path, **how), self.folder / "bundle", None)
        return self.folder / "bundle"

    def generated(self, sources: Sequence[Sequence[int]], beam: int) -> list[list[tuple[list[int], float]]]:
        """fairseq's own hypotheses with their scores, best first."""
        from fairseq.sequence_generator import SequenceGenerator

        limits = {"max_len_a": 0, "max_len_b": LIMIT - 1, "min_len": 0}
        generator = SequenceGenerator([self.model], self.target, beam_size=beam, **limits)
        found = []
        for source in sources:
            inputs = {"src_tokens": torch.tensor([source]), "src_lengths": torch.tensor([len(source)])}
            (hypotheses,) = generator.generate([self.model], {"net_input": inputs})
            found.append([(one["tokens"].tolist(), float(one["score"])) for one in hypotheses])
        return found


def rounded(part: Tensor) -> Tensor:
    """The nearest tensor that a bundle's 8-bit integers hold."""
    if part.dim() != 2:
        return part
    integers, scales = quantise(part.float().numpy())
    return torch.from_numpy(integers * scales[:, None])


def sentences(count: int, seed: int = 0) -> list[list[int]]:
    random = np.random.default_rng(seed)
    return [[*random.integers(UNK_ID + 1, TARGET_SIZE, random.integers(1, 9)).tolist(), EOS_ID] for _ in range(count)]


def log_probs(engine: AnyEngine, source: Sequence[int], said: Sequence[int]) -> NDArray[np.float32]:
    """What an engine says may follow each of the tokens `said`, shape (len(said), vocabulary size), nats."""
    found = engine.verify(engine.encode([source]), np.array([said]), TARGET_SIZE)
    by_id: NDArray[np.float32] = np.take_along_axis(found.log_probs, found.ids.argsort(axis=2), axis=2)[0]
    return by_id


def fairseqs_log_probs(foreign: Foreign, source: Sequence[int], said: Sequence[int]) -> NDArray[np.float32]:
    """The same of fairseq's model."""
    with torch.inference_mode():
        logits, _ = foreign.model(torch.tensor([source]), torch.tensor([len(source)]), torch.tensor([said]))
    theirs: NDArray[np.float32] = logits.log_softmax(dim=-1)[0].numpy()
    return theirs


def assert_fairseqs_tokens(foreign: Foreign, bundle: Path) -> None:
    """Log-probabilities of all tokens, greedy's tokens, and beam search's where all hypotheses end before the limit.

    At the limit fairseq forces an end-of-sentence, which no other search does.
    """
    engine = load_translator(bundle, engine="torch").engine
    sources = sentences(12)
    asked = [Request(index, source, LIMIT) for index, source in enumerate(sources)]
    said = [EOS_ID, *sentences(1, seed=5)[0], 40]
    for source in sources:
        theirs = fairseqs_log_probs(foreign, source, said)
        np.testing.assert_allclose(log_probs(engine, source, said), theirs, rtol=1e-4, atol=5e-4)
    greedy = {one.request.index: one for one in decode(engine, RequestQueue(asked, 7), Greedy(), 7)}
    for index, ((tokens, _),) in enumerate(foreign.generated(sources, 1)):
        assert greedy[index].ids[: LIMIT - 1] == tokens[: LIMIT - 1]
    found_by_beam = beams(engine, asked, 4, 1.0)
    for ours, theirs in zip(found_by_beam, foreign.generated(sources, 4), strict=True):
        if all(len(one.ids) < LIMIT for one in ours):
            assert [one.ids for one in ours] == [tokens for tokens, _ in theirs]
            scores = [one.log_prob / len(one.ids) for one in ours]
            assert scores == pytest.approx([score for _, score in theirs], abs=1e-4)


def changed(foreign: Foreign, folder: Path, settings: dict[str, Any], state: dict[str, Any]) -> Path:
    path = folder / "changed.pt"
    torch.save({"args": Namespace(**{**vars(foreign.settings), **settings}), "model": state}, path)
    for name in ("dict.de.txt", "dict.en.txt"):
        (folder / name).write_bytes((foreign.folder / name).read_bytes())
    return path


def learned_merges(count: int = 60) -> str:
    from io import StringIO

    from subword_nmt.learn_bpe import learn_bpe

    merges = StringIO()
    learn_bpe(StringIO("\n".join(LINES * 3)), merges, count, min_frequency=1)
    return merges.getvalue()
