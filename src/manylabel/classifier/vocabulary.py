"""New labels for a trained classifier: their names are encoded as text, and the head answers for them.

Letters in shape comments: L labels, E text dimensions.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

import msgspec
import torch
from torch import Tensor, nn

from manylabel.errors import ConfigError, LabelError
from manylabel.heads.traits import OpenVocabularyHead, as_open_vocabulary
from manylabel.text import TextEncoder, encode_labels, open_encoder
from manylabel.types import LabelSpace

__all__ = ["TextVocabulary", "label_bias", "merge_labels", "require_open", "vectors_of"]

logger = logging.getLogger(__name__)


class TextVocabulary(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Text encoding of a classifier's labels, so that new labels can be encoded alike.

    Args:
        encoder: Name of the text encoder, for `manylabel.text.open_encoder`.
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


def require_open(
    head: nn.Module, text: TextVocabulary | None, labels: LabelSpace
) -> tuple[OpenVocabularyHead, Tensor, TextVocabulary]:
    """Return the head as an open-vocabulary one, the vectors of its labels, and their encoding.

    Raises:
        ConfigError: It cannot score other labels; the message names the recipe to use.
    """
    found = as_open_vocabulary(head)
    vectors = None if found is None else found.text_vectors
    if found is None or vectors is None or text is None:
        why = "it was trained without text queries" if found is None else "it does not say how they were encoded"
        raise ConfigError(
            f"this model ({type(head).__name__}) knows only the {len(labels)} labels it was trained on: {why}; "
            "for any label, use the recipe zero_shot (manylabel train zero_shot --data ...)"
        )
    return found, vectors, text


def merge_labels(known: LabelSpace, wanted: LabelSpace | Sequence[str]) -> LabelSpace:
    """Return the wanted labels, each once, with the display names and descriptions that are known.

    Args:
        known: The model's labels.
        wanted: Names or display names of these, and new ones.

    Raises:
        LabelError: There is none, or a name is blank or no text.

    Examples:
        >>> merge_labels(LabelSpace(["/m/01yrx"], display_names={"/m/01yrx": "cat"}), ["tram", "cat", "tram "]).names
        ('tram', '/m/01yrx')
    """
    if isinstance(wanted, str):
        raise LabelError(f"labels must be a list of names, got the single text {wanted!r}; write [{wanted!r}]")
    names = list(wanted)
    bad = [name for name in names if not isinstance(name, str) or not name.strip()]
    if bad or not names:
        what = f"every label needs a name, got {bad[0]!r}" if bad else "there is no label"
        raise LabelError(f"{what}; give a list of names, such as ['fire truck', 'tram']")
    shown = {display: name for name, display in known.display_names.items()}
    stripped = [name.strip() for name in names]
    found = list(dict.fromkeys(name if name in known else shown.get(name, name) for name in stripped))
    if len(found) < len(names):
        logger.warning("%d of the labels occur twice; each is taken once", len(names) - len(found))
    given = wanted if isinstance(wanted, LabelSpace) else LabelSpace([])
    display, descriptions = ({**getattr(known, what), **getattr(given, what)} for what in _KEPT)
    return LabelSpace(
        found,
        display_names={name: text for name, text in display.items() if name in found},
        descriptions={name: text for name, text in descriptions.items() if name in found},
    )


_KEPT = ("display_names", "descriptions")


def vectors_of(
    labels: LabelSpace, *, known: LabelSpace, vectors: Tensor, text: TextVocabulary, encoder: TextEncoder | None = None
) -> Tensor:
    """Return a text vector per label: the model's own where it has one, else a new one.

    Args:
        labels: Wanted labels.
        known: The model's labels.
        vectors: ``[L, E]``, their vectors.
        text: Their encoding.
        encoder: Text encoder of new labels (default: the one that `text` names).

    Raises:
        ConfigError: The encoder gives vectors of another kind.
    """
    new = labels.subset([name for name in labels if name not in known])
    table = vectors.detach().cpu().float()
    if len(new):
        made = encode_labels(encoder or open_encoder(text.encoder), new, templates=text.templates, centre=text.centre)
        if made.shape[1] != table.shape[1]:
            raise ConfigError(
                f"the model's labels have text vectors of {table.shape[1]} numbers, but the encoder gives "
                f"{made.shape[1]}; use the one that the model was trained with ({text.encoder})"
            )
        table = torch.cat([table, made])
    places = {name: row for row, name in enumerate([*known, *new])}
    return table[[places[name] for name in labels]]


def label_bias(labels: LabelSpace, text: TextVocabulary | None) -> Tensor | None:
    """Return the bias of the logits, ``[L]``, or None where there is none."""
    if text is None or not text.new_label_bias:
        return None
    trained = set(text.trained)
    bias = [0.0 if name in trained else text.new_label_bias for name in labels]
    return torch.tensor(bias) if any(bias) else None
