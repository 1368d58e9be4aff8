"""From what the model says to what the server answers."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from io import BytesIO
from typing import TYPE_CHECKING

from manylabel.predictions import InferenceSpec
from manylabel.server.answers import ExplanationAnswer, LabelAnswer, TagAnswer
from manylabel.types import LabelSpace, Tag

if TYPE_CHECKING:  # it needs torch, which tags do without
    from manylabel.explain import Explanation

__all__ = ["OVERLAY", "explanation_answer", "label_answers", "tag_answers"]

OVERLAY = 640  # pixels of the longer side of a picture with heat
_QUALITY = 85


def tag_answers(tags: Sequence[Tag], labels: LabelSpace) -> list[TagAnswer]:
    """Return tags with the names that people read.

    Examples:
        >>> tag_answers([Tag("cat", 0.9)], LabelSpace(["cat"]))
        [TagAnswer(label='cat', display_name='cat', score=0.9)]
    """
    return [TagAnswer(label=tag.label, display_name=labels.display(tag.label), score=tag.score) for tag in tags]


def label_answers(spec: InferenceSpec) -> list[LabelAnswer]:
    """Return a model's labels with their thresholds, if thresholds choose its tags, in its order.

    Examples:
        >>> from manylabel.types import InputSpec
        >>> label_answers(InferenceSpec(LabelSpace(["cat"]), InputSpec()))
        [LabelAnswer(label='cat', display_name='cat', threshold=0.5)]
    """
    limits = spec.thresholds or [None if spec.single_label else 0.5] * len(spec.labels)
    return [
        LabelAnswer(label=name, display_name=spec.labels.display(name), threshold=limit)
        for name, limit in zip(spec.labels, limits, strict=True)
    ]


def explanation_answer(explanation: Explanation, labels: LabelSpace) -> ExplanationAnswer:
    """Return an explanation with the picture under its heat.

    Args:
        explanation: What the model was looking at.
        labels: The model's own labels; a new one is shown as it was asked for.
    """
    stream = BytesIO()
    explanation.overlay(longest=OVERLAY).save(stream, "JPEG", quality=_QUALITY)
    x, y = explanation.hottest()
    rows: list[list[float]] = explanation.heat.tolist()
    return ExplanationAnswer(
        label=explanation.label,
        display_name=labels.display(explanation.label),
        score=explanation.score,
        method=explanation.method,
        x=x,
        y=y,
        heat=[[round(value, 4) for value in row] for row in rows],
        overlay="data:image/jpeg;base64," + b64encode(stream.getvalue()).decode(),
    )
