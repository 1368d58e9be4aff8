"""JSON that the server answers with, and how it is made from what the model returns."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from io import BytesIO
from typing import TYPE_CHECKING, Annotated

from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from manylabel.predictions import InferenceSpec
from manylabel.types import LabelSpace, Tag

if TYPE_CHECKING:  # it needs torch, which tags do without
    from manylabel.explain import Explanation

__all__ = [
    "ExplainAnswer",
    "ExplanationAnswer",
    "ImageAnswer",
    "LabelAnswer",
    "LabelsAnswer",
    "LimitsAnswer",
    "PredictAnswer",
    "Problem",
    "ProblemError",
    "StatusAnswer",
    "TagAnswer",
    "join_mistakes",
    "problem_response",
]

OVERLAY = 640  # pixels of the longer side of an image under its heat map
_QUALITY = 85

Fraction = Annotated[float, Field(ge=0, le=1)]


class TagAnswer(BaseModel):
    """A label and its score."""

    label: str = Field(examples=["cat"])
    display_name: str = Field(description="Name to show to people.", examples=["cat"])
    score: Fraction = Field(description="Probability.", examples=[0.98])

    @classmethod
    def list_of(cls, tags: Sequence[Tag], labels: LabelSpace) -> list[TagAnswer]:
        """Return tags with the names that people read.

        Examples:
            >>> TagAnswer.list_of([Tag("cat", 0.9)], LabelSpace(["cat"]))
            [TagAnswer(label='cat', display_name='cat', score=0.9)]
        """
        return [cls(label=tag.label, display_name=labels.display(tag.label), score=tag.score) for tag in tags]


class ImageAnswer(BaseModel):
    """Tags of one image, or why it could not be read."""

    name: str = Field(description="File name that was sent.", examples=["photo.jpg"])
    tags: list[TagAnswer] = Field(description="Most confident first; none where the image could not be read.")
    error: str | None = Field(default=None, description="Why the image could not be read.")


class PredictAnswer(BaseModel):
    """Tags of the images of a request."""

    model: str = Field(examples=["builtin:coco80"])
    images: list[ImageAnswer] = Field(description="In the order in which they were sent.")


class ExplanationAnswer(TagAnswer):
    """Where the model looks for a label."""

    method: str = Field(description="Method that found the heat map.", examples=["attention"])
    x: Fraction = Field(description="Hottest position, as a fraction of the image's width.")
    y: Fraction = Field(description="Hottest position, as a fraction of the image's height.")
    heat: list[list[float]] = Field(description="Rows of the heat map, 0 to 1.", examples=[[[0.0, 0.4], [0.2, 1.0]]])
    overlay: str = Field(
        description="Image under its heat map, a JPEG as data URL.", examples=["data:image/jpeg;base64,/9j/"]
    )

    @classmethod
    def of(cls, explanation: Explanation, labels: LabelSpace) -> ExplanationAnswer:
        """Return an explanation with its overlay; a new label is shown as it was asked for."""
        stream = BytesIO()
        explanation.overlay(longest=OVERLAY).save(stream, "JPEG", quality=_QUALITY)
        x, y = explanation.hottest()
        rows: list[list[float]] = explanation.heat.tolist()
        return cls(
            label=explanation.label,
            display_name=labels.display(explanation.label),
            score=explanation.score,
            method=explanation.method,
            x=x,
            y=y,
            heat=[[round(value, 4) for value in row] for row in rows],
            overlay="data:image/jpeg;base64," + b64encode(stream.getvalue()).decode(),
        )


class ExplainAnswer(BaseModel):
    """Where the model looks for some labels in an image."""

    model: str = Field(examples=["builtin:coco80"])
    name: str = Field(description="File name that was sent.", examples=["photo.jpg"])
    explanations: list[ExplanationAnswer]


class LabelAnswer(BaseModel):
    """A label that the model knows."""

    label: str = Field(examples=["cat"])
    display_name: str = Field(examples=["cat"])
    threshold: Fraction | None = Field(
        description="Score from which on the label counts as present; none where only the most confident label counts."
    )

    @classmethod
    def list_of(cls, spec: InferenceSpec) -> list[LabelAnswer]:
        """Return a model's labels with their thresholds, if thresholds choose its tags.

        Examples:
            >>> from manylabel.types import InputSpec
            >>> LabelAnswer.list_of(InferenceSpec(LabelSpace(["cat"]), InputSpec()))
            [LabelAnswer(label='cat', display_name='cat', threshold=0.5)]
        """
        limits = spec.thresholds or [None if spec.single_label else 0.5] * len(spec.labels)
        return [
            cls(label=name, display_name=spec.labels.display(name), threshold=limit)
            for name, limit in zip(spec.labels, limits, strict=True)
        ]


class LimitsAnswer(BaseModel):
    """How much may be sent at once."""

    body_bytes: int = Field(description="Bytes of a request.")
    images: int = Field(description="Images of a request.")
    pixels: int = Field(description="Pixels of all images of a request.")
    labels: int = Field(description="Labels of a request for tags.")
    explained_labels: int = Field(description="Labels of a request for heat maps.")
    label_letters: int = Field(description="Letters of a label.")
    seconds: float = Field(description="Time limit of an answer.")


class LabelsAnswer(BaseModel):
    """What the model can do."""

    model: str = Field(examples=["builtin:coco80"])
    labels: list[LabelAnswer]
    single_label: bool = Field(description="The model gives each image one label, the most confident.")
    new_labels: bool = Field(description="The model takes labels that it was not trained on.")
    explains: bool = Field(description="/v1/explain works for this model.")
    limits: LimitsAnswer


class StatusAnswer(BaseModel):
    """State of the server."""

    status: str = Field(examples=["ok"])


class Problem(BaseModel):
    """Why there is no answer."""

    code: str = Field(description="Word for programs.", examples=["unreadable_image"])
    message: str = Field(
        description="What was wrong and what to do, for people.",
        examples=["cannot read image 'photo.jpg': it is empty (0 bytes)"],
    )


class ProblemError(HTTPException):
    """A request that cannot be answered.

    Args:
        status: HTTP status.
        code: Word for programs, such as ``"too_large"``.
        message: What was wrong and what to do.
        headers: Further headers of the answer.
    """

    def __init__(self, status: int, code: str, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, message, headers)
        self.code = code


def join_mistakes(mistakes: Sequence[str], *, most: int = 5) -> str:
    """Return the first mistakes, and the number of the others.

    Examples:
        >>> join_mistakes(["a is wrong", "b is wrong", "c is wrong"], most=1)
        'a is wrong; and 2 more'
    """
    more = [f"and {len(mistakes) - most} more"] if len(mistakes) > most else []
    return "; ".join([*mistakes[:most], *more])


def problem_response(error: ProblemError) -> JSONResponse:
    """Return the answer to a request that cannot be answered.

    Examples:
        >>> problem_response(ProblemError(413, "too_large", "send less")).body
        b'{"code":"too_large","message":"send less"}'
    """
    message = error.detail.encode("utf-8", "replace").decode()  # some encodings of forms can hold halves of characters
    problem = Problem(code=error.code, message=message)
    return JSONResponse(problem.model_dump(), status_code=error.status_code, headers=error.headers)
