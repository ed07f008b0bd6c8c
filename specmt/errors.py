"""What a user can do wrong. Each error is one line: what was found, where, and how to mend it.

SpecmtError                 exit code 1
  InputError                text that cannot be read, or does not fit together
  ConfigError               a training configuration
  BundleError               a model directory: missing, altered, of another version
  TrainingError             a training stage that cannot run or did not finish
  EngineError               an engine, device or optional package that is not there
  ReaderGoneError           exit code 141, as of SIGPIPE, and no line: nobody reads the output any more
UsageError                  exit code 2: options that contradict one another
"""

from __future__ import annotations


def reason(error: OSError) -> str:
    """What the system says of an error, as a part of a line."""
    return (error.strerror or str(error)).lower()


class SpecmtError(Exception):
    """Root of everything that is the user's to mend; shown as one line, without a traceback."""

    exit_code = 1


class InputError(SpecmtError):
    """Text that cannot be read, or files that do not fit together."""


class ConfigError(SpecmtError):
    """A configuration with an unknown key, a wrong type or a value out of range."""


class BundleError(SpecmtError):
    """A model directory that is missing, altered, or of a version this program does not know."""


class TrainingError(SpecmtError):
    """A training stage that cannot run or did not finish."""


class EngineError(SpecmtError):
    """An engine, a device or an optional package that is not available."""


class ReaderGoneError(SpecmtError):
    """What reads the output has ended, as `head` does: there is nobody to tell."""

    exit_code = 141


class UsageError(SpecmtError):
    """Options that contradict one another."""

    exit_code = 2
