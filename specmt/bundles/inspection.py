"""What a bundle is: manifest, sizes, how it decodes, where it comes from, and whether its files are as they were."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from specmt.bundles.bundle import MANIFEST, load_bundle
from specmt.bundles.weights import read_stored, weight_bits
from specmt.text.characters import printable

_DEEPEST = 8
"""Levels of scores in a manifest that are shown."""


def describe(path: Path) -> dict[str, Any]:
    """A bundle as one JSON object; sizes in bytes. Reads every file, and compares its digest.

    Raises:
        BundleError: see `load_bundle`; a file that is missing or altered is named.
    """
    bundle = load_bundle(path)
    names = (MANIFEST, *bundle.files)
    sizes = {name: (path / name).stat().st_size for name in names}
    return {
        "path": str(path),
        "format_version": bundle.format_version,
        "source_language": bundle.source_language,
        "target_language": bundle.target_language,
        "strategies": [*(["spec"] if bundle.has_drafter else []), "replay", "ar"],
        "engines": [
            *(["native"] if bundle.has_ranges else []),
            *(["onnx"] if bundle.has_graphs else []),
            "torch",
        ],
        "architecture": asdict(bundle.architecture),
        "weight_bits": weight_bits(read_stored(bundle.weights_path, bundle.architecture)),
        "decoding": asdict(bundle.decoding),
        "files": {name: {"bytes": size, "sha256": bundle.files.get(name)} for name, size in sizes.items()},
        "bytes": sum(sizes.values()),
        "digests": "match",
        "scores": dict(bundle.scores),
        "training": dict(bundle.training),
    }


def as_text(described: dict[str, Any]) -> str:
    """The same for a person: a line a fact, without the whole training configuration."""
    shape, decoding = described["architecture"], described["decoding"]
    drafter = "none: decodes with ar or replay"
    if shape["drafter_layers"]:
        layers = _counted(shape["drafter_layers"], "layer")
        drafter = f"{layers}, {shape['draft_length']} slots, bigram rank {shape['bigram_rank']}"
    facts = {
        "model": f"{described['path']} (format {described['format_version']})",
        "languages": f"{described['source_language']} → {described['target_language']}",
        "size": f"{described['bytes'] / 1e6:.1f} MB in {len(described['files'])} files; all digests match",
        "weights": "4 bits in what each pass reads, 8 elsewhere" if described["weight_bits"] == 4 else "8 bits",
        "vocabulary": f"{shape['source_vocabulary_size'] or shape['vocabulary_size']} source, "
        f"{shape['vocabulary_size']} target tokens",
        "verifier": f"{shape['encoder_layers']} + {shape['decoder_layers']} layers of width {shape['width']}, "
        f"{'pre' if shape['decoder_pre_norm'] else 'post'}-norm",
        "drafter": drafter,
        "engines": ", ".join(described["engines"]),
        "defaults": ", ".join(f"{name} {value}" for name, value in decoding.items()),
    }
    if shape["source_positions"] or shape["target_positions"]:
        sides = ((side, shape[f"{side}_positions"]) for side in ("source", "target"))
        facts["verifier"] += f", positions learned: {', '.join(f'{count} {side}' for side, count in sides if count)}"
    origin = described["training"]
    for key, name, entry in (("converted from", "converted_from", "checkpoint"), ("trained as", "config", "name")):
        if isinstance(said := origin.get(name), dict):
            facts[key] = str(said.get(entry))
    drafted = origin.get("drafter")
    if isinstance(drafted, dict) and isinstance(said := drafted.get("config"), dict):
        facts["drafter trained as"] = str(said.get("name"))
    facts |= {f"scores, {name}": _scores(scores) for name, scores in described["scores"].items()}
    width = max(map(len, facts))
    return "".join(f"{printable(f'{name:<{width}}  {value}')}\n" for name, value in facts.items())


def _scores(scores: object, depth: int = 0) -> str:
    """Scores by strategy, or plain ones."""
    if not isinstance(scores, dict):
        return str(scores)
    if depth > _DEEPEST:
        return "…"
    if not any(isinstance(value, dict) for value in scores.values()):
        return ", ".join(f"{name} {_number(value)}" for name, value in scores.items() if "signature" not in name)
    return "; ".join(f"{name}: {_scores(value, depth + 1)}" for name, value in scores.items())


def _number(value: object) -> str:
    if isinstance(value, list):
        return " ".join(map(_number, value))
    return f"{value:.2f}" if isinstance(value, float) else str(value)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count != 1 else ''}"
