"""What processors cannot do."""

from __future__ import annotations

import pytest

from specmt.engines.native_library import LEVELS, runnable


def _has_vnni() -> bool:
    return not {*runnable()}.isdisjoint(LEVELS[2:])


def skip_where_onnx_saturates(engine: str) -> None:
    """Without VNNI, ONNX Runtime's sums of two products saturate (docs/engines.md): nothing is close to a reference."""
    if engine.startswith("onnx") and not _has_vnni():
        pytest.skip("without VNNI, ONNX Runtime's products saturate")


def exact_engines(*engines: str) -> list[str]:
    """Those of them whose products are exact on this processor."""
    return [engine for engine in engines if engine != "onnx" or _has_vnni()]
