"""Word vectors: GloVe and word2vec files, as text or binary. A label of several words has the mean of their vectors.

Pennington et al., "GloVe", EMNLP 2014; Mikolov et al., "Distributed Representations of Words and Phrases", 2013.

Letters in shape comments: n texts, V words, E text dimensions.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from manylabel.errors import DataError, LabelError

__all__ = ["WordVectors"]

logger = logging.getLogger(__name__)

_PARTS = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")  # "fire-hydrant" is one word at first
_SPLIT = re.compile(r"[-']")


class WordVectors:
    """Averages the vectors of a label's words; small and capital letters are the same.

    A word with a hyphen that has no vector is taken apart. Words without a vector are left out and named in a warning;
    a text of which no word has one is an error.

    Args:
        words: ``[V]``, the words.
        vectors: ``[V, E]``.
        name: How to find it again, such as ``glove:glove.6B.300d.txt``.

    Examples:
        >>> words = WordVectors(["fire", "truck"], torch.eye(2))
        >>> words.encode(["Fire truck", "truck"]).tolist()
        [[0.5, 0.5], [0.0, 1.0]]
    """

    templates: tuple[str, ...] = ("{label}",)

    def __init__(self, words: Sequence[str], vectors: Tensor, *, name: str = "words") -> None:
        self.name = name
        self.vectors = vectors.float()
        self.rows: dict[str, int] = {}
        for row, word in enumerate(words):
            self.rows.setdefault(word.lower(), row)  # files are sorted by frequency: the first is the most common

    @classmethod
    def read(cls, path: str | Path, *, name: str | None = None) -> WordVectors:
        """Read a file of GloVe (text) or word2vec (text or binary); which one it is shows in its first bytes.

        Args:
            path: The file.
            name: How to find it again; ``glove:PATH`` when left out.

        Raises:
            DataError: There is no such file, or it holds something else.
        """
        if not Path(path).is_file():
            raise DataError(f"there is no file of word vectors {path}")
        with Path(path).open("rb") as file:
            first = file.readline().split()
            counted = len(first) == 2 and all(part.isdigit() for part in first)
            start = file.tell() if counted else 0
            file.seek(start)
            binary = counted and not _is_text(file.readline())
            file.seek(start)
            try:
                rows = _binary_rows(file, *map(int, first)) if binary else _text_rows(file)
                words, vectors = zip(*rows, strict=True)
                table = torch.from_numpy(np.stack(vectors))
            except ValueError as error:
                raise DataError(
                    f"{path} is not a file of word vectors ({error}); a line is a word and its numbers, or the file is "
                    "binary word2vec"
                ) from error
        return cls(words, table, name=name or f"glove:{path}")

    def reads(self, text: str) -> bool:  # noqa: ARG002 (that of all encoders)
        """Say yes: any text will do."""
        return True

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Return ``[n, E]``.

        Raises:
            LabelError: No word of a text has a vector; the message names the texts.
        """
        found = [self._rows_of(text) for text in texts]
        lost = list(dict.fromkeys(text for text, rows in zip(texts, found, strict=True) if not rows))
        if lost:
            raise LabelError(
                f"{self.name} has no vector for any word of {', '.join(map(repr, lost[:5]))}"
                f"{f' and {len(lost) - 5} more' if len(lost) > 5 else ''}; spell them with words that it has, or use a "
                "sentence encoder (--encoder offline:minilm)"
            )
        flat = torch.tensor([row for rows in found for row in rows], dtype=torch.int64)
        lengths = torch.tensor([len(rows) for rows in found])
        owners = torch.repeat_interleave(torch.arange(len(texts)), lengths)
        sums = self.vectors.new_zeros(len(texts), self.vectors.shape[1]).index_add(0, owners, self.vectors[flat])
        return sums / lengths.unsqueeze(1)

    def _rows_of(self, text: str) -> list[int]:
        """Return the rows of a text's words, and warn of words that have none."""
        words = []
        for word in _PARTS.findall(text.lower()):
            words += [word] if word in self.rows else _SPLIT.split(word)
        unknown = [word for word in words if word not in self.rows]
        if unknown and len(unknown) < len(words):
            logger.warning("%s has no vector for %s of the label %r; left out", self.name, ", ".join(unknown), text)
        return [self.rows[word] for word in words if word in self.rows]


def _is_text(line: bytes) -> bool:
    """Tell whether a line is a word and numbers."""
    try:
        _, *numbers = line.decode().split(" ")
        return bool(numbers) and all(np.isfinite(float(number)) for number in numbers if number.strip())
    except ValueError:
        return False


def _text_rows(file: BinaryIO) -> Iterator[tuple[str, NDArray[np.float32]]]:
    width = None
    for line in file:
        word, _, numbers = line.decode("utf-8", errors="replace").rstrip().partition(" ")
        vector = np.array(numbers.split(" ")[-(width or 10**9) :], dtype=np.float32)  # GloVe 840B has words with spaces
        width = width or len(vector)
        yield word, vector


def _binary_rows(file: BinaryIO, count: int, width: int) -> Iterator[tuple[str, NDArray[np.float32]]]:
    for number in range(count):
        word = bytearray()
        while (letter := file.read(1)) not in (b" ", b""):
            word += letter
        data = file.read(4 * width)
        if len(data) != 4 * width:
            raise ValueError(f"it ends after {number} of {count} words")
        yield word.decode("utf-8", errors="replace").strip(), np.frombuffer(data, dtype="<f4").copy()
