"""Text vectors that somebody computed before: a table of names and vectors, in memory or in an ``.npz`` file.

Letters in shape comments: n names, E text dimensions.
"""

from collections.abc import Sequence
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from manylabel.errors import ConfigError, DataError, LabelError, list_choices

__all__ = ["StoredVectors"]


class StoredVectors:
    """Looks vectors up by the whole label; small and capital letters are the same.

    Args:
        names: The texts that have a vector.
        vectors: ``[n, E]``.
        name: How to find it again, such as ``npz:vectors.npz``.

    Raises:
        ConfigError: The numbers of names and vectors differ.

    Examples:
        >>> StoredVectors(["cat", "dog"], torch.eye(2)).encode(["Dog"]).tolist()
        [[0.0, 1.0]]
    """

    templates: tuple[str, ...] = ("{label}",)

    def __init__(self, names: Sequence[str], vectors: Tensor, *, name: str = "vectors") -> None:
        if vectors.ndim != 2 or len(names) != len(vectors):
            raise ConfigError(f"give a vector per name: {len(names)} names, but vectors of shape {list(vectors.shape)}")
        self.name = name
        self.vectors = vectors.float()
        self.rows = {text.strip().lower(): row for row, text in enumerate(names)}

    @classmethod
    def read(cls, path: str | Path) -> "StoredVectors":
        """Read an ``.npz`` file with the arrays ``labels`` (texts) and ``vectors``.

        Raises:
            DataError: There is no such file, or it holds something else.
        """
        if not Path(path).is_file():
            raise DataError(f"there is no file of vectors {path}")
        try:
            with np.load(path, allow_pickle=False) as arrays:
                labels, vectors = arrays["labels"], arrays["vectors"]
        except (KeyError, ValueError, OSError, BadZipFile) as error:
            raise DataError(
                f"{path} must be an .npz file with the arrays labels (texts) and vectors ({error}); "
                "write it with numpy.savez(path, labels=[...], vectors=...)"
            ) from error
        return cls([str(label) for label in labels], torch.from_numpy(vectors), name=f"npz:{path}")

    def reads(self, text: str) -> bool:
        """Say whether there is a vector of this very text."""
        return text.strip().lower() in self.rows

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Return ``[n, E]``.

        Raises:
            LabelError: A text has no vector; the message names all.
        """
        missing = list(dict.fromkeys(text for text in texts if text.strip().lower() not in self.rows))
        if missing:
            raise LabelError(
                f"{self.name} has no vector for {', '.join(map(repr, missing[:5]))}"
                f"{f' and {len(missing) - 5} more' if len(missing) > 5 else ''}; {list_choices(missing[0], self.rows)}"
            )
        return self.vectors[[self.rows[text.strip().lower()] for text in texts]]
