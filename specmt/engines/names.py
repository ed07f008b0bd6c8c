"""What engines are called. It imports nothing, as `specmt doctor` runs where packages are missing."""

from __future__ import annotations

from enum import StrEnum


class EngineName(StrEnum):
    """What runs the networks."""

    auto = "auto"
    native = "native"
    onnx = "onnx"
    torch = "torch"


class Precision(StrEnum):
    """Of the torch engine."""

    fp32 = "fp32"
    bf16 = "bf16"
