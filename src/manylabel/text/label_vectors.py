"""Text vectors of labels: sentences with each label, encoded and averaged.

Letters in shape comments: L labels, n texts, E text dimensions.
"""

import math
from collections.abc import Sequence

import msgspec
import torch
import torch.nn.functional as F
from torch import Tensor

from manylabel.errors import ConfigError
from manylabel.text.encoders import TextEncoder, open_encoder
from manylabel.types import LabelSpace

__all__ = ["TextVocabulary", "check_templates", "encode_labels", "text_centre"]


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
                    f"the model's labels have text vectors of {table.shape[1]} numbers, but the encoder gives "
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
        >>> from manylabel.text import StoredVectors
        >>> encoder = StoredVectors(["cat", "dog"], torch.eye(2, 4))
        >>> encode_labels(encoder, LabelSpace(["dog", "cat"])).tolist()
        [[0.0, 2.0, 0.0, 0.0], [2.0, 0.0, 0.0, 0.0]]
    """
    averages = _average(encoder, labels, templates)
    if centre:
        if len(centre) != averages.shape[1]:
            raise ConfigError(
                f"the centre has {len(centre)} numbers, but the encoder gives {averages.shape[1]}; "
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
        >>> from manylabel.text import StoredVectors
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
