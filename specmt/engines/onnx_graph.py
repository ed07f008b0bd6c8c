"""An ONNX graph under construction: a thin layer over `onnx.helper` in which values go by their names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

from specmt.bundles.tensors import mapped_tensors

_OPSET = 21
_IR_VERSION = 10
_CONTRIBUTED = {"QGemm", "FusedMatMul"}
"""Operators of ONNX Runtime's own domain."""
_TYPES = {"float32": TensorProto.FLOAT, "int8": TensorProto.INT8, "int64": TensorProto.INT64}

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


class Graph:
    """Nodes, constants, inputs and outputs of one graph. Weights stay in the safetensors file beside it."""

    def __init__(self, name: str, weights: Path) -> None:
        self._name = name
        self._weights_file = weights.name
        self._stored = mapped_tensors(weights)
        self._nodes: list[NodeProto] = []
        self._initializers: dict[str, TensorProto] = {}
        self._inputs: list[ValueInfoProto] = []
        self._outputs: list[ValueInfoProto] = []

    def input(self, name: str, shape: Sequence[str | int], element_type: int = FLOAT) -> str:
        """A value that the caller gives; named sizes of `shape` may differ from call to call."""
        self._inputs.append(helper.make_tensor_value_info(name, element_type, shape))
        return name

    def output(self, name: str, value: str, shape: Sequence[str | int], element_type: int = FLOAT) -> str:
        """Give `value` to the caller as `name`, which replaces it from here on."""
        producer = next(node for node in self._nodes if value in node.output)
        producer.output[list(producer.output).index(value)] = name
        for node in self._nodes:
            node.input[:] = [name if read == value else read for read in node.input]
        self._outputs.append(helper.make_tensor_value_info(name, element_type, shape))
        return name

    def constant(self, array: NDArray[Any]) -> str:
        """A small constant, kept in the graph's file; equal ones are kept once."""
        name = f"{array.dtype}{list(array.shape)}:{sha256(array.tobytes()).hexdigest()[:16]}"
        if name not in self._initializers:
            self._initializers[name] = numpy_helper.from_array(array, name)
        return name

    def integers(self, *values: int) -> str:
        """A constant vector of integers."""
        return self.constant(np.array(values, dtype=np.int64))

    def weight(self, name: str) -> str:
        """A tensor of the weights file, by reference."""
        if name not in self._initializers:
            stored = self._stored[name]
            tensor = TensorProto(
                name=name,
                data_type=_TYPES[stored.type],
                dims=stored.shape,
                data_location=TensorProto.EXTERNAL,
            )
            place = {"location": self._weights_file, "offset": stored.offset, "length": len(stored.contents)}
            for key, value in place.items():
                tensor.external_data.add(key=key, value=str(value))
            self._initializers[name] = tensor
        return name

    def add(self, kind: str, *inputs: str, **attributes: int | float | Sequence[int]) -> str:
        """A node with one result; an empty input is one left out."""
        return self._add(kind, inputs, attributes, results=1)[0]

    def top(self, scores: str, count: str) -> tuple[str, str]:
        """The best `count` of the last axis, best first, and their places."""
        best, places = self._add("TopK", (scores, count), {"axis": -1}, results=2)
        return best, places

    def _add(self, kind: str, inputs: Sequence[str], attributes: Mapping[str, Any], results: int) -> list[str]:
        name = f"{kind}{len(self._nodes)}"
        names = [f"{name}.{i}" for i in range(results)]
        domain = "com.microsoft" if kind in _CONTRIBUTED else ""
        self._nodes.append(helper.make_node(kind, inputs, names, name, domain=domain, **attributes))
        return names

    def save(self, folder: Path) -> None:
        """Write `NAME.onnx`. The weights file must stand in the same folder when the graph is loaded."""
        graph: GraphProto = helper.make_graph(
            self._nodes, self._name, self._inputs, self._outputs, list(self._initializers.values())
        )
        opsets = [helper.make_opsetid("", _OPSET), helper.make_opsetid("com.microsoft", 1)]
        model: ModelProto = helper.make_model(
            graph, opset_imports=opsets, ir_version=_IR_VERSION, producer_name="specmt"
        )
        (folder / f"{self._name}.onnx").write_bytes(model.SerializeToString())
