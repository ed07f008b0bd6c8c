"""`specmt train` and `specmt export`: a pair from its corpora, and what the 8-bit engines run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specmt.choices import WeightBits
from specmt.cli_options import WEIGHT_BITS_HELP
from specmt.errors import EngineError


def train(
    config: Annotated[Path, typer.Option(help="A file such as configs/multi30k-de-en.yaml.")],
    overrides: Annotated[
        list[str] | None,
        typer.Option("--set", help="key=value, as in verifier.dropout=0.2; repeatable.", show_default=False),
    ] = None,
    stage: Annotated[str | None, typer.Option(help="Run this stage only.", show_default="all")] = None,
    resume: Annotated[
        bool,
        typer.Option(
            "--resume/--restart", help="Go on where an earlier run stopped, or begin anew (what stands is moved aside)."
        ),
    ] = True,
) -> None:
    """Train a pair: tokenizer, binarise, verifier, refine, distil, drafter, export, evaluate.

    Or only a drafter, for a model that there is: distil, drafter, export, evaluate.

    Each stage is skipped when its outputs stand and its inputs have not changed; interrupted, it goes on from its last
    checkpoint.
    """
    try:
        from specmt.training.config import load_config

        loaded = load_config(config, overrides or [])  # before what takes seconds to be imported
        from specmt.training import pair_training
    except ModuleNotFoundError as error:
        raise EngineError(
            f"training needs {error.name}: in the clone, "
            "pip install '.[train]' && pip install --no-deps fairseq==0.12.2"
        ) from None
    from specmt.training.progress import training_reporter

    with training_reporter() as reporter:
        bundle = pair_training.pipeline(loaded, reporter).run(stage, restart=not resume)
    typer.echo(bundle)


def export(
    bundle: Annotated[Path, typer.Argument(help="Model directory; replaced as a whole when all is done.")],
    calibration: Annotated[Path, typer.Option(help="Sentences like those to be translated, one a line.")],
    weight_bits: Annotated[
        WeightBits | None,
        typer.Option(help=WEIGHT_BITS_HELP, show_default="as they are"),
    ] = None,
) -> None:
    """Write what the 8-bit engines run into a model directory: ranges and graphs."""
    try:
        from specmt.exporting import export_bundle, read_calibration
    except ModuleNotFoundError as error:
        raise EngineError(f"exporting needs {error.name}: in the clone, pip install '.[train]'") from None

    bits = None if weight_bits is None else int(weight_bits)
    if without_graphs := export_bundle(bundle, read_calibration(calibration), bits):
        typer.echo(f"specmt: no graphs for the onnx engine: {without_graphs}", err=True)
    typer.echo(bundle)
