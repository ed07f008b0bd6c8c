"""Options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specmt.engines.names import EngineName, Precision
from specmt.machine import usable_cores

CORES = usable_cores()
MOST_THREADS = 1024
MOST_ROWS = 100_000
"""Sentences, or tokens of one, at a time."""
WEIGHT_BITS_HELP = "Of each weight that every pass reads; 4: less memory to read, and less exact."
ModelOption = Annotated[
    Path, typer.Option("--model", "-m", help="Model directory (bundle).", show_default="de-en, bundled")
]
EngineOption = Annotated[
    EngineName,
    typer.Option(help="native and onnx: 8-bit integers on CPUs; auto takes what should run the model fastest here."),
]
DeviceOption = Annotated[str, typer.Option(help="cpu, cuda, cuda:1 …")]
PrecisionOption = Annotated[Precision, typer.Option(help="Arithmetic of the torch engine.")]
ThreadsOption = Annotated[int, typer.Option(min=1, max=MOST_THREADS, help="Cores used.", show_default="all")]
OneThreadOption = Annotated[int, typer.Option(min=1, max=MOST_THREADS, help="Cores used.")]
DraftLengthOption = Annotated[
    int | None,
    typer.Option(min=1, help="Tokens drafted an iteration.", show_default="the model's"),
]
BetaOption = Annotated[
    int | None, typer.Option(min=1, max=1000, help="Relaxed: candidates of the verifier.", show_default="the model's")
]
TauOption = Annotated[
    float | None, typer.Option(min=0, help="Relaxed: nats behind the best.", show_default="the model's")
]
StrictOption = Annotated[
    bool | None,
    typer.Option(
        "--strict/--relaxed",
        help="The very tokens of `--strategy ar`, or (so also with --beta, --tau) what is nearly as probable.",
        show_default="the model's",
    ),
]
ReplayWindowOption = Annotated[
    int | None,
    typer.Option(min=1, max=MOST_ROWS, help="Tokens of a sentence that are replayed at a time.", show_default="16"),
]
ReplayGroupOption = Annotated[
    int | None, typer.Option(min=1, max=MOST_ROWS, help="Sentences in every pass of fixed shape.", show_default="8")
]
