"""The exceptions that manylabel raises for mistakes a user can mend.

    ManyLabelError
    ├── ConfigError           a setting is wrong                           (ValueError)
    ├── LabelError            a label is unknown, doubled or empty         (ValueError)
    ├── DataError             a data set cannot be read as it is           (ValueError)
    │   ├── SpecError         a data spec such as ``voc:PATH,split=train`` is wrong
    │   ├── ImageError      one picture cannot be decoded
    │   └── BadImagesError  too many pictures cannot be decoded
    ├── StorageError          a file cannot be written                     (OSError)
    │   ├── DiskFullError     the disk is full
    │   ├── BusyError         another process writes there
    │   └── CacheError        cached features cannot be written or read
    ├── ModelFormatError      a saved model cannot be understood           (ValueError)
    ├── OutputExistsError     a file or folder would be overwritten        (FileExistsError)
    ├── MissingExtraError     an optional dependency is not installed      (ImportError)
    ├── ClusterError          Ray cannot be had, or work on it failed      (RuntimeError)
    └── TrainingError         a run cannot go on                           (RuntimeError)
        └── RunInterruptedError  a signal ended a run, which was saved first

Every message says what was wrong, what was given and what to do.
"""

from collections.abc import Iterable
from difflib import get_close_matches

__all__ = [
    "BadImagesError",
    "BusyError",
    "CacheError",
    "ClusterError",
    "ConfigError",
    "DataError",
    "DiskFullError",
    "ImageError",
    "LabelError",
    "ManyLabelError",
    "MissingExtraError",
    "ModelFormatError",
    "OutputExistsError",
    "RunInterruptedError",
    "SpecError",
    "StorageError",
    "TrainingError",
    "list_choices",
]


class ManyLabelError(Exception):
    """Any mistake that a user of manylabel can mend; catch this to catch them all."""


class ConfigError(ManyLabelError, ValueError):
    """A setting is wrong."""


class LabelError(ManyLabelError, ValueError):
    """A label is unknown, doubled or empty."""


class DataError(ManyLabelError, ValueError):
    """A data set cannot be read as it is."""


class SpecError(DataError):
    """A data spec such as ``voc:PATH,split=train`` is wrong."""


class ImageError(DataError):
    """One picture cannot be decoded.

    Args:
        name: The picture, as its data set names it.
        reason: Why, in words.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot read picture {self.name!r}: {self.reason}"


class BadImagesError(DataError):
    """Too many pictures cannot be decoded."""


class StorageError(ManyLabelError, OSError):
    """A file cannot be written."""


class DiskFullError(StorageError):
    """The disk is full; all that is written from now on would fail."""


class BusyError(StorageError):
    """Another process writes there."""


class CacheError(StorageError):
    """Cached features cannot be written or read."""


class ModelFormatError(ManyLabelError, ValueError):
    """A saved model cannot be understood."""


class OutputExistsError(ManyLabelError, FileExistsError):
    """A file or folder would be overwritten."""


class MissingExtraError(ManyLabelError, ImportError):
    """An optional dependency is not installed."""


class ClusterError(ManyLabelError, RuntimeError):
    """Ray cannot be had, or work on it failed."""


class TrainingError(ManyLabelError, RuntimeError):
    """A run cannot go on."""


class RunInterruptedError(TrainingError):
    """A signal ended a run, which was saved first.

    Args:
        message: What happened, and how to go on.
        exit_code: What the process should end with: 128 and the number of the signal.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message, exit_code)
        self.message = message
        self.exit_code = exit_code

    def __str__(self) -> str:
        return self.message


def list_choices(given: str, choices: Iterable[str], *, at_most: int = 12) -> str:
    """Say what could have been meant: the nearest names first, then what there is.

    Args:
        given: What the user wrote.
        choices: What is there.
        at_most: How many choices to spell out.

    Returns:
        Half a sentence for the end of an error message.

    Examples:
        >>> list_choices("trian", ["train", "val"])
        "did you mean 'train'? There is: train, val"
        >>> list_choices("x", [])
        'there is nothing to choose from'
    """
    names = sorted(map(str, choices))
    if not names:
        return "there is nothing to choose from"
    # difflib compares every pair of letters: minutes for a million names, or for a name of a million letters
    near = get_close_matches(given[:100], names, n=3, cutoff=0.6) if len(names) <= 20_000 else []
    more = f" and {len(names) - at_most} more" if len(names) > at_most else ""
    there_is = f"here is: {', '.join(names[:at_most])}{more}"
    if near:
        return f"did you mean {' or '.join(map(repr, near))}? T{there_is}"
    return f"t{there_is}"
