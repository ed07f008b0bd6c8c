"""A bundle to a translator: which engine runs it, and what is imported for that."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from specmt.alignment import Aligner
from specmt.bundle import Bundle, load_bundle
from specmt.engines.base import AnyEngine
from specmt.errors import EngineError, UsageError
from specmt.translator import Splitting, Translator


def load_translator(
    path: Path, device: str = "cpu", precision: str = "fp32", threads: int = 1, engine: str = "auto"
) -> Translator:
    """Load a bundle into an engine.

    Args:
        precision: `fp32` or `bf16`, of the torch engine.
        threads: cores that may be used.
        engine: `onnx`, `torch`, or `auto`: onnx on a CPU where the bundle has graphs, unless `bf16` is wanted.

    Raises:
        BundleError: see `load_bundle`.
        EngineError: the device or a package is not there, or the bundle has no graphs.
    """
    bundle = load_bundle(path)
    if engine == "auto":
        engine = "onnx" if bundle.has_graphs and (device, precision) == ("cpu", "fp32") else "torch"
    onnx = engine == "onnx"
    return Translator(
        _onnx_engine(bundle, device) if onnx else _torch_engine(bundle, device, precision, threads),
        bundle.vocabulary(),
        bundle.decoding,
        threads if onnx else 1,
        bundle.digest,
        splitting=Splitting(bundle.source_language, bundle.max_source_tokens),
        aligner=partial(_aligner, bundle),
    )


def _aligner(bundle: Bundle) -> Aligner:
    from specmt.weights import load_weights

    if not bundle.is_native:
        raise UsageError(f"--alignment: {bundle.path} is a converted model; only pairs that specmt trained are aligned")
    return Aligner(bundle.architecture, load_weights(bundle))


def _onnx_engine(bundle: Bundle, device: str) -> AnyEngine:
    if device != "cpu":
        raise EngineError(f"the onnx engine runs on the CPU, not on {device}")
    if not bundle.has_graphs:
        raise EngineError(f"{bundle.path}: no graphs for the onnx engine; `specmt export {bundle.path}` writes them")
    from specmt.engines.onnx_engine import OnnxEngine

    return OnnxEngine(bundle.architecture, bundle.path)


def _torch_engine(bundle: Bundle, device: str, precision: str, threads: int) -> AnyEngine:
    try:
        import torch
    except ImportError:
        raise EngineError("the torch engine needs torch: pip install 'specmt[gpu]'") from None
    from specmt.engines.torch_engine import TorchEngine
    from specmt.weights import load_weights

    torch.set_num_threads(threads)
    weights = {name: torch.from_numpy(array) for name, array in load_weights(bundle).items()}
    return TorchEngine(bundle.architecture, weights, device, bf16=precision == "bf16")
