"""The training pipeline: tokenizer, binarise, verifier, distil, drafter, export, evaluate; each stage resumable."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from specmt import corpus
from specmt.config import Config, CorpusConfig
from specmt.corpus import Pair
from specmt.fairseq_backend import driver
from specmt.files import atomic_path
from specmt.stages import Stage
from specmt.vocabulary import Vocabulary, train_vocabulary


@dataclass(frozen=True)
class Pipeline:
    """The stages of one configuration and where each keeps its files."""

    config: Config
    report: Callable[[str, driver.Progress], None]
    """Called with a stage's name and its progress."""

    @property
    def output(self) -> Path:
        """The run's folder."""
        return Path(self.config.output)

    @cached_property
    def stages(self) -> tuple[Stage, ...]:
        """All stages in their order."""
        tokenizer = Stage(
            "tokenizer",
            self.output / "tokenizer",
            (self.config.tokenizer, self.config.data),
            self._corpus_files(),
            (),
            ("tokenizer.model",),
            self._train_tokenizer,
        )
        binarise = Stage(
            "binarise", self.output / "binarised", (), (), (tokenizer,), tuple(self._binarised_files()), self._binarise
        )
        verifier = Stage(
            "verifier",
            self.output / "verifier",
            (self.config.verifier, self.config.runtime.seed, self.config.runtime.bf16),
            (),
            (binarise,),
            ("verifier.pt",),
            self._train_verifier,
        )
        return (tokenizer, binarise, verifier)

    # -- data

    def _corpus_files(self) -> tuple[Path, ...]:
        files: list[Path] = []
        for entry in [*self.config.data.train, *self.config.data.valid]:
            path = self._corpus_path(entry)
            if ".tsv" in path.suffixes:
                files.append(path)
            else:
                files += [Path(f"{path}.{language}") for language in self._languages]
        return tuple(files)

    def _corpus_path(self, entry: CorpusConfig) -> Path:
        return Path(self.config.data.folder) / entry.path

    @property
    def _languages(self) -> tuple[str, str]:
        return self.config.data.source_language, self.config.data.target_language

    def _read(self, entry: CorpusConfig) -> list[Pair]:
        pairs = corpus.read_corpus(self._corpus_path(entry), *self._languages)
        return pairs[: entry.limit or None] * entry.repeat

    def _encoded(self, entries: list[CorpusConfig], vocabulary: Vocabulary) -> Iterator[tuple[list[int], list[int]]]:
        data = self.config.data
        for entry in entries:
            for pair in self._read(entry):
                source, target = vocabulary.encode(pair.source), vocabulary.encode(pair.target)
                if corpus.keep_pair(len(source), len(target), data.max_tokens, data.max_length_ratio):
                    yield source, target

    # -- stages

    @property
    def vocabulary(self) -> Vocabulary:
        """The trained vocabulary."""
        return Vocabulary((self.output / "tokenizer" / "tokenizer.model").read_bytes())

    def _train_tokenizer(self) -> None:
        settings = self.config.tokenizer
        sentences = (text for entry in self.config.data.train for pair in self._read(entry) for text in pair)
        prefix = self.output / "tokenizer" / ".part"
        train_vocabulary(
            sentences, prefix, settings.vocabulary_size, settings.character_coverage, self.config.runtime.threads
        )
        prefix.with_suffix(".model").rename(prefix.with_name("tokenizer.model"))

    def _binarised_files(self) -> Iterator[str]:
        pair = "-".join(self._languages)
        for language in self._languages:
            yield f"dict.{language}.txt"
            for split in ("train", "valid"):
                yield f"{split}.{pair}.{language}.bin"
                yield f"{split}.{pair}.{language}.idx"

    def _binarise(self) -> None:
        from specmt.fairseq_backend import binarise

        vocabulary = self.vocabulary
        folder = self.output / "binarised"
        binarise.write_dictionary(vocabulary, folder, self._languages)
        splits = {"train": self.config.data.train, "valid": self.config.data.valid}
        for split, entries in splits.items():
            pairs = self._encoded(entries, vocabulary)
            binarise.write_split(folder, split, self._languages, pairs, len(vocabulary))

    def _train_verifier(self) -> None:
        folder = self.output / "verifier"
        arguments = driver.verifier_arguments(self.config, self.output / "binarised", folder / "checkpoints")
        driver.run(
            arguments,
            self.config.runtime.threads,
            self.output / "logs" / "verifier.log",
            lambda progress: self.report("verifier", progress),
        )
        checkpoints = driver.last_checkpoints(folder / "checkpoints", self.config.verifier.optimizer.average_checkpoints)
        with atomic_path(folder / "verifier.pt") as path:
            driver.average(checkpoints, path)
