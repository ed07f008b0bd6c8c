"""A model as a directory: manifest, tokenizer, weights. Checked on load; nothing is ever unpickled."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from threading import Thread
from typing import Any, TypeVar

from specmt.bundles.architecture import Architecture
from specmt.errors import BundleError, InputError, reason
from specmt.files import atomic_path, file_digest, write_json
from specmt.text.dictionaries import SEGMENTATION, VOCABULARY_FILES, read_vocabulary
from specmt.text.vocabulary import AnyVocabulary, Vocabulary

FORMAT_VERSION = 2
"""The newest that this program reads. Format 1 has a SentencePiece model of specmt's own, a drafter, and a verifier as
specmt trains it; what differs is written as format 2."""
MANIFEST = "manifest.json"
TOKENIZER = "tokenizer.model"
WEIGHTS = "model.safetensors"
GRAPHS = ("encode.onnx", "verify.onnx", "draft.onnx", "speculate.onnx")
"""What the onnx engine runs; they read the weights file. A bundle may have none; the last two are the drafter's."""
RANGES = "ranges.json"
"""What range each product reads: the 8-bit scales of the native engine. A bundle may have none."""

_USUAL_SOURCE_TOKENS = 100
_MOST_TOKENS_FACTOR = 1000
_MOST_TOKENS_OFFSET = 1_000_000

MOST_TAU = 1e6
"""Nats, by which no two log-probabilities differ."""
MOST_LENGTH_PENALTY = 10
"""Beyond, powers of lengths are no numbers any more; what is used lies between 0 and 2."""

T = TypeVar("T")


@dataclass(frozen=True)
class DecodingDefaults:
    """How the pair decodes unless the user says otherwise; tuned on validation data."""

    draft_length: int
    """`[MASK]` slots per iteration."""
    beta: int
    """Candidates of the verifier among which a draft token is accepted when relaxed."""
    tau: float
    """How far behind the best candidate an accepted one may then be, in nats."""
    strict: bool = True
    """Whether only the best candidate is accepted (beta = 1) unless relaxed decoding is asked for."""
    length_penalty: float = 1.0
    """Exponent of the length (tokens) by which beam search divides a log-probability."""
    max_tokens_factor: float = 2.0
    max_tokens_offset: int = 10
    """A translation has at most factor · source tokens + offset tokens, end-of-sentence included."""

    def __post_init__(self) -> None:
        """Refuse numbers that no decoding can work with."""
        if not (self.draft_length >= 1 and self.beta >= 1):
            raise ValueError("draft_length and beta are at least 1")
        if not (0 <= self.tau <= MOST_TAU and abs(self.length_penalty) <= MOST_LENGTH_PENALTY):
            raise ValueError(f"tau is 0 to {MOST_TAU:g}, length_penalty at most {MOST_LENGTH_PENALTY} either way")
        factor, offset = self.max_tokens_factor, self.max_tokens_offset
        if not (0 <= factor <= _MOST_TOKENS_FACTOR and 1 <= offset <= _MOST_TOKENS_OFFSET):
            most = f"max_tokens_factor is 0 to {_MOST_TOKENS_FACTOR}, max_tokens_offset 1 to {_MOST_TOKENS_OFFSET}"
            raise ValueError(most)

    def to_json(self) -> dict[str, Any]:
        """What a manifest says: that a pair is strict only where it is not."""
        return {name: value for name, value in asdict(self).items() if (name, value) != ("strict", True)}


@dataclass(frozen=True)
class Bundle:
    """A checked bundle. `files` maps each file's name to its SHA-256."""

    path: Path
    source_language: str
    target_language: str
    architecture: Architecture
    decoding: DecodingDefaults
    files: Mapping[str, str]
    training: Mapping[str, Any]
    """How it was trained: configuration and package versions."""
    scores: Mapping[str, Any]
    """Its evaluation on the validation set."""
    format_version: int = 1

    def vocabulary(self) -> AnyVocabulary:
        """Load the tokenizer.

        Raises:
            BundleError: it is not one that this program can use.
        """
        path = self.path / (TOKENIZER if TOKENIZER in self.files else SEGMENTATION)
        vocabulary: AnyVocabulary
        try:
            vocabulary = Vocabulary(path.read_bytes()) if path.name == TOKENIZER else read_vocabulary(self.path)
        except ValueError as error:
            raise BundleError(f"{path}: {error}") from None
        sizes = (
            (len(vocabulary), self.architecture.vocabulary_size),
            (vocabulary.source_size, self.architecture.source_vocabulary_size or self.architecture.vocabulary_size),
        )
        for found, expected in sizes:
            if found != expected:
                raise BundleError(f"{path}: {found} pieces, expected {expected}")
        return vocabulary

    @property
    def languages(self) -> tuple[str, str]:
        """Source, target."""
        return self.source_language, self.target_language

    @property
    def digest(self) -> str:
        """SHA-256 over the names and digests of the files: the same for the same model, wherever it stands."""
        return hashlib.sha256(json.dumps(sorted(self.files.items())).encode()).hexdigest()

    @property
    def has_own_tokenizer(self) -> bool:
        """Whether its vocabulary is specmt's own: not that of a converted model."""
        return TOKENIZER in self.files

    @property
    def has_drafter(self) -> bool:
        """Whether it can speculate; a converted verifier alone cannot."""
        return self.architecture.drafter_layers > 0

    @property
    def has_graphs(self) -> bool:
        """Whether the onnx engine can run it."""
        needed = GRAPHS if self.architecture.drafter_layers else GRAPHS[:2]
        return all(name in self.files for name in needed)

    @property
    def has_ranges(self) -> bool:
        """Whether the native engine can run it."""
        return RANGES in self.files

    @property
    def max_source_tokens(self) -> int:
        """Tokens of the longest source that the pair was trained on, or a usual number where that is not written.

        Never more than it has positions for.
        """
        try:
            found = int(self.training["config"]["data"]["max_tokens"])
        except (KeyError, TypeError, ValueError, OverflowError):
            found = 0
        most = self.architecture.max_source_tokens
        trained = found if found > 0 else _USUAL_SOURCE_TOKENS
        return trained if most is None else min(trained, most)

    @property
    def weights_path(self) -> Path:
        """The weights as safetensors."""
        return self.path / WEIGHTS


def load_bundle(path: Path) -> Bundle:
    """Read the manifest and check every file's digest.

    Raises:
        BundleError: no bundle there, a newer format, a missing or altered file.
    """
    with opened_bundle(path) as bundle:
        return bundle


@contextmanager
def opened_bundle(path: Path) -> Iterator[Bundle]:
    """The same, but the weights' digest is computed while the block runs; an error there is said in place of others.

    Raises:
        BundleError: see `load_bundle`.
    """
    bundle = _read_bundle(path)
    altered: list[BaseException] = []

    def check_weights() -> None:
        try:
            _check_file(bundle.weights_path, bundle.files[WEIGHTS])
        except BaseException as error:  # whatever it is: without a digest the weights are not used
            altered.append(error)

    checking = Thread(target=check_weights)
    checking.start()
    try:
        yield bundle
    finally:
        checking.join()
        if altered:
            raise altered[0] from None


def _read_bundle(path: Path) -> Bundle:
    """A bundle of which all files but the weights are checked."""
    manifest = _read_manifest(path)
    version = manifest.get("format_version")
    if not isinstance(version, int) or version < 1:
        raise BundleError(f"{path / MANIFEST}: no format_version; not a bundle's manifest")
    if version > FORMAT_VERSION:
        raise BundleError(f"{path}: format {version} is newer than this program's {FORMAT_VERSION}; upgrade specmt")
    if manifest.get("manifest_sha256") != _manifest_digest(manifest):
        raise BundleError(f"{path / MANIFEST}: altered or damaged (its own SHA-256 differs); copy the model again")
    bundle = _parse(path, manifest)
    if bundle.has_drafter and bundle.decoding.draft_length > bundle.architecture.draft_length:
        raise BundleError(f"{path / MANIFEST}: decoding: draft_length is more than the drafter's slots")
    for name, digest in bundle.files.items():
        if name != WEIGHTS:
            _check_file(path / name, digest)
    tokenizer = VOCABULARY_FILES if version > 1 and TOKENIZER not in bundle.files else (TOKENIZER,)
    for name in (*tokenizer, WEIGHTS):
        if name not in bundle.files:
            raise BundleError(f"{path / MANIFEST}: files: {name} is not listed")
    return bundle


def is_bundle(path: Path) -> bool:
    """Whether a whole bundle stands there."""
    try:
        load_bundle(path)
    except BundleError:
        return False
    return True


def _read_manifest(path: Path) -> dict[str, Any]:
    if not path.is_dir():
        raise BundleError(f"{path}: no such model directory")
    try:
        manifest = json.loads((path / MANIFEST).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BundleError(f"{path}: no {MANIFEST}; not a model directory") from None
    except OSError as error:
        raise BundleError(f"{path / MANIFEST}: cannot be read: {reason(error)}") from None
    except (ValueError, RecursionError):
        raise BundleError(f"{path / MANIFEST}: damaged: not JSON") from None
    if not isinstance(manifest, dict):
        raise BundleError(f"{path / MANIFEST}: damaged: not an object")
    return manifest


def _manifest_digest(manifest: Mapping[str, Any]) -> str:
    """SHA-256 of the manifest's other entries in canonical JSON."""
    entries = {key: value for key, value in manifest.items() if key != "manifest_sha256"}
    canonical = json.dumps(entries, sort_keys=True, ensure_ascii=False).encode(errors="surrogatepass")
    return hashlib.sha256(canonical).hexdigest()


def _parse(path: Path, manifest: dict[str, Any]) -> Bundle:
    def take(key: str, parse: Callable[[Any], T]) -> T:
        try:
            return parse(manifest[key])
        except (KeyError, TypeError, ValueError):
            raise BundleError(f"{path / MANIFEST}: {key} is missing or damaged") from None

    return Bundle(
        path,
        take("source_language", _text),
        take("target_language", _text),
        take("architecture", lambda value: _dataclass(Architecture, value)),
        take("decoding", lambda value: _dataclass(DecodingDefaults, value)),
        take("files", _file_digests),
        take("training", dict),
        take("scores", dict),
        take("format_version", int),
    )


def _text(value: object) -> str:
    if not isinstance(value, str) or not value.isprintable():
        raise TypeError
    return value


def _dataclass(cls: type[T], values: dict[str, Any]) -> T:
    types: dict[str, Any] = {"int": {int}, "float": {int, float}, "bool": {bool}, "str": {str}}
    for field in fields(cls):  # type: ignore[arg-type]
        if field.name in values and type(values[field.name]) not in types[str(field.type)]:
            raise ValueError(field.name)
    return cls(**values)


def _file_digests(values: dict[str, str]) -> dict[str, str]:
    files = dict(values)
    if not all(name.isprintable() and name not in {"", ".."} and Path(name).name == name for name in files):
        raise ValueError("files must lie in the bundle")
    return files


def _check_file(path: Path, digest: str) -> None:
    if path.is_fifo():  # which would be waited for
        raise BundleError(f"{path}: a pipe, not a file")
    try:
        found = file_digest(path)
    except FileNotFoundError:
        raise BundleError(f"{path}: missing; copy the model again") from None
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {reason(error)}") from None
    if found != digest:
        raise BundleError(f"{path}: altered or damaged (SHA-256 differs from the manifest); copy the model again")


def check_destination(path: Path, others_stay: bool = False) -> None:
    """Nothing but an older bundle, or an empty folder, is replaced by a bundle; not one in which we are.

    Args:
        others_stay: the bundle may have files beside its own.

    Raises:
        InputError: something else stands there.
    """
    if path.resolve() in {Path.cwd(), *Path.cwd().parents}:
        raise InputError(f"{path}: the working directory is there and cannot be replaced; leave it first")
    if not path.exists() or (path.is_dir() and not any(path.iterdir())):
        return
    try:
        others = _other_entries(path)
    except (BundleError, KeyError, TypeError, ValueError):
        raise InputError(f"{path}: stands there and is no model directory; choose another, or remove it") from None
    if others and not others_stay:
        raise InputError(f"{path}: would be replaced, and {others[0].name} in it is no part of the model; move it away")


def _other_entries(path: Path) -> list[Path]:
    """What lies in a bundle's folder beside the files that its manifest names."""
    manifest = _read_manifest(path)
    if not isinstance(manifest["format_version"], int):
        raise TypeError
    own = {MANIFEST, *_file_digests(manifest["files"])}
    return sorted(entry for entry in path.iterdir() if entry.name not in own)


def write_bundle(
    path: Path,
    *,
    languages: tuple[str, str],
    architecture: Architecture,
    decoding: DecodingDefaults,
    write_files: Callable[[Path], None],
    training: Mapping[str, Any],
    scores: Mapping[str, Any],
    others_stay: bool = False,
) -> None:
    """Write a bundle atomically; `write_files` puts all files but the manifest into the folder it is given.

    Args:
        others_stay: what lies beside an older bundle's files, such as a model card, is kept, but for what has the name
            of a file that is written.

    Raises:
        InputError: see `check_destination`.
    """
    check_destination(path, others_stay)
    path.resolve().parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path.resolve()) as folder:
        folder.mkdir(parents=True)
        write_files(folder)
        files = {file.name: file_digest(file) for file in sorted(folder.iterdir())}
        manifest: dict[str, Any] = {
            "format_version": _format_version(architecture, decoding, files),
            "source_language": languages[0],
            "target_language": languages[1],
            "architecture": architecture.to_json(),
            "decoding": decoding.to_json(),
            "files": files,
            "training": dict(training),
            "scores": dict(scores),
        }
        write_json(folder / MANIFEST, {**manifest, "manifest_sha256": _manifest_digest(manifest)})
        for other in _other_entries(path) if others_stay and path.exists() else ():
            if other.name in files:
                continue
            if other.is_dir() and not other.is_symlink():
                shutil.copytree(other, folder / other.name, symlinks=True)
            else:
                shutil.copy2(other, folder / other.name, follow_symlinks=False)


def _format_version(architecture: Architecture, decoding: DecodingDefaults, files: Mapping[str, str]) -> int:
    """The oldest format that says it all: older programs read what they can, and refuse the rest by its number."""
    sizes = {field.name for field in fields(Architecture) if field.default is MISSING}
    plain = architecture.to_json().keys() == sizes and architecture.drafter_layers > 0 and decoding.strict
    return 1 if plain and TOKENIZER in files else FORMAT_VERSION
