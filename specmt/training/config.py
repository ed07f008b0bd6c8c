"""Training configuration: one frozen dataclass per YAML section; each field is declared, documented and defaulted here.

pydantic checks types and ranges and refuses unknown keys.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping
from datetime import date
from pathlib import Path
from typing import Annotated, Any, Literal, dataclass_transform

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from specmt.bundles.architecture import MOST_UNITS
from specmt.bundles.bundle import MOST_LENGTH_PENALTY, MOST_TAU
from specmt.errors import ConfigError, reason
from specmt.machine import usable_cores
from specmt.settings import MOST_BEAM
from specmt.training.plain_yaml import KeyTwiceError, parse_yaml

Positive = Annotated[int, Field(ge=1, strict=True)]
Count = Annotated[int, Field(ge=0, strict=True)]
Units = Annotated[int, Field(ge=1, le=MOST_UNITS, strict=True)]
Flag = Annotated[bool, Field(strict=True)]
LengthPenalty = Annotated[float, Field(ge=0, le=MOST_LENGTH_PENALTY)]
Share = Annotated[float, Field(ge=0, le=1)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Language = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")]
"""Files are named by it."""
_FAIRSEQ_READS = (":", "$")  # parts paths at the first, and puts variables in the place of the second
_UNKNOWN = "unexpected_keyword_argument"
_TAKEN_FOR_OTHERS = (bool, int, float, date)  # by YAML, without quotes: `no`, `1e3`, `2026-01-31`


@dataclass_transform(frozen_default=True, kw_only_default=True)
def _section(cls: type) -> type:
    return dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="forbid"))(cls)


@_section
class CorpusConfig:
    """One parallel corpus. `path`: a `.tsv[.xz|.gz]` file, or the common start of `PATH.de[.xz|.gz]` and `PATH.en…`."""

    path: str
    repeat: Positive = 1
    """How often its pairs stand in an epoch."""
    skip: Count = 0
    """Pairs left out at the beginning of the file, as when another entry takes them for validation."""
    limit: Count = 0
    """Pairs taken, the first ones behind those; 0 takes all."""
    swapped: Flag = False
    """Whether the columns of a `.tsv` file are target and source."""


@_section
class SampleConfig:
    """What a stage takes of a training corpus. The verifier translates its sources for it."""

    limit: Count = 0
    """Sentences, the first ones; 0 takes all."""
    repeat: Positive = 1
    """How often they stand in an epoch."""
    references: Flag = False
    """Take the corpus' own translations instead. A drafter learns from them what its verifier would not say."""


Samples = dict[str, SampleConfig]
"""By the corpus' path in `data.train`. A corpus that is not named is taken whole, as often as `data.train` says."""


@_section
class DataConfig:
    """The language pair and its corpora. Relative paths start from `folder`."""

    source_language: Language
    target_language: Language
    folder: str = "."
    """Where the corpora are; relative to the working directory."""
    train: Annotated[list[CorpusConfig], Field(min_length=1)]
    valid: Annotated[list[CorpusConfig], Field(min_length=1)]
    max_tokens: Annotated[int, Field(ge=1, le=1000, strict=True)] = 100
    """Longest side of a training pair, in tokens."""
    max_length_ratio: Annotated[float, Field(ge=1, allow_inf_nan=False)] = 2.5
    """Longer side over shorter side of a training pair, in tokens."""


@_section
class TokenizerConfig:
    """The joint SentencePiece model."""

    vocabulary_size: Annotated[int, Field(ge=16, multiple_of=8, strict=True)] = 8000
    """Pieces, special ones included; a multiple of 8."""
    character_coverage: Annotated[float, Field(ge=0.98, le=1)] = 0.99999
    """Share of the corpora's characters, counted as often as they stand there, that the pieces can spell: the rarest
    others are unknown. 0.9998 leaves German text without Ö and Q. Of no effect in a run that goes on from another."""
    required_characters: str = ""
    """Characters that the pieces must spell, however rare they are. A run that goes on from another adds those that its
    tokenizer lacks, and then fills up to a multiple of 8 with pieces that no text has."""


@_section
class OptimizerConfig:
    """Adam with a linear warm-up and a linear decay to zero at the last update."""

    max_updates: Positive
    batch_tokens: Positive = 2048
    """Longest batch, in tokens of the longer side, padding included."""
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 1e-3
    """At the end of the warm-up."""
    warmup_updates: Count = 500
    weight_decay: NotNegative = 0.0
    """Share by which weights shrink an update, times the learning rate."""
    clip_norm: NotNegative = 1.0
    """Largest norm of a gradient; 0 sets no bound."""
    checkpoint_updates: Positive = 250
    """Updates between checkpoints and validations."""
    average_checkpoints: Positive = 3
    """Last checkpoints whose weights are averaged: the stage's result, also where `patience` ended it."""
    patience: Count = 0
    """Validations without a better loss after which training ends; 0 never ends early."""
    replicas: Positive = 1
    """Trainings beside each other, each on its share of the cores; weights are averaged at every checkpoint."""


@_section
class VerifierConfig:
    """The autoregressive Transformer: a plain fairseq `transformer`, pre-norm, embeddings shared."""

    width: Annotated[int, Field(ge=4, le=MOST_UNITS, multiple_of=2, strict=True)] = 256
    """Units of a hidden state; even, as positions are sines and cosines."""
    feed_forward_width: Units = 1024
    """Units between the two projections of a feed-forward sublayer."""
    heads: Positive = 4
    """Of attention; `width` is a multiple of them."""
    encoder_layers: Positive = 6
    decoder_layers: Positive = 3
    dropout: Share = 0.1
    label_smoothing: Share = 0.1
    optimizer: OptimizerConfig


@_section
class RefinementConfig:
    """Further training of the verifier on its own beam output: its greedy output then comes close to beam search."""

    beam: Annotated[int, Field(ge=2, le=MOST_BEAM, strict=True)] = 5
    length_penalty: LengthPenalty = 1.0
    """Exponent of the length by which a hypothesis' score is divided."""
    nearest_reference: Flag = False
    """Learn the hypothesis of each beam that is nearest the reference (BLEU of its tokens), not the one with the best
    score."""
    reference_below: Annotated[float, Field(ge=0, le=100)] = 0.0
    """With `nearest_reference`: where the nearest has less BLEU than this, learn the reference; what the verifier does
    not know, no hypothesis has."""
    batch_size: Positive = 40
    """Sentences whose beams are in flight."""
    sample: Samples = Field(default_factory=dict)
    blend: Annotated[float, Field(gt=0, le=1)] = 1.0
    """Share of the refined weights in the stage's result; the rest is as it was before (Wortsman et al. 2022,
    arXiv 2109.01903). Less than 1 keeps more of what the references taught."""
    label_smoothing: Share = 0.0
    """None makes the verifier sure of its tokens, so that a search has little to find beside them."""
    optimizer: OptimizerConfig


@_section
class DistillationConfig:
    """Sequence-level distillation: the verifier's output over the training sources, from which the drafter learns."""

    beam: Annotated[int, Field(ge=1, le=MOST_BEAM, strict=True)] = 1
    """1: greedy output, which strict decoding will ask for. More: what a beam search prefers to it."""
    length_penalty: LengthPenalty = 1.0
    """Exponent of the length by which a hypothesis' score is divided."""
    nearest_reference: Flag = False
    """Learn the hypothesis of each beam that is nearest the reference, not the one with the best score."""
    batch_size: Positive = 200
    """Sentences in flight."""
    sample: Samples = Field(default_factory=dict)


@_section
class DrafterConfig:
    """The mask-predict drafter over the verifier's encoder output and decoder states."""

    layers: Positive = 1
    draft_length: Annotated[int, Field(ge=1, le=100, strict=True)] = 10
    """`[MASK]` slots in training: the most that can be drafted."""
    bigram_rank: Positive = 64
    """Rank of the term that ties a slot's token to the one before it."""
    vocabulary_size: Annotated[int, Field(ge=0, multiple_of=8, strict=True)] = 0
    """Most frequent tokens of the verifier's translations, the only ones that are drafted; 0: all tokens."""
    dropout: Share = 0.1
    label_smoothing: Share = 0.1
    blocks: Positive = 4
    """Blocks of slots trained at random places of each sentence, in one pass."""
    glancing_start: Share = 0.5
    """Share of the wrong slots that training reveals, at the first update."""
    glancing_end: Share = 0.3
    """The same at the last update."""
    optimizer: OptimizerConfig


@_section
class ExportConfig:
    """How weights are stored, and the decoding defaults that the bundle's manifest carries. See `bundles.bundle`."""

    weight_bits: Literal[4, 8] = 8
    """Of the matrices that each pass reads (see `bundles.weights`); 4: half the memory to read, and less exact."""

    draft_length: Positive = 8
    beta: Positive = 3
    tau: Annotated[float, Field(ge=0, le=MOST_TAU)] = 1.0
    """Nats."""
    strict: Flag = True
    """Whether the pair decodes strictly unless asked otherwise; beta and tau are for relaxed decoding."""


@_section
class RuntimeConfig:
    """How training runs on this machine; changes nothing but speed and rounding."""

    threads: Positive = 2
    """Cores used; at most those that there are."""
    bf16: Flag = False
    """bfloat16 autocast: about twice as fast from width 256 up on processors that have it, slower below."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where networks are trained and translate for that; auto: a GPU if torch finds one."""
    seed: Annotated[int, Field(ge=0, lt=2**31, strict=True)] = 1

    @property
    def cores(self) -> int:
        """`threads`, as far as this process may use so many."""
        return min(self.threads, usable_cores())


@_section
class Config:
    """A whole training run."""

    name: Annotated[str, Field(min_length=1)]
    """What the manifest calls the run."""
    output: Annotated[str, Field(min_length=1)]
    """Folder of checkpoints, logs and the bundle; relative to the working directory."""
    start_from: str = ""
    """A bundle, or the folder of a finished run, that this run goes on from with data of its own: with the tokenizer,
    the verifier (of a run, before refinement), and the drafter if it has the shape that is wanted here. What could be
    said can still be."""
    data: DataConfig
    tokenizer: TokenizerConfig = Field(default_factory=TokenizerConfig)
    verifier: VerifierConfig | None = None
    """Left out: that of the bundle which `start_from` names stays as it is, and gets a drafter."""
    refinement: RefinementConfig | None = None
    """Left out: the verifier stays as it was trained on the references."""
    distillation: DistillationConfig = Field(default_factory=DistillationConfig)
    drafter: DrafterConfig
    export: ExportConfig = Field(default_factory=ExportConfig)
    runtime: RuntimeConfig = Field(default_factory=RuntimeConfig)


def load_config(path: Path, overrides: list[str]) -> Config:
    """Read a YAML file, apply `key=value` overrides (dotted keys, YAML values), and check it.

    Raises:
        ConfigError: unreadable, not YAML, an unknown key, a missing one, one that stands twice, a wrong type or value;
            names file and key.
    """
    try:
        values = parse_yaml(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"{path}: no such file") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {reason(error)}") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from None
    except KeyTwiceError as error:
        raise ConfigError(f"{path}: {error}") from None
    except ValueError as error:
        raise ConfigError(f"{path}: not YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise ConfigError(
            f"{path}: expected sections such as `data:`, found {'nothing' if values is None else type(values).__name__}"
        )
    for override in overrides:
        _override(values, override)
    try:
        config = TypeAdapter(Config).validate_python(values)
    except ValidationError as error:
        raise ConfigError(f"{path}: {_first_mistake(error)}") from None
    for contradiction in _contradictions(config):
        raise ConfigError(f"{path}: {contradiction}")
    return config


def _contradictions(config: Config) -> Iterator[str]:
    """Settings that cannot be had together, or not with fairseq."""
    data, verifier = config.data, config.verifier
    if data.source_language == data.target_language:
        yield "data.target_language: must not be the source language: files are named by them"
    if any(unicodedata.category(character) in {"Cc", "Cs"} for character in config.tokenizer.required_characters):
        yield "tokenizer.required_characters: no text has control characters or halves of a surrogate pair"
    if set(config.output) & set(_FAIRSEQ_READS):
        yield f"output: fairseq cannot work in a folder with {' or '.join(_FAIRSEQ_READS)} in its name"
    if config.output.startswith(("~", "-")):
        yield "output: ~ stands for no folder here, and fairseq takes a - for an option: write it out, or ./ before it"
    if "${" in config.start_from:
        yield "start_from: fairseq puts variables in the place of ${ in a path"
    paths = (config.output, config.start_from, data.folder, *(entry.path for entry in [*data.train, *data.valid]))
    if any("\0" in path for path in paths):
        yield "a path has a NUL, which no file's name can have"
        return
    start, output = Path(config.start_from).resolve(), Path(config.output).resolve()
    if config.start_from and output in {start, *start.parents}:
        yield "start_from: must not be output, or in it: a run does not go on from itself"
    yield from _wrong_verifier(config, verifier) if verifier else _needless(config)
    if config.export.draft_length > config.drafter.draft_length:
        yield "export.draft_length: must not exceed drafter.draft_length"
    if config.distillation.nearest_reference and config.distillation.beam == 1:
        yield "distillation.nearest_reference: must choose among several: distillation.beam is 1"
    yield from _wrong_corpora(config)


def _wrong_verifier(config: Config, verifier: VerifierConfig) -> Iterator[str]:
    if verifier.width % verifier.heads:
        yield "verifier.width: must be a multiple of verifier.heads"
    if config.drafter.layers > verifier.decoder_layers:
        yield "drafter.layers: must not exceed verifier.decoder_layers, from which they start"
    if config.drafter.vocabulary_size >= config.tokenizer.vocabulary_size:
        yield "drafter.vocabulary_size: must be less than tokenizer.vocabulary_size; 0 is all of it"


def _needless(config: Config) -> Iterator[str]:
    """What training a drafter alone has no use for, or lacks."""
    if not config.start_from:
        yield "verifier: is missing, and so is start_from, whose verifier would be taken"
    if config.tokenizer != TokenizerConfig():
        yield "tokenizer: there is no verifier to train, and that of start_from has its own"
    if config.refinement:
        yield "refinement: there is no verifier to train"
    if config.distillation.nearest_reference:
        yield "distillation.nearest_reference: a drafter alone is trained on sources, without references"
    for name, sample in config.distillation.sample.items():
        if sample.references:
            yield f"distillation.sample: {name}: references: a drafter alone learns from translations only"


def _wrong_corpora(config: Config) -> Iterator[str]:
    data, refinement = config.data, config.refinement
    for entry in [*data.train, *data.valid]:
        if entry.swapped and ".tsv" not in Path(entry.path).suffixes:
            yield f"swapped: {entry.path} has a file for each language; only a .tsv file can be"
    for section, stage in (("refinement", refinement), ("distillation", config.distillation)):
        for name in set(stage.sample if stage else ()) - {entry.path for entry in data.train}:
            yield f"{section}.sample: {name} is not in data.train"
    for section, trained in (("verifier", config.verifier), ("refinement", refinement), ("drafter", config.drafter)):
        if trained and trained.optimizer.batch_tokens <= data.max_tokens:
            yield f"{section}.optimizer.batch_tokens: must be more than data.max_tokens"
        if trained and trained.optimizer.replicas > 1 and trained.optimizer.patience:
            yield f"{section}.optimizer.patience: replicas train to the last update"


def _override(values: dict[str, Any], override: str) -> None:
    key, equals, value = override.partition("=")
    if not equals:
        raise ConfigError(f"--set {override}: expected key=value")
    *sections, name = key.split(".")
    for depth, section in enumerate(sections, start=1):
        values = values.setdefault(section, {})
        if not isinstance(values, dict):
            raise ConfigError(f"--set {override}: {_no_section(values, sections[:depth])}")
    try:
        values[name] = parse_yaml(value)
    except KeyTwiceError as error:
        raise ConfigError(f"--set {override}: the key {error.key} stands there twice") from None
    except ValueError:
        raise ConfigError(f"--set {override}: the value is not YAML") from None


def _no_section(found: object, keys: list[str]) -> str:
    if isinstance(found, list):
        return f"{keys[-1]} is a list, which is set as a whole, as in {'.'.join(keys)}=[…]"
    return f"{keys[-1]} is not a section"


def _first_mistake(error: ValidationError) -> str:
    # What is misspelt is both unknown and missing.
    mistake: Mapping[str, Any] = min(error.errors(), key=lambda mistake: mistake["type"] != _UNKNOWN)
    key = ".".join(str(part) for part in mistake["loc"])
    if mistake["type"] == _UNKNOWN:
        return f"unknown key {key}"
    if mistake["type"] in {"missing", "missing_argument", "missing_keyword_only_argument"}:
        return f"missing key {key}"
    found = mistake["input"]
    advice = ""
    if mistake["type"] == "string_type" and isinstance(found, _TAKEN_FOR_OTHERS):
        advice = '; for YAML this is no text unless it is quoted, as in "no"'
    said = "nothing" if found is None else repr(found)
    return f"{key}: {mistake['msg'][0].lower()}{mistake['msg'][1:]}, found {said}{advice}"
