"""Runs fairseq's trainer as a subprocess: arguments from the configuration, progress from its log."""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import torch

from specmt.bundles.architecture import Architecture
from specmt.errors import TrainingError
from specmt.training.config import Config, OptimizerConfig, RefinementConfig, RuntimeConfig, VerifierConfig

VerifierStage = VerifierConfig | RefinementConfig
"""What the verifier is trained by."""

# Fresh memory is costly in virtual machines: keep what was freed. glibc reads these at start, other libcs ignore them.
_KEEP_MEMORY = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": str(8 << 30),
    "MALLOC_TOP_PAD_": str(256 << 20),
}
NEVER = str(10**9)
"""Updates between two things that are not wanted."""
_READERS = 8
"""Processes that make batches for a GPU, which would wait for them otherwise."""
_NO_ROOM = re.compile(r"inline_container|PytorchStreamWriter|No space left")
"""What torch says when a file cannot be written to its end."""


@dataclass(frozen=True)
class Progress:
    """What fairseq logs now and then. Losses in bits per token; `valid_loss` is None in training lines."""

    update: int
    loss: float
    valid_loss: float | None
    tokens_per_second: float | None


def on_gpu(runtime: RuntimeConfig) -> bool:
    """Whether networks are trained, and translate for that, on a GPU.

    Raises:
        TrainingError: one is asked for, and torch finds none.
    """
    if runtime.device == "cuda" and not torch.cuda.is_available():
        raise TrainingError("runtime.device: cuda: torch finds no GPU")
    return runtime.device != "cpu" and torch.cuda.is_available()


def free_memory(runtime: RuntimeConfig) -> None:
    """Give back what networks that are gone held on a GPU: the trainer is a process of its own, and needs it."""
    if on_gpu(runtime):
        gc.collect()
        torch.cuda.empty_cache()


def verifier_arguments(
    config: Config,
    verifier: VerifierConfig,
    stage: VerifierStage,
    binarised: Path,
    checkpoints: Path,
    initial: Path | None,
) -> list[str]:
    """Arguments of fairseq for a stage of the verifier. `initial`: a checkpoint whose weights it starts from."""
    return [
        *(str(binarised), *verifier_shape(verifier), "--dropout", str(verifier.dropout)),
        *("--source-lang", config.data.source_language, "--target-lang", config.data.target_language),
        *("--criterion", "specmt_translation", "--label-smoothing", str(stage.label_smoothing)),
        *_common_arguments(config, stage.optimizer, checkpoints, initial),
    ]


def verifier_shape(shape: VerifierConfig | Architecture) -> list[str]:
    """Arguments of fairseq that say what model a verifier is."""
    return [
        *("--task", "translation", "--arch", "transformer", "--share-all-embeddings"),
        *("--encoder-layers", str(shape.encoder_layers), "--decoder-layers", str(shape.decoder_layers)),
        *("--encoder-embed-dim", str(shape.width), "--decoder-embed-dim", str(shape.width)),
        *("--encoder-ffn-embed-dim", str(shape.feed_forward_width)),
        *("--decoder-ffn-embed-dim", str(shape.feed_forward_width)),
        *("--encoder-attention-heads", str(shape.heads), "--decoder-attention-heads", str(shape.heads)),
        *("--encoder-normalize-before", "--decoder-normalize-before"),
    ]


def drafter_arguments(
    config: Config, binarised: Path, verifier: Path, checkpoints: Path, output_ids: Path | None, initial: Path | None
) -> list[str]:
    """Arguments of fairseq for the drafter.

    Args:
        binarised: the sources with the verifier's translations.
        output_ids: JSON with the ids of the tokens that it can say; all where there is none.
        initial: a checkpoint whose weights it starts from.
    """
    drafter = config.drafter
    return [
        str(binarised),
        *("--task", "specmt_drafting", "--arch", "specmt_drafter", "--verifier-checkpoint", str(verifier.resolve())),
        *("--source-lang", config.data.source_language, "--target-lang", config.data.target_language),
        *("--layers", str(drafter.layers), "--draft-length", str(drafter.draft_length)),
        *("--bigram-rank", str(drafter.bigram_rank), "--dropout", str(drafter.dropout)),
        *("--glancing-start", str(drafter.glancing_start), "--glancing-end", str(drafter.glancing_end)),
        *("--glancing-updates", str(drafter.optimizer.max_updates)),
        *("--criterion", "specmt_drafting", "--label-smoothing", str(drafter.label_smoothing)),
        *("--blocks", str(drafter.blocks)),
        *(["--output-ids", str(output_ids)] if output_ids else []),
        *_common_arguments(config, drafter.optimizer, checkpoints, initial),
    ]


def _common_arguments(config: Config, optimizer: OptimizerConfig, checkpoints: Path, initial: Path | None) -> list[str]:
    updates, interval = str(optimizer.max_updates), str(optimizer.checkpoint_updates)
    return [
        *("--optimizer", "adam", "--adam-betas", "(0.9, 0.98)", "--weight-decay", str(optimizer.weight_decay)),
        *("--lr", str(optimizer.learning_rate), "--warmup-updates", str(optimizer.warmup_updates)),
        *("--lr-scheduler", "polynomial_decay", "--total-num-update", updates, "--max-update", updates),
        *("--clip-norm", str(optimizer.clip_norm), "--max-tokens", str(optimizer.batch_tokens)),
        *("--max-tokens-valid", str(2 * optimizer.batch_tokens), "--patience", str(optimizer.patience or -1)),
        *("--save-interval-updates", interval, "--validate-interval-updates", interval),
        *("--save-interval", NEVER, "--validate-interval", NEVER),  # else at the end of every epoch as well
        *("--keep-interval-updates", str(optimizer.average_checkpoints), "--no-epoch-checkpoints"),
        *("--save-dir", str(checkpoints), "--seed", str(config.runtime.seed)),
        *("--log-format", "json", "--log-interval", "25", "--skip-invalid-size-inputs-valid-test"),
        *_device_arguments(config.runtime),
        *(["--autocast-bf16"] if config.runtime.bf16 else []),
        *(["--finetune-from-model", str(initial)] if initial else []),
    ]


def _device_arguments(runtime: RuntimeConfig) -> list[str]:
    if on_gpu(runtime):
        return ["--distributed-world-size", "1", "--num-workers", str(min(runtime.cores, _READERS))]
    return ["--cpu", "--num-workers", "0"]


class Trainer:
    """fairseq's trainer in a process of its own, which ends with ours, or when the context is left."""

    def __init__(self, arguments: list[str], threads: int, log: Path) -> None:
        """Start it. `log`: the file to which its output is added."""
        log.parent.mkdir(parents=True, exist_ok=True)
        self.log = log
        self._process = subprocess.Popen(
            [sys.executable, "-m", "specmt.fairseq_backend.train", *arguments],
            close_fds=False,  # the trainer holds the lock on the run's folder too, should we be killed
            env={**os.environ, **_KEEP_MEMORY, "OMP_NUM_THREADS": str(threads), "PYTHONUNBUFFERED": "1"},
            stdin=subprocess.PIPE,  # ours alone, and open until we end: the trainer ends with it
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )

    def __enter__(self) -> Self:
        """Itself."""
        return self

    def __exit__(self, *error: object) -> None:
        """Stop it, unless it has ended, and wait until it has."""
        if self._process.poll() is None:
            self._process.terminate()
            self._process.wait()

    def follow(self, report: Callable[[Progress], None]) -> None:
        """Wait until it ends, writing its log.

        Raises:
            TrainingError: fairseq failed; the message has the first exception of its log, or else the last line, and
                says where that is.
        """
        assert self._process.stdout is not None
        last, cause, in_traceback = "no output", "", False
        with self.log.open("a", encoding="utf-8") as log_file:
            for line in self._process.stdout:
                log_file.write(line)
                log_file.flush()
                last = line.strip() or last
                if in_traceback and not line[0].isspace():
                    cause, in_traceback = cause or last, False
                in_traceback = in_traceback or line.startswith("Traceback ")
                for progress in parse_progress(line):
                    report(progress)
        if status := self._process.wait():
            why = f"fairseq ended with status {status}: {cause or last}"
            if _NO_ROOM.search(cause):
                why = "fairseq could not write a checkpoint: is there room on the disk?"
            raise TrainingError(f"{why} (log: {self.log})")


def run(arguments: list[str], threads: int, log: Path, report: Callable[[Progress], None]) -> None:
    """Run a trainer to its end; on any exception here it is stopped and waited for.

    Raises:
        TrainingError: see `Trainer.follow`.
    """
    with Trainer(arguments, threads, log) as trainer:
        trainer.follow(report)


def parse_progress(line: str) -> Iterator[Progress]:
    """The progress that a line of fairseq's JSON log tells, if any."""
    _, brace, rest = line.partition("{")
    try:
        record = json.loads(brace + rest)
    except json.JSONDecodeError:
        return
    if "num_updates" in record:
        yield Progress(int(record["num_updates"]), float(record["loss"]), None, float(record.get("wps", "nan")))
    elif "valid_num_updates" in record:
        valid = float(record["valid_loss"])
        yield Progress(int(record["valid_num_updates"]), valid, valid, None)
