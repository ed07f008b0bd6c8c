"""The other tools' models: the fairseq checkpoint beside what fairseq needs, and converted by CTranslate2's own tool.

Also whether a bundle and a checkpoint hold the same verifier.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from specmt.bundles.architecture import Architecture
from specmt.bundles.bundle import TOKENIZER, Bundle, load_bundle
from specmt.bundles.tensors import VERIFIER_OUTPUT, ids_name
from specmt.bundles.weights import LARGEST, load_weights
from specmt.decoding.hypotheses import Request
from specmt.decoding.loops import Greedy, RequestQueue, decode
from specmt.files import atomic_path, file_digest
from specmt.machine import cpu_model
from specmt.text.vocabulary import EOS_ID, MASK_ID, AnyVocabulary

VOCABULARY_MAP = "vmap.txt"
"""As CTranslate2 calls it."""


@dataclass(frozen=True)
class Peers:
    """Where the other tools find the verifier: fairseq's dictionaries, its checkpoint, CTranslate2's int8 model."""

    data: Path
    checkpoint: Path
    converted: Path

    @property
    def has_vocabulary_map(self) -> bool:
        """Whether CTranslate2 can be told to say only what the bundle can."""
        return (self.converted / VOCABULARY_MAP).exists()


def instructions() -> dict[str, dict[str, str]]:
    """How CTranslate2 may be told to multiply on this processor: environments by a note on each.

    Away from Intel's it keeps to AVX2 unless told otherwise, and oneDNN multiplies, which knows no packed products. On
    Intel's MKL does, which packs the weights unless told otherwise.
    """
    found: dict[str, dict[str, str]] = {"": {}}
    if "avx512f" in Path("/proc/cpuinfo").read_text(encoding="utf-8"):
        found[", AVX-512"] = {"CT2_FORCE_CPU_ISA": "AVX512"}
    if "Intel" in cpu_model():
        found |= {f"{note}, unpacked": {**environment, "CT2_PACKED_GEMM": "0"} for note, environment in found.items()}
    return found


def convert(checkpoint: Path, data: Path, converted: Path, quantisation: str | None) -> None:
    """Run CTranslate2's converter; `data` holds the dictionaries."""
    from specmt.fairseq_backend import compat  # noqa: F401  (before fairseq)

    import ctranslate2  # isort: skip

    converter = ctranslate2.converters.FairseqConverter(str(checkpoint), str(data), source_lang="de", target_lang="en")
    with redirect_stdout(io.StringIO()):
        converter.convert(str(converted), quantization=quantisation, force=True)


def prepared(bundle: Bundle, checkpoint: Path, folder: Path) -> Peers:
    """The verifier as the other tools want it, made once for a checkpoint."""
    from specmt.fairseq_backend.binarise import write_dictionary

    ready = folder / "models" / file_digest(checkpoint)[:16]
    if not ready.exists():
        ready.parent.mkdir(parents=True, exist_ok=True)
        with atomic_path(ready) as made:
            (made / "data").mkdir(parents=True)
            write_dictionary(bundle.vocabulary(), made / "data", ("de", "en"))
            convert(checkpoint, made / "data", made / "int8", "int8")
            ids = load_weights(bundle).get(ids_name(VERIFIER_OUTPUT))
            if ids is not None:
                vocabulary = bundle.vocabulary()
                write_vocabulary_map((vocabulary.piece(id_) for id_ in ids.astype(int).tolist()), made / "int8")
    return Peers(ready / "data", checkpoint, ready / "int8")


def write_vocabulary_map(pieces: Iterable[str], converted: Path) -> None:
    """So that a converted model can be told to say these, whatever the source."""
    (converted / VOCABULARY_MAP).write_text(f"\t{' '.join(pieces)}\n", encoding="utf-8")


def random_pieces(vocabulary_size: int) -> list[str]:
    """What the pieces of `random_checkpoint` are called, up to a size of the vocabulary."""
    return [f"t{place}" for place in range(MASK_ID, vocabulary_size)]


def random_checkpoint(architecture: Architecture, template: Path, folder: Path) -> None:
    """Write a fairseq checkpoint `verifier.pt` of this shape with random weights, and its dictionaries, into `folder`.

    Args:
        template: a checkpoint of the same kind of model, whose other settings are kept.
    """
    import torch
    from bench_passes import random_weights

    from specmt.fairseq_backend import checkpoints

    state = checkpoints.load(template)
    for args in filter(None, (state["args"], state["cfg"]["model"])):
        for side, layers in (("encoder", architecture.encoder_layers), ("decoder", architecture.decoder_layers)):
            setattr(args, f"{side}_layers", layers)
            setattr(args, f"{side}_embed_dim", architecture.width)
            setattr(args, f"{side}_ffn_embed_dim", architecture.feed_forward_width)
            setattr(args, f"{side}_attention_heads", architecture.heads)
        args.decoder_input_dim = args.decoder_output_dim = architecture.width
    kept = {name: tensor for name, tensor in state["model"].items() if "version" in name or "_float_tensor" in name}
    weights = {name: torch.from_numpy(array) for name, array in random_weights(architecture).items()}
    embeddings = weights["embeddings.weight"]
    model = {name.removeprefix("verifier."): value for name, value in weights.items() if name.startswith("verifier.")}
    for name in ("encoder.embed_tokens", "decoder.embed_tokens", "decoder.output_projection"):
        model[f"{name}.weight"] = embeddings
    torch.save({**state, "model": {**kept, **model}}, folder / "verifier.pt")
    words = "".join(f"{piece} 1\n" for piece in random_pieces(architecture.vocabulary_size))
    for language in ("de", "en"):
        (folder / f"dict.{language}.txt").write_text(words, encoding="utf-8")


# -- the same weights


def same_weights(bundle_path: Path, checkpoint: Path, peers: Peers, lines: Sequence[str]) -> dict[str, Any]:
    """How the bundle's verifier and the checkpoint's compare: weights one by one, and greedy tokens on `lines`.

    `farthest_in_steps`: the largest distance of a weight from the checkpoint's, in steps of its row's 8-bit integers:
    at most 0.5 where the bundle holds the checkpoint's weights rounded. `same_tokens`: lines on which our torch engine
    in float32, on the checkpoint's own weights, and CTranslate2 in float32 give the same tokens.
    """
    from specmt.fairseq_backend import checkpoints

    bundle = load_bundle(bundle_path)
    state = checkpoints.load(checkpoint)
    theirs = checkpoints.bundle_weights(state["model"], {})
    ours = load_weights(bundle)
    farthest = max(_steps_apart(ours[name], weight.numpy()) for name, weight in theirs.items())
    converted = peers.converted.with_name("float32")
    if not converted.exists():
        with atomic_path(converted) as made:
            convert(peers.checkpoint, peers.data, made, None)
    vocabulary = bundle.vocabulary()
    sources = [vocabulary.encode(line) for line in lines]
    pairs = zip(our_pieces(state, vocabulary, sources), their_pieces(converted, vocabulary, sources), strict=True)
    same = sum(own == other for own, other in pairs)
    return {"farthest_in_steps": farthest, "same_tokens": same, "lines": len(lines)}


def _steps_apart(ours: np.ndarray[Any, Any], theirs: np.ndarray[Any, Any]) -> float:
    """Vectors are not rounded: there, any difference counts as a whole step."""
    if ours.shape != theirs.shape:
        return float("inf")
    if ours.ndim == 1:
        return 0.0 if np.allclose(ours, theirs, atol=1e-6) else 1.0
    step = np.abs(theirs).max(axis=1, keepdims=True) / LARGEST
    return float((np.abs(ours - theirs) / np.where(step > 0, step, 1)).max())


def our_pieces(state: dict[str, Any], vocabulary: AnyVocabulary, sources: Sequence[list[int]]) -> list[list[str]]:
    """Greedy translations by a checkpoint's own weights, in our torch engine in float32."""
    import torch

    from specmt.engines.torch_engine import TorchEngine
    from specmt.fairseq_backend import checkpoints

    torch.set_num_threads(1)
    weights = checkpoints.bundle_weights(state["model"], {})
    engine = TorchEngine(checkpoints.verifier_architecture(state), weights)
    requests = [Request(index, [*ids, EOS_ID], 2 * len(ids) + 10) for index, ids in enumerate(sources)]
    done = {item.request.index: item.ids for item in decode(engine, RequestQueue(requests, 16), Greedy(), 16)}
    return [[vocabulary.piece(id_) for id_ in done[index] if id_ != EOS_ID] for index in range(len(sources))]


def their_pieces(converted: Path, vocabulary: AnyVocabulary, sources: Sequence[list[int]]) -> list[list[str]]:
    """Greedy translations by CTranslate2 in float32."""
    import ctranslate2

    pieces = [[vocabulary.piece(id_) for id_ in ids] for ids in sources]
    translator = ctranslate2.Translator(str(converted), compute_type="float32", intra_threads=1)
    return [
        translator.translate_batch([source], beam_size=1, max_decoding_length=2 * len(source) + 10)[0].hypotheses[0]
        for source in pieces
    ]


def tokenizer_path(bundle: Path) -> Path:
    """The SentencePiece model that all tools use."""
    return bundle / TOKENIZER
