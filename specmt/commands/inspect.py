"""`specmt info` and `specmt doctor`: what a model is, and whether this installation works."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from specmt import BUNDLED_MODEL
from specmt.choices import ReportFormat

FormatOption = Annotated[ReportFormat, typer.Option("--format", help="For people, or one JSON object.")]


def info(
    bundle: Annotated[Path, typer.Argument(help="Model directory.", show_default="de-en, bundled")] = BUNDLED_MODEL,
    output_format: FormatOption = ReportFormat.text,
) -> None:
    """Show what a model is: languages, sizes, architecture, defaults, scores; every file's digest is checked."""
    from specmt.bundles import inspection

    described = inspection.describe(bundle)
    if output_format is ReportFormat.json:
        typer.echo(json.dumps(described, ensure_ascii=False, indent=2))
    else:
        typer.echo(inspection.as_text(described), nl=False)


def doctor(
    model: Annotated[
        Path, typer.Option("--model", "-m", help="Model directory to test.", show_default="de-en, bundled")
    ] = BUNDLED_MODEL,
    output_format: FormatOption = ReportFormat.text,
) -> None:
    """Say what is installed, what the CPU can do and which engine runs, and translate as a test; exit 1 if broken."""
    from specmt import diagnosis

    found = diagnosis.diagnose(model)
    if output_format is ReportFormat.json:
        typer.echo(json.dumps(found.to_json(), ensure_ascii=False, indent=2))
    else:
        typer.echo(diagnosis.as_text(found), nl=False)
    if not found.ok:
        raise typer.Exit(1)
