"""Exceptions of manylabel, for errors that a user can fix.

    ManyLabelError
    ├── ConfigError           a setting is invalid                         (ValueError)
    ├── LabelError            a label is unknown, duplicate or empty       (ValueError)
    ├── DataError             a dataset cannot be read                     (ValueError)
    │   ├── SpecError         a data spec such as ``voc:PATH,split=train`` is invalid
    │   ├── ImageError        an image cannot be decoded
    │   └── BadImagesError    too many images cannot be decoded
    ├── StorageError          a file cannot be written                     (OSError)
    │   ├── DiskFullError     the disk is full
    │   ├── BusyError         another process is writing there
    │   └── CacheError        cached features cannot be written or read
    ├── ModelFormatError      a saved model cannot be read                 (ValueError)
    ├── OutputExistsError     a file or folder would be overwritten        (FileExistsError)
    ├── MissingExtraError     an optional dependency is not installed      (ImportError)
    ├── ClusterError          Ray is not available, or work on it failed   (RuntimeError)
    └── TrainingError         a run cannot continue                        (RuntimeError)
        └── RunInterruptedError  a signal stopped a run after it was saved

Every message states what was wrong, what was given and what to do.
"""

from collections.abc import Iterable
from difflib import get_close_matches


class ManyLabelError(Exception):
    """Base class of all errors that a user of manylabel can fix."""


class ConfigError(ManyLabelError, ValueError):
    """A setting is invalid."""


class LabelError(ManyLabelError, ValueError):
    """A label is unknown, duplicate or empty."""


class DataError(ManyLabelError, ValueError):
    """A dataset cannot be read."""


class SpecError(DataError):
    """A data spec such as ``voc:PATH,split=train`` is invalid."""


class ImageError(DataError):
    """An image cannot be decoded.

    Args:
        name: Name of the image in its dataset.
        reason: Readable reason.
    """

    def __init__(self, name: str, reason: str) -> None:
        super().__init__(name, reason)
        self.name = name
        self.reason = reason

    def __str__(self) -> str:
        return f"cannot read image {self.name!r}: {self.reason}"


class BadImagesError(DataError):
    """Too many images cannot be decoded."""


class StorageError(ManyLabelError, OSError):
    """A file cannot be written."""


class DiskFullError(StorageError):
    """The disk is full; further writes would fail, too."""


class BusyError(StorageError):
    """Another process is writing there."""


class CacheError(StorageError):
    """Cached features cannot be written or read."""


class ModelFormatError(ManyLabelError, ValueError):
    """A saved model cannot be read."""


class OutputExistsError(ManyLabelError, FileExistsError):
    """A file or folder would be overwritten."""


class MissingExtraError(ManyLabelError, ImportError):
    """An optional dependency is not installed."""


class ClusterError(ManyLabelError, RuntimeError):
    """Ray is not available, or work on it failed."""


class TrainingError(ManyLabelError, RuntimeError):
    """A run cannot continue."""


class RunInterruptedError(TrainingError):
    """A signal stopped a run after it was saved.

    Args:
        message: The event, and how to resume.
        exit_code: Exit code of the process: 128 plus the signal number.
    """

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message, exit_code)
        self.message = message
        self.exit_code = exit_code

    def __str__(self) -> str:
        return self.message


def list_choices(given: str, choices: Iterable[str], *, at_most: int = 12, title: str = "available") -> str:
    """Return the closest names and the choices, for the end of an error message.

    Args:
        given: Name given by the user.
        choices: Existing names.
        at_most: Largest number of choices to list.
        title: Title of the list.

    Examples:
        >>> list_choices("trian", ["train", "val"])
        "did you mean 'train'? Available: train, val"
        >>> list_choices("x", [])
        'nothing available'
    """
    names = sorted(map(str, choices))
    if not names:
        return f"nothing {title}"
    # difflib is quadratic in the length of names: minutes for a million names, or for a name of a million letters
    near = get_close_matches(given[:100], names, n=3, cutoff=0.6) if len(names) <= 20_000 else []
    more = f" and {len(names) - at_most} more" if len(names) > at_most else ""
    listed = f"{', '.join(names[:at_most])}{more}"
    if near:
        return f"did you mean {' or '.join(map(repr, near))}? {title.capitalize()}: {listed}"
    return f"{title}: {listed}"
