"""Graphs as ONNX Runtime has loaded them, and calls of them with every buffer in place."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from specmt.arrays import FloatArray
from specmt.errors import BundleError, EngineError

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # else its import makes an id, to report to Microsoft with

import onnxruntime

_OUT_OF_MEMORY = ("Failed to allocate memory", "bad_alloc", "bad allocation")
"""What ONNX Runtime says when it cannot have more."""


def memory_names(layer: int) -> tuple[str, str]:
    """Inputs and outputs that hold a layer's keys and values of the source; verifier layers first, then drafter's."""
    return f"memory.{layer}.keys", f"memory.{layer}.values"


def cache_names(layer: int) -> tuple[str, str]:
    """Inputs (and, with `.next`, outputs) that hold a layer's keys and values of the target."""
    return f"cache.{layer}.keys", f"cache.{layer}.values"


@dataclass(frozen=True)
class LoadedGraph:
    """A loaded graph and the names of what goes in and comes out."""

    path: Path
    session: onnxruntime.InferenceSession
    inputs: frozenset[str]
    outputs: frozenset[str]

    @classmethod
    def load(cls, path: Path) -> LoadedGraph:
        """Load a graph's file; the weights file must stand beside it.

        Raises:
            EngineError: this ONNX Runtime cannot.
        """
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 4  # errors are raised; they need not be logged as well
        # The graphs are as they should be: optimising costs time at every start, and makes them slower.
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        try:
            session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        except Exception as error:  # ONNX Runtime's own errors have no common class
            raise EngineError(f"{path}: ONNX Runtime {onnxruntime.__version__} cannot load it: {error}") from None
        inputs, outputs = (
            frozenset(value.name for value in values()) for values in (session.get_inputs, session.get_outputs)
        )
        return cls(path, session, inputs, outputs)


class Call:
    """One graph with buffers bound to its inputs and outputs."""

    def __init__(self, graph: LoadedGraph) -> None:
        self._graph = graph
        self._binding = graph.session.io_binding()
        self._arrays: dict[str, NDArray[Any]] = {}

    def bind(self, name: str, array: NDArray[Any]) -> None:
        """Let `array`, contiguous, be an input or an output of the graph; ignored where the graph has none such.

        Where the graph gives back `NAME.next`, that is the same memory: what is written is written in place.
        """
        assert array.flags.c_contiguous, f"{name} would be bound to a copy"
        self._arrays[name] = array
        is_input, results = name in self._graph.inputs, self._graph.outputs.intersection((name, f"{name}.next"))
        if is_input or results:
            value = onnxruntime.OrtValue.ortvalue_from_numpy(array)
            if is_input:
                self._binding.bind_ortvalue_input(name, value)
            for result in results:
                self._binding.bind_ortvalue_output(result, value)

    def bind_layers(self, arrays: FloatArray, names: Callable[[int], tuple[str, str]]) -> None:
        """Bind keys and values of each layer in turn, which `names` gives the names of."""
        for layer in range(len(arrays) // 2):
            for name, array in zip(names(layer), arrays[2 * layer : 2 * layer + 2], strict=True):
                self.bind(name, array)

    def run(self, *results: str) -> None:
        """Run the graph; results stand in the bound arrays until the next run.

        Args:
            results: some that it must have.

        Raises:
            BundleError: another graph than this program writes for such weights.
            MemoryError: what lies between two nodes does not fit.
        """
        path = self._graph.path
        if not self._graph.outputs.issuperset(results):
            raise BundleError(f"{path}: not the graph of this name; `specmt export {path.parent}` writes it")
        try:
            self._graph.session.run_with_iobinding(self._binding)
        except Exception as error:  # ONNX Runtime's own errors have no common class
            if any(sign in str(error) for sign in _OUT_OF_MEMORY):
                raise MemoryError from None
            why = " ".join(str(error).split())
            advice = f"`specmt export {path.parent}` writes it"
            raise BundleError(f"{path}: does not fit the weights ({why}); {advice}") from None

    def __getitem__(self, name: str) -> NDArray[Any]:
        """The array bound as `name`."""
        return self._arrays[name]
