"""What `specmt translate` does once its options are understood: lines in, translations out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import typer

from specmt import __version__
from specmt.choices import InputFormat, OnBadBytes
from specmt.errors import UsageError
from specmt.protection.protection import Protection
from specmt.protection.terminology import Terminology, read_terminology
from specmt.settings import DecodingSettings
from specmt.streams.forms import Form
from specmt.streams.inputs import LineParser, is_input, jsonl_parser, reading, redirected, text_parser
from specmt.streams.line_digests import LineDigests
from specmt.streams.outputs import STANDARD_OUTPUT, Resumable, descriptor, writing
from specmt.streams.status import status
from specmt.text.characters import printable
from specmt.translation import Translation
from specmt.translator import Translator


@dataclass(frozen=True)
class Streams:
    """Where lines come from, and where translations go; None: standard input and output.

    Raises:
        UsageError: `append_resume` without a file to go on with, an output that is the input, or `-` for a file.
    """

    input: Path | None
    input_format: InputFormat
    errors: OnBadBytes
    output: Path | None
    append_resume: bool

    @property
    def is_jsonl(self) -> bool:
        """Whether lines are read as JSON, so that each may have options of its own."""
        return self.input_format is InputFormat.jsonl

    def __post_init__(self) -> None:
        for option, path in (("--input", self.input), ("--output", self.output)):
            if str(path) == "-":
                raise UsageError(f"{option} -: standard streams are used without {option}; a file is ./-")
        if self.append_resume and (self.output is None or descriptor(self.output) is not None):
            raise UsageError("--append-resume needs --output FILE")
        if is_input(self.output or STANDARD_OUTPUT, self.input):
            raise UsageError(f"--output: {self.output or 'standard output'} is the input")


@dataclass(frozen=True)
class Required:
    """What of a line must stand in its translation: spans of some kinds, and terms."""

    kinds: list[str]
    terms: Terminology | None

    @classmethod
    def read(cls, protect: str, terminology: Path | None, output: Path | None) -> Required:
        """`protect`: kinds separated by commas, or `none`.

        Raises:
            InputError: see `read_terminology`.
            UsageError: the terminology is what is to be written.
        """
        if output and terminology and is_input(output, terminology):
            raise UsageError(f"--output: {output} is the terminology")
        kinds = [] if protect == "none" else [kind.strip() for kind in protect.split(",")]
        return cls(kinds, read_terminology(terminology) if terminology else None)

    def protection(self, translator: Translator) -> Protection:
        """The stage that sees to it.

        Raises:
            UsageError: an unknown kind.
        """
        language = translator.splitting.language if translator.splitting else ""
        return Protection(translator.vocabulary, self.kinds, self.terms, language, translator.target_language)


def run(
    translator: Translator,
    settings: DecodingSettings,
    streams: Streams,
    required: Required,
    form: Form,
    batch_size: int,
    max_batch_tokens: int | None,
    quiet: bool,
) -> None:
    """Write each line's translation as soon as it and all before it are there.

    Raises:
        SpecmtError: the input cannot be read or the output not written; what is finished is written.
    """
    settings = replace(settings, scored=form.has_scores)
    protection = required.protection(translator)
    source = streams.input or redirected()
    parser: Callable[[str, bool], LineParser] = jsonl_parser if streams.is_jsonl else text_parser
    resumable = None
    if streams.append_resume:
        options = _options_that_matter(translator, settings, streams, required, form)
        digests = None if source and source.is_file() else LineDigests()
        resumable = Resumable(form.lines_each, options, source, digests)
        parser = _noted(parser, digests) if digests else parser
    with (
        reading(streams.input, parser, streams.errors is OnBadBytes.REPLACE) as lines,
        writing(streams.output, resumable) as target,
        status(source, target, quiet) as show,
    ):
        target.pass_over(lines)
        for translation in translator.translate_stream(
            lines, settings, batch_size, max_batch_tokens, target.finished_before, protection, streams.is_jsonl
        ):
            report_unplaced(translation)
            target.write(form.render(translation))
            show(translation)


def _noted(parser: Callable[[str, bool], LineParser], digests: LineDigests) -> Callable[[str, bool], LineParser]:
    return lambda name, replace_errors: digests.noting(parser(name, replace_errors))


def _options_that_matter(
    translator: Translator, settings: DecodingSettings, streams: Streams, required: Required, form: Form
) -> dict[str, Any]:
    """All that changes the output, for a later run that goes on with it."""
    decoding = asdict(settings)
    for name in ("scored", "trace", "in_flight"):  # said by the form, or without effect on the text
        del decoding[name]
    is_strict = settings.strategy == "spec" and settings.beta == 1
    if is_strict and translator.engine.row_exact:  # the text is the same, and tuning may come between
        del decoding["draft_length"], decoding["speculated_rows"]
    return {
        "specmt": __version__,
        "model": translator.model_digest,
        "engine": translator.engine.name,
        **{"alignment" if name == "align" else name.replace("_", "-"): value for name, value in decoding.items()},
        "input-format": streams.input_format,
        "format": form.format,
        "scores": form.scores,
        "protect": sorted(set(required.kinds)),
        "terminology": required.terms.digest if required.terms else None,
    }


def report_unplaced(translation: Translation) -> None:
    """Name on stderr what had to stand in a translation and does not."""
    if translation.unplaced:
        missing = printable(", ".join(translation.unplaced))
        typer.echo(f"specmt: line {translation.index + 1}: not in the translation: {missing}", err=True)
