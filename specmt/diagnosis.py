"""What is installed here, what the CPU can do, which engine runs, and whether it does: what `specmt doctor` says."""

from __future__ import annotations

import platform
import random
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specmt.errors import SpecmtError
from specmt.machine import cpu_flags, cpu_model, package_version, usable_cores

if TYPE_CHECKING:
    from specmt.settings import DecodingSettings
    from specmt.translation import Translation
    from specmt.translator import Translator

REQUIRED = (
    "numpy",
    "onnxruntime",
    "platformdirs",
    "rich",
    "sacrebleu",
    "safetensors",
    "sentencepiece",
    "sentencex",
    "typer",
)
OPTIONAL = {
    "torch": "the torch engine, training, converting",
    "onnx": "training, converting",
    "fairseq": "training",
    "sacremoses": "converted models that were trained on Moses tokens",
    "subword-nmt": "converted models with byte-pair encoding",
    "matplotlib": "specmt eval --plot",
}
_X86_FEATURES = {
    "avx2": "the least for fast 8-bit products",
    "avx512f": "wider vectors",
    "avx_vnni": "8-bit products in one step (256 bits)",
    "avx512_vnni": "8-bit products in one step (512 bits)",
    "amx_int8": "8-bit products of tiles",
    "amx_bf16": "bfloat16 products of tiles, for --engine torch --precision bf16",
}
_ARM_FEATURES = {"asimddp": "the least for fast 8-bit products: dot products"}
CPU_FEATURES = _ARM_FEATURES if platform.machine() == "aarch64" else _X86_FEATURES
"""As Linux names them, and what they are for."""
_GERMAN = ("Ein Mann spielt Gitarre.", "Zwei Hunde laufen durch das Gras.", "Ich habe heute keine Zeit.")
_MADE_UP_PIECES = 8
"""Of a sentence in any other language."""
_TIMED_RUNS = 5


@dataclass(frozen=True)
class SelfTest:
    """A model translated sentences in every strategy that it has."""

    ok: bool
    engine: str
    load_ms: float
    """From the directory to the first translation, milliseconds."""
    sentence_ms: dict[str, float]
    """A sentence at batch size 1 on one core by strategy, milliseconds; the fastest of some runs."""
    problem: str
    """One line; empty when all is well."""


@dataclass(frozen=True)
class Diagnosis:
    """What `doctor` found."""

    python: str
    platform: str
    cores: int
    cpu: str
    cpu_features: dict[str, bool | None]
    """By name of `CPU_FEATURES`; None where this system does not say."""
    packages: dict[str, str | None]
    """Versions; None where a package is not installed."""
    engine: str
    """Which `--engine auto` takes for the model."""
    reason: str
    problems: tuple[str, ...]
    self_test: SelfTest

    @property
    def ok(self) -> bool:
        """Whether translation works here."""
        return self.self_test.ok and not self.problems

    def to_json(self) -> dict[str, Any]:
        """One JSON object."""
        return {"ok": self.ok, **asdict(self)}


def diagnose(model: Path) -> Diagnosis:
    """Look at this installation, and translate with `model`; what goes wrong is in the result."""
    packages = {name: package_version(name) for name in ("specmt", *REQUIRED, *OPTIONAL)}
    problems = [problem for name in REQUIRED if (problem := _trouble(name, packages[name]))]
    if sys.version_info < (3, 11):  # noqa: UP036  (a copied folder may be run by anything)
        problems.append(f"Python {platform.python_version()} is older than 3.11")
    engine, reason = _engine(model)
    return Diagnosis(
        platform.python_version(),
        platform.platform(),
        usable_cores(),
        cpu_model(),
        _cpu_features(),
        packages,
        engine,
        reason,
        tuple(problems),
        _self_test(model),
    )


def _trouble(package: str, installed: str | None) -> str | None:
    """What is wrong with a package that is required, if anything is. The self-test need not import it."""
    if installed is None:
        return f"{package} is not installed: pip install {package}"
    try:
        import_module(package)
    except Exception as error:
        return f"{package} cannot be imported: {next(iter(str(error).splitlines()), type(error).__name__)}"
    return None


def _engine(model: Path) -> tuple[str, str]:
    try:
        from specmt.bundles.bundle import load_bundle
        from specmt.loading import engine_for

        return engine_for(load_bundle(model))
    except (SpecmtError, ImportError) as error:
        return "none", str(error)


def _cpu_features() -> dict[str, bool | None]:
    """Those of `CPU_FEATURES`, where /proc says them."""
    flags = cpu_flags()
    return {feature: feature in flags if flags is not None else None for feature in CPU_FEATURES}


def _self_test(model: Path) -> SelfTest:
    started = time.perf_counter()
    try:
        from specmt.loading import load_translator
        from specmt.settings import DecodingSettings

        translator = load_translator(model)
        sentences = _sentences(translator)
        # Without guards: what they copy is not decoded, and so tests nothing.
        relaxed = replace(DecodingSettings.relaxed(translator.defaults), guards=False)
        settings = {"ar": replace(relaxed, strategy="ar")}
        if translator.has_drafter:
            settings |= {"spec-strict": relaxed.strict(), "spec": relaxed}
        found, load_ms, sentence_ms = {}, 0.0, {}
        for name, one in settings.items():
            found[name] = list(translator.translate(sentences, one, batch_size=1))
            load_ms = load_ms or 1000 * (time.perf_counter() - started)
            sentence_ms[name] = _sentence_ms(translator, sentences, one)
        problem = _problem(found, sentences == _GERMAN)
        return SelfTest(not problem, translator.engine.name, load_ms, sentence_ms, problem)
    except Exception as error:  # a doctor tells what is broken, whatever it is
        lines = str(error).splitlines() or [repr(error)]
        return SelfTest(False, "none", 0.0, {}, lines[0])


def _sentences(translator: Translator) -> Sequence[str]:
    """German ones for a model that reads German, else random pieces of the source's vocabulary."""
    from specmt.text.vocabulary import UNK_ID

    if translator.splitting is not None and translator.splitting.language == "de":
        return _GERMAN
    choice, vocabulary = random.Random(0), translator.vocabulary
    pieces = [vocabulary.source_piece(id_) for id_ in range(UNK_ID + 1, vocabulary.source_size)]
    words = [piece.strip("▁@") for piece in pieces if any(map(str.isalpha, piece))] or pieces
    return tuple(" ".join(choice.choices(words, k=_MADE_UP_PIECES)) for _ in _GERMAN)


def _sentence_ms(translator: Translator, sentences: Sequence[str], settings: DecodingSettings) -> float:
    times = []
    for _ in range(_TIMED_RUNS):
        started = time.perf_counter()
        list(translator.translate(sentences, replace(settings, scored=False), batch_size=1))
        times.append(time.perf_counter() - started)
    return 1000 * min(times) / len(sentences)


def _problem(found: Mapping[str, Sequence[Translation]], have_meaning: bool) -> str:
    """What is wrong with translations by strategy; of sentences without a meaning, one may be empty."""
    done = [translation for translations in found.values() for translation in translations]
    if not all(translation.iterations for translation in done):
        return "a sentence was not decoded: no pass ran"
    if have_meaning and not all(translation.text.strip() for translation in done):
        return "a sentence was translated by nothing"
    texts = {name: [translation.text for translation in translations] for name, translations in found.items()}
    if texts.get("spec-strict", texts["ar"]) != texts["ar"]:
        return "strict speculation and ar gave different texts"
    return ""


def as_text(diagnosis: Diagnosis) -> str:
    """The same for a person."""
    lines = [
        f"Python {diagnosis.python} on {diagnosis.platform}",
        f"{diagnosis.cpu}, {diagnosis.cores} cores for this process",
    ]
    for feature, meaning in CPU_FEATURES.items():
        known = {True: "yes", False: "no", None: "?"}[diagnosis.cpu_features[feature]]
        lines.append(f"  {feature:<12} {known:<4} {meaning}")
    lines.append("packages")
    for name, found in diagnosis.packages.items():
        needed = f"for {OPTIONAL[name]}" if name in OPTIONAL else "needed"
        lines.append(f"  {name:<14} {found or 'not installed':<14} {needed if name != 'specmt' else ''}".rstrip())
    lines.append(f"engine: {diagnosis.engine} ({diagnosis.reason})")
    test = diagnosis.self_test
    if test.ok:
        times = ", ".join(f"{name} {milliseconds:.1f} ms" for name, milliseconds in test.sentence_ms.items())
        lines.append(f"self-test: passed; {test.engine} ready in {test.load_ms:.0f} ms; a sentence: {times}")
    else:
        lines.append(f"self-test: FAILED: {test.problem}")
    lines += [f"problem: {problem}" for problem in diagnosis.problems]
    return "\n".join([*lines, "all is well" if diagnosis.ok else "something is broken", ""])
