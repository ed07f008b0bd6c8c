"""`specmt convert`: a fairseq checkpoint, or a Marian model of transformers, as a bundle."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from specmt.choices import WeightBits
from specmt.cli_options import WEIGHT_BITS_HELP
from specmt.errors import EngineError, UsageError


class BpeName(StrEnum):
    """How a model's text was cut into subwords, by fairseq's names."""

    none = "none"
    sentencepiece = "sentencepiece"
    subword_nmt = "subword_nmt"
    fastbpe = "fastbpe"


class TokenizerName(StrEnum):
    """How a model's text was tokenized before."""

    none = "none"
    moses = "moses"


CheckpointArgument = Annotated[
    Path,
    typer.Argument(
        help="fairseq's, as checkpoint_best.pt; or a folder with a Marian model of transformers, as OPUS-MT's are."
    ),
]
BundleArgument = Annotated[Path, typer.Argument(help="Model directory to write.")]
LanguagesOption = Annotated[
    str | None, typer.Option(help="Source and target, as in de-en or sr-Cyrl:en.", show_default="the checkpoint's")
]
SourceDictOption = Annotated[
    Path | None, typer.Option(help="Dictionary of the source.", show_default="dict.SOURCE.txt by the checkpoint")
]
TargetDictOption = Annotated[
    Path | None, typer.Option(help="Dictionary of the target.", show_default="dict.TARGET.txt by the checkpoint")
]
BpeOption = Annotated[
    BpeName | None,
    typer.Option(help="How the text was cut into subwords.", show_default="none, if no dictionary has ▁ or @@"),
]
CodesOption = Annotated[Path | None, typer.Option(help="The merges, or the SentencePiece model.", show_default=False)]
TokenizerOption = Annotated[TokenizerName, typer.Option(help="How the text was tokenized before.")]
NoDashSplitsOption = Annotated[
    bool, typer.Option("--moses-no-dash-splits", help="The model was trained without Moses' splits at dashes.")
]
NoEscapeOption = Annotated[
    bool, typer.Option("--moses-no-escape", help="The model was trained without Moses' escapes.")
]
TargetTokenOption = Annotated[
    str,
    typer.Option(
        help="Of a Marian model of several target languages, the token of the one wanted, as in '>>fra<<'.",
        show_default=False,
    ),
]
CalibrationOption = Annotated[
    Path | None,
    typer.Option(
        help="Source sentences, one a line, to calibrate the 8-bit engines on; without, torch alone runs the model."
    ),
]

WeightBitsOption = Annotated[WeightBits, typer.Option(help=WEIGHT_BITS_HELP)]


def convert(
    checkpoint: CheckpointArgument,
    bundle: BundleArgument,
    languages: LanguagesOption = None,
    source_dict: SourceDictOption = None,
    target_dict: TargetDictOption = None,
    bpe: BpeOption = None,
    codes: CodesOption = None,
    tokenizer: TokenizerOption = TokenizerName.none,
    moses_no_dash_splits: NoDashSplitsOption = False,
    moses_no_escape: NoEscapeOption = False,
    target_token: TargetTokenOption = "",
    calibration: CalibrationOption = None,
    weight_bits: WeightBitsOption = WeightBits.eight,
) -> None:
    """Make a model directory of a transformer that fairseq or Marian trained. Without a drafter, it decodes with ar.

    For example:

      specmt convert opus-mt-de-en opus --calibration text.de

      specmt convert wmt19/model1.pt wmt19 --bpe fastbpe --codes wmt19/bpecodes --tokenizer moses --calibration text.de
    """
    try:
        from specmt.conversion import converting
    except ModuleNotFoundError as error:
        raise EngineError(f"converting needs {error.name}: in the clone, pip install '.[convert]'") from None
    from specmt.exporting import read_calibration

    _check_options(
        checkpoint,
        {
            "--source-dict": source_dict,
            "--target-dict": target_dict,
            "--bpe": bpe,
            "--codes": codes,
            "--tokenizer": None if tokenizer is TokenizerName.none else tokenizer,
            "--moses-no-dash-splits": moses_no_dash_splits,
            "--moses-no-escape": moses_no_escape,
        },
        target_token,
    )
    _check_rounding(weight_bits, calibration)
    given = converting.Conversion(
        checkpoint,
        _languages(languages),
        source_dict,
        target_dict,
        bpe.value if bpe else None,
        codes,
        tokenizer.value,
        dash_splits=not moses_no_dash_splits,
        escape=not moses_no_escape,
        target_token=target_token,
    )
    lines = read_calibration(calibration) if calibration else None
    without_graphs = converting.convert(given, bundle, lines, int(weight_bits))
    if missing := _missing(calibration, without_graphs):
        typer.echo(f"specmt: {missing}", err=True)
    typer.echo(str(bundle))


def _check_options(checkpoint: Path, of_fairseq: Mapping[str, object], target_token: str) -> None:
    if checkpoint.is_dir():
        for option, value in of_fairseq.items():
            if value:
                raise UsageError(f"{option}: {checkpoint} is a folder with a Marian model, which says this itself")
    elif target_token:
        raise UsageError(f"--target-token: {checkpoint} is no folder with a Marian model")


def _check_rounding(weight_bits: WeightBits, calibration: Path | None) -> None:
    if weight_bits is WeightBits.four and calibration is None:
        raise UsageError("--weight-bits 4 needs --calibration: weights are rounded for what they are multiplied by")


def _missing(calibration: Path | None, without_graphs: str | None) -> str:
    """What the engines for CPUs lack in the model, if anything."""
    if calibration is None:
        return (
            "no ranges for the native engine and no graphs for the onnx engine, for there is no --calibration: "
            "the torch engine alone runs the model"
        )
    return f"no graphs for the onnx engine: {without_graphs}" if without_graphs else ""


def _languages(given: str | None) -> tuple[str, str] | None:
    if given is None:
        return None
    mark = ":" if ":" in given else "-"
    if mark == "-" and given.count("-") > 1:
        raise UsageError(f"--languages {given}: which hyphen parts the two? Write them as in sr-Cyrl:en")
    languages = given.split(mark)
    if len(languages) != 2 or not all(languages) or not given.isprintable():
        raise UsageError(f"--languages {given}: expected two languages, as in de-en or de:en")
    return languages[0], languages[1]
