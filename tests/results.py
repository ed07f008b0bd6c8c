"""A finished evaluation, for what shows one."""

from __future__ import annotations

from dataclasses import replace

from scripted import DEFAULTS

from specmt.evaluation.measuring import Evaluation, Latency, Machine, StrategyResult, strategy_settings

AR = StrategyResult(
    strategy="ar",
    settings=strategy_settings("ar", DEFAULTS),
    bleu=38.4,
    bleu_signature="nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0",
    chrf=58.3,
    chrf_signature="nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0",
    seconds=24.2,
    seconds_min=24.0,
    seconds_max=25.1,
    sentences_per_second=41.32,
    latency_ms=Latency(24.2, 22.0, 41.5, 60.1),
    speedup_vs_ar=1.0,
    speedup_vs_ar_min=1.0,
    speedup_vs_ar_max=1.0,
    mean_emitted_tokens=1.0,
    acceptance_rate=None,
    acceptance_by_position=(),
    emitted_histogram=(0, 320),
    iterations=320,
    identical_to_ar=1.0,
)
BEAM = replace(
    AR,
    strategy="beam5",
    settings=strategy_settings("beam5", DEFAULTS),
    bleu=38.9,
    speedup_vs_ar=0.62,
    speedup_vs_ar_min=0.6,
    speedup_vs_ar_max=0.65,
    identical_to_ar=0.71,
)
STRICT = replace(
    AR,
    strategy="spec-strict",
    settings=strategy_settings("spec-strict", DEFAULTS),
    speedup_vs_ar=1.93,
    speedup_vs_ar_min=1.85,
    speedup_vs_ar_max=2.02,
    mean_emitted_tokens=2.3,
    acceptance_rate=0.4,
    acceptance_by_position=(0.8, 0.625),
    emitted_histogram=(0, 2, 3, 5),
    iterations=10,
)
RELAXED = replace(
    STRICT,
    strategy="spec",
    settings=strategy_settings("spec", DEFAULTS),
    bleu=38.1,
    speedup_vs_ar=2.42,
    speedup_vs_ar_min=2.3,
    speedup_vs_ar_max=2.51,
    mean_emitted_tokens=3.2,
    acceptance_rate=0.7,
    acceptance_by_position=(0.9, 0.8, 0.625),
    emitted_histogram=(0, 1, 1, 3, 5),
    identical_to_ar=0.885,
)
REPLAY = replace(
    AR,
    strategy="replay",
    settings=replace(AR.settings, strategy="replay"),
    mean_emitted_tokens=8.0,
    emitted_histogram=(0,) * 8 + (100,),
)
"""Its iterations are replays of several tokens."""

EVALUATION = Evaluation(
    Machine("Some CPU", 2, 1, "Linux", "3.11.7", "2.13.0", "torch-cpu-fp32", "fp32"),
    lines=1000,
    batch_size=1,
    repeats=3,
    results=(AR, BEAM, STRICT, RELAXED),
)
