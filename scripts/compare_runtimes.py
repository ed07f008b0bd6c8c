"""ONNX Runtime and OpenVINO on the same passes of a bundle, with the same 8-bit integers and scales, on one core.

The bundle's graphs use operators of ONNX Runtime's own. For OpenVINO they are rewritten in standard ones: a product
becomes DequantizeLinear, MatMul and, where its result is quantised at once, QuantizeLinear. OpenVINO fuses these into
8-bit kernels of its own. `weights only` leaves activations in float32: OpenVINO's usual compression of weights.

Every pass gets the inputs that the engine gives it, and OpenVINO a model compiled for these very shapes. Two questions:
how long does a pass take, and is a token's result the same, to the bit, in a longer window and in a larger batch?

    python scripts/compare_runtimes.py [--bundle DIR] [--rounds 200]

Needs `pip install openvino`.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import openvino
from benchmarking import BUNDLED, last_cores
from numpy.typing import NDArray
from onnx import NodeProto, TensorProto, helper, numpy_helper

from specmt.bundles.bundle import Bundle, load_bundle
from specmt.engines.onnx_calls import Call
from specmt.engines.onnx_engine import OnnxEngine
from specmt.text.vocabulary import EOS_ID

Feed = dict[str, NDArray[Any]]
VARIANTS = {"8 bits": True, "weights only": False}
"""Of OpenVINO: whether activations are quantised."""
SOURCE_TOKENS, READ_TOKENS, BATCH = 20, 10, 8


# -- the graphs in standard operators


@dataclass
class _Rewriter:
    """Rewrites one graph node by node; `extra` counts the names that it makes up."""

    quantised: bool
    constants: dict[str, NDArray[Any]]
    extra: int = 0

    def __post_init__(self) -> None:
        self.nodes: list[NodeProto] = []

    def add(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:  # noqa: ANN401  (as onnx has it)
        self.extra += 1
        output = output or f"rewritten.{self.extra}"
        self.nodes.append(helper.make_node(operator, inputs, [output], **attributes))
        return output

    def constant(self, value: NDArray[Any]) -> str:
        self.extra += 1
        name = f"rewritten.{self.extra}"
        self.constants[name] = value
        return name

    def rewrite(self, node: NodeProto) -> None:
        attributes = {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}
        if node.op_type == "QGemm":
            self._product(list(node.input), node.output[0])
        elif node.op_type == "FusedMatMul":
            self._batched_product(node, attributes)
        elif node.op_type == "DequantizeLinear" and attributes.get("axis") == 0:
            # Rows of an embedding table, each with its own scale.
            scales = self.add("Unsqueeze", node.input[1], self.constant(np.array([1])))
            rows = self.add("Cast", node.input[0], to=TensorProto.FLOAT)
            self.add("Mul", rows, scales, output=node.output[0])
        elif node.op_type == "QuantizeLinear" and not self.quantised:
            self.add("Identity", node.input[0], output=node.output[0])
        else:
            self.nodes.append(node)

    def _product(self, inputs: list[str], output: str) -> None:
        """x @ weight.T + bias, and back to 8 bits where a scale for the result is given."""
        x, x_scale, x_zero, weight, weight_scales, _, bias, *result = inputs
        if self.quantised:
            x = self.add("DequantizeLinear", x, x_scale, x_zero)
        matrix = self.add("DequantizeLinear", weight, weight_scales, axis=0)
        product = self.add("MatMul", x, self.add("Transpose", matrix, perm=[1, 0]))
        if bias:
            steps = self.constants[x_scale] * self.constants[weight_scales]
            product = self.add("Add", product, self.constant(self.constants[bias].astype(np.float32) * steps))
        if result and self.quantised:
            self.add("QuantizeLinear", product, *result, output=output)
        elif result:  # what quantising clips below 0
            self.add("Relu", product, output=output)
        else:
            self.add("Identity", product, output=output)

    def _batched_product(self, node: NodeProto, attributes: Mapping[str, Any]) -> None:
        """alpha * a @ b, where `transBatch` means that rows come before the batch dimensions."""
        sides = []
        for side, name in zip("AB", node.input, strict=True):
            rows_first = attributes.get(f"transBatch{side}")
            sides.append(self.add("Transpose", name, perm=[1, 2, 0, 3]) if rows_first else name)
        if attributes.get("transB"):
            order = [0, 1, 3, 2] if attributes.get("transBatchB") else [0, 2, 1]
            sides[1] = self.add("Transpose", sides[1], perm=order)
        product = self.add("MatMul", *sides)
        alpha = self.constant(np.array(attributes.get("alpha", 1.0), dtype=np.float32))
        self.add("Mul", product, alpha, output=node.output[0])


def standard(path: Path, quantised: bool, fixed: Mapping[str, NDArray[Any]]) -> onnx.ModelProto:
    """A graph in standard operators; `fixed` inputs become constants."""
    model = onnx.load(path)
    graph = model.graph
    constants = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer} | dict(fixed)
    rewriter = _Rewriter(quantised, constants)
    for node in graph.node:
        rewriter.rewrite(node)
    del graph.node[:], graph.initializer[:]
    graph.node.extend(rewriter.nodes)
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in rewriter.constants.items())
    inputs = [value for value in graph.input if value.name not in fixed]
    del graph.input[:]
    graph.input.extend(inputs)
    opset = max(entry.version for entry in model.opset_import if not entry.domain)
    del model.opset_import[:]
    model.opset_import.append(helper.make_opsetid("", opset))
    return model


# -- passes with the engine's own inputs


@dataclass(frozen=True)
class Pass:
    """One call of a graph: its inputs as the engine gave them, its outputs, and the call itself."""

    graph: str
    feed: Feed
    outputs: Feed
    again: Callable[[], object]


def seen(name: str, call: Callable[[], object]) -> Pass:
    """Run `call`, which runs the graph `name` once, and keep what went in and out."""
    kept: list[Any] = []
    original = Call.run

    def run(prepared: Any) -> None:  # noqa: ANN401  (the engine's own)
        feed = {key: prepared[key].copy() for key in prepared._graph.inputs}
        original(prepared)
        kept.append((prepared, feed))

    Call.run = run  # type: ignore[method-assign, assignment]
    try:
        call()
    finally:
        Call.run = original  # type: ignore[method-assign]
    ((prepared, feed),) = kept
    outputs = {key: prepared[key.removesuffix(".next")].copy() for key in prepared._graph.outputs}
    return Pass(name, feed, outputs, partial(original, prepared))


def engine_passes(bundle: Bundle, batch: int) -> dict[str, Pass]:
    """Every pass of a batch of made-up sentences with some tokens read; the first row is the same in any batch."""
    engine = OnnxEngine(bundle.architecture, bundle.path)
    random = np.random.default_rng(0)
    pieces = bundle.architecture.vocabulary_size
    length = bundle.decoding.draft_length
    sources = [[*random.integers(5, pieces, SOURCE_TOKENS - 1).tolist(), EOS_ID] for _ in range(BATCH)][:batch]
    read, tokens = (random.integers(5, pieces, (BATCH, count))[:batch] for count in (READ_TOKENS, length + 1))
    found = {"encode": seen("encode", lambda: engine.encode(sources))}
    rows = engine.encode(sources)
    engine.verify(rows, read, 1)
    engine.commit(rows, np.full(batch, READ_TOKENS))
    found["verify 1"] = seen("verify", lambda: engine.verify(rows, tokens[:, :1], 1))
    found[f"verify {length + 1}"] = seen("verify", lambda: engine.verify(rows, tokens, 1))
    found[f"draft {length}"] = seen("draft", lambda: engine.draft(rows, tokens[:, 0], length))
    return found


class Compiled:
    """A pass in OpenVINO, compiled for its shapes, for one thread and 32-bit floats."""

    def __init__(self, bundle: Bundle, one: Pass, quantised: bool) -> None:
        # What is a number or a shape is a constant where shapes are fixed.
        fixed = {name: value for name, value in one.feed.items() if value.ndim == 1 and value.size <= 4}
        fixed = {name: value for name, value in fixed.items() if name not in {"token_ids", "last_ids", "slots"}}
        core = openvino.Core()
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "graph.onnx"
            onnx.save(standard(bundle.path / f"{one.graph}.onnx", quantised, fixed), path)
            model = core.read_model(path)
        self._feed = {name: value for name, value in one.feed.items() if name not in fixed}
        model.reshape({name: list(value.shape) for name, value in self._feed.items()})
        settings = {"INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1, "INFERENCE_PRECISION_HINT": "f32"}
        self._names = [output.any_name for output in model.outputs]
        self._request = core.compile_model(model, "CPU", settings).create_infer_request()
        for name, value in self._feed.items():
            self._request.set_tensor(name, openvino.Tensor(value, shared_memory=True))

    def run(self) -> None:
        """One pass over the inputs, which are shared, not copied."""
        self._request.infer()

    def outputs(self) -> Feed:
        """What the last pass gave."""
        return {name: np.array(self._request.get_tensor(name).data) for name in self._names}


# -- the comparison


def milliseconds(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median of each call, run in turn."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(rounds + 5):
        for name, call in calls.items():
            call()
            begun = time.perf_counter()
            call()
            times[name].append((time.perf_counter() - begun) * 1e3)
    return {name: float(np.median(taken[5:])) for name, taken in times.items()}


def row_difference(alone: Feed, among: Feed, batch: int, window: int) -> float:
    """Largest difference in log-probability (nats) of the first row's first token, alone and among others.

    Lines are position-major: the first line of a pass is that token in each of them.
    """
    first, second = alone["log_probs"][0], among["log_probs"][0]
    assert among["log_probs"].shape[0] == batch * window
    return float(np.abs(first - second).max())


def main() -> None:
    """Compile, time, compare, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bundle", type=Path, default=BUNDLED)
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    os.sched_setaffinity(0, last_cores(1))
    bundle = load_bundle(options.bundle)
    alone, among = engine_passes(bundle, 1), engine_passes(bundle, BATCH)
    print(f"openvino {openvino.__version__}; milliseconds, one core, batch size 1\n")
    print("| pass | ONNX Runtime | OpenVINO, 8 bits | OpenVINO, weights only | token agrees |")
    print("|---|---|---|---|---|")
    compiled = {
        (name, variant): Compiled(bundle, one, quantised)
        for name, one in alone.items()
        for variant, quantised in VARIANTS.items()
    }
    for name, one in alone.items():
        calls = {"ours": one.again, **{variant: compiled[name, variant].run for variant in VARIANTS}}
        times = milliseconds(calls, options.rounds)
        agrees = "–"
        if "candidate_ids" in one.outputs:
            found = [compiled[name, variant].outputs()["candidate_ids"] for variant in VARIANTS]
            agrees = ", ".join(f"{(ids == one.outputs['candidate_ids']).mean():.0%}" for ids in found)
        print(f"| {name} | {' | '.join(f'{taken:.3f}' for taken in times.values())} | {agrees} |", flush=True)
    print()
    print("Largest difference (nats) of the first token's log-probability from what it is alone in a window of 1:\n")
    print("| | ONNX Runtime | OpenVINO, 8 bits | OpenVINO, weights only |")
    print("|---|---|---|---|")
    window = bundle.decoding.draft_length + 1
    for label, passes, batch, width in (
        (f"in a window of {window}", alone, 1, window),
        (f"in a batch of {BATCH}", among, BATCH, 1),
        ("both", among, BATCH, window),
    ):
        name = f"verify {width}"
        differences = [row_difference(alone["verify 1"].outputs, passes[name].outputs, batch, width)]
        for variant, quantised in VARIANTS.items():
            other = Compiled(bundle, passes[name], quantised)
            other.run()
            single = compiled["verify 1", variant]
            single.run()
            differences.append(row_difference(single.outputs(), other.outputs(), batch, width))
        print(f"| {label} | {' | '.join(f'{difference:.2g}' for difference in differences)} |", flush=True)


if __name__ == "__main__":
    main()
