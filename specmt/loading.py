"""A bundle to a translator: which engine runs it, and what is imported for that."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from specmt import BUNDLED_MODEL
from specmt.bundles.bundle import Bundle, opened_bundle
from specmt.engines import native_library
from specmt.engines.base import AnyEngine
from specmt.engines.names import EngineName, Precision
from specmt.errors import EngineError, UsageError
from specmt.text.languages import usual_code
from specmt.text.segmentation import Splitting
from specmt.translator import Limits, Translator

if TYPE_CHECKING:
    from specmt.alignment import Aligner


def engine_for(bundle: Bundle, device: str = "cpu", precision: str = "fp32") -> tuple[str, str]:
    """The engine that `auto` takes for a bundle, and why, in a few words."""
    if (device, precision) != ("cpu", "fp32"):
        return "torch", "a GPU or bf16 is asked for"
    can_be_native = bundle.has_ranges and native_library.is_built()
    if can_be_native and native_library.is_fast():
        return "native", "the model has ranges, and the engine is compiled here for this processor"
    if bundle.has_graphs:
        why_not = "the model has no ranges"
        if bundle.has_ranges:
            why_not = (
                "the native engine is not compiled here, or not fast on this processor (no AVX2 or Arm dot product)"
            )
        return "onnx", f"{why_not}; the model has graphs"
    if can_be_native:
        return "native", "the model has ranges and no graphs"
    if bundle.has_ranges:
        return "torch", f"the native engine is not compiled here, and the model has no graphs; {_how_to_export(bundle)}"
    return "torch", f"the model has neither ranges (native engine) nor graphs (onnx engine); {_how_to_export(bundle)}"


def _how_to_export(bundle: Bundle) -> str:
    return f"`specmt export {bundle.path} --calibration TEXT` writes ranges and graphs"


def load_translator(
    path: Path | str = BUNDLED_MODEL,
    device: str = "cpu",
    precision: str = "fp32",
    threads: int = 1,
    engine: str = "auto",
) -> Translator:
    """Load a bundle into an engine.

    Args:
        precision: `fp32` or `bf16`, of the torch engine.
        threads: cores that may be used.
        engine: `native`, `onnx`, `torch`, or `auto`: what `engine_for` says.

    Raises:
        BundleError: see `load_bundle`.
        EngineError: the device or a package is not there, or the bundle lacks what the engine runs.
        UsageError: an engine that there is not, a precision that it does not have, no threads.
    """
    if engine not in list(EngineName) or precision not in list(Precision) or threads < 1:
        raise UsageError(
            f"an engine of {', '.join(EngineName)}, a precision of {', '.join(Precision)}, one thread or more: "
            f"not {engine}, {precision}, {threads}"
        )
    with opened_bundle(Path(path)) as bundle:
        return _load(bundle, device, precision, threads, engine)


def _load(bundle: Bundle, device: str, precision: str, threads: int, engine: str) -> Translator:
    if engine == "auto":
        engine, _ = engine_for(bundle, device, precision)
    on_one_core = engine != "torch"
    if on_one_core and precision != "fp32":
        raise UsageError(f"--precision {precision}: the {engine} engine has 8-bit integers; leave out one of both")
    loaded = (
        _cpu_engine(bundle, device, engine, threads)
        if on_one_core
        else _torch_engine(bundle, device, precision, threads)
    )
    translator = Translator(
        loaded,
        bundle.vocabulary(),
        bundle.decoding,
        threads if on_one_core else 1,
        bundle.digest,
        splitting=Splitting(usual_code(bundle.source_language), bundle.max_source_tokens),
        aligner=partial(_aligner, bundle, loaded),
        limits=Limits(bundle.architecture.max_source_tokens, bundle.architecture.max_target_tokens),
    )
    translator.target_language = usual_code(bundle.target_language)
    return translator


def _aligner(bundle: Bundle, engine: AnyEngine) -> Aligner:
    from specmt.alignment import Aligner, can_align
    from specmt.bundles.weights import load_weights

    if not bundle.has_own_tokenizer or not can_align(bundle.architecture):
        raise UsageError(f"--alignment: {bundle.path} is a converted model; only pairs that specmt trained are aligned")
    return Aligner(bundle.architecture, partial(load_weights, bundle), getattr(engine, "attention", None))


def _cpu_engine(bundle: Bundle, device: str, engine: str, threads: int) -> AnyEngine:
    if device != "cpu":
        raise EngineError(f"the {engine} engine runs on the CPU, not on {device}")
    if engine == "native":
        if not bundle.has_ranges:
            also = "" if bundle.has_graphs else ", and no graphs for the onnx engine"
            raise EngineError(f"{bundle.path}: no ranges for the native engine{also}; {_how_to_export(bundle)}")
        from specmt.engines.native_engine import NativeEngine

        return NativeEngine(bundle.architecture, bundle.path, threads=threads)
    if not bundle.has_graphs:
        also = "" if bundle.has_ranges else ", and no ranges for the native engine"
        raise EngineError(f"{bundle.path}: no graphs for the onnx engine{also}; {_how_to_export(bundle)}")
    from specmt.engines.onnx_engine import OnnxEngine

    return OnnxEngine(bundle.architecture, bundle.path)


def _torch_engine(bundle: Bundle, device: str, precision: str, threads: int) -> AnyEngine:
    try:
        import torch
    except ImportError:
        raise EngineError("the torch engine needs torch: in the clone, pip install '.[gpu]'") from None
    from specmt.bundles.weights import load_weights
    from specmt.engines.torch_engine import TorchEngine
    from specmt.engines.torch_graphs import GraphedTorchEngine

    torch.set_num_threads(threads)
    weights = {name: torch.from_numpy(array) for name, array in load_weights(bundle).items()}
    engine = GraphedTorchEngine if device.startswith("cuda") else TorchEngine
    return engine(bundle.architecture, weights, device, bf16=precision == "bf16")
