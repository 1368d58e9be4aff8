"""Schemas of the JSON responses, built from predictions and explanations."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from manylabel.images import data_url
from manylabel.predictions import InferenceSpec
from manylabel.types import LabelSpace, Tag

if TYPE_CHECKING:  # needs torch, which predictions do not
    from manylabel.explain import Explanation

OVERLAY = 640  # pixels of the longer side of an image under its heat map

Fraction = Annotated[float, Field(ge=0, le=1)]
THRESHOLD = "Lowest score that counts as present; null for single-label models."


class ScoreResponse(BaseModel):
    """A label and its score."""

    label: str = Field(examples=["cat"])
    display_name: str = Field(description="Name to show to people.", examples=["cat"])
    score: Fraction = Field(description="Probability.", examples=[0.98])


class TagResponse(ScoreResponse):
    """A label, its score and its threshold."""

    threshold: Fraction | None = Field(description=THRESHOLD, examples=[0.5])

    @classmethod
    def list_of(cls, tags: Sequence[Tag], spec: InferenceSpec) -> "list[TagResponse]":
        """Return tags with their display names and thresholds.

        Examples:
            >>> from manylabel.types import InputSpec
            >>> TagResponse.list_of([Tag("cat", 0.9)], InferenceSpec(LabelSpace(["cat"]), InputSpec()))
            [TagResponse(label='cat', display_name='cat', score=0.9, threshold=0.5)]
        """
        names, limits = spec.labels, _thresholds(spec)
        return [
            cls(
                label=tag.label,
                display_name=names.display(tag.label),
                score=tag.score,
                threshold=limits[names.index(tag.label)],
            )
            for tag in tags
        ]


class ImageResponse(BaseModel):
    """Tags of one image, or the reason it could not be read."""

    name: str = Field(description="File name as sent.", examples=["photo.jpg"])
    tags: list[TagResponse] = Field(description="Tags, most confident first; empty if the image could not be read.")
    error: str | None = Field(default=None, description="Reason the image could not be read.")


class UnknownLabelResponse(BaseModel):
    """A requested label that resembles nothing the model knows."""

    label: str = Field(examples=["sunset"])
    nearest: list[str] = Field(description="Most similar names that the model knows.", examples=[["lighter"]])


class PredictResponse(BaseModel):
    """Tags of the images in a request."""

    model: str = Field(examples=["builtin:everyday"])
    images: list[ImageResponse] = Field(description="Results in the order of the request.")
    unknown_labels: list[UnknownLabelResponse] = Field(
        default=[], description="Requested labels that the model does not know; their threshold is 1."
    )


class ExplanationResponse(ScoreResponse):
    """Heat map of one label."""

    method: str = Field(description="Explanation method.", examples=["attention"])
    x: Fraction = Field(description="Hottest position, as a fraction of the image's width.")
    y: Fraction = Field(description="Hottest position, as a fraction of the image's height.")
    heat: list[list[float]] = Field(description="Rows of the heat map, in 0..1.", examples=[[[0.0, 0.4], [0.2, 1.0]]])
    overlay: str = Field(
        description="Heat map over the image, a JPEG as a data URL.", examples=["data:image/jpeg;base64,/9j/"]
    )

    @classmethod
    def of(cls, explanation: "Explanation", labels: LabelSpace) -> "ExplanationResponse":
        """Return an explanation with its overlay; a new label keeps the spelling of the request."""
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
            overlay=data_url(explanation.overlay(longest=OVERLAY)),
        )


class ExplainResponse(BaseModel):
    """Heat maps of some labels for one image."""

    model: str = Field(examples=["builtin:everyday"])
    name: str = Field(description="File name as sent.", examples=["photo.jpg"])
    explanations: list[ExplanationResponse]


class LabelResponse(BaseModel):
    """A label of the model."""

    label: str = Field(examples=["cat"])
    display_name: str = Field(examples=["cat"])
    threshold: Fraction | None = Field(description=THRESHOLD)

    @classmethod
    def list_of(cls, spec: InferenceSpec) -> "list[LabelResponse]":
        """Return a model's labels with their thresholds; no thresholds for single-label models.

        Examples:
            >>> from manylabel.types import InputSpec
            >>> LabelResponse.list_of(InferenceSpec(LabelSpace(["cat"]), InputSpec()))
            [LabelResponse(label='cat', display_name='cat', threshold=0.5)]
        """
        return [
            cls(label=name, display_name=spec.labels.display(name), threshold=limit)
            for name, limit in zip(spec.labels, _thresholds(spec), strict=True)
        ]


def _thresholds(spec: InferenceSpec) -> Sequence[float | None]:
    """Return the threshold of each label; None for single-label models."""
    return spec.thresholds or [None if spec.single_label else 0.5] * len(spec.labels)


class LimitsResponse(BaseModel):
    """Limits of a request."""

    body_bytes: int = Field(description="Maximum bytes per request.")
    images: int = Field(description="Maximum images per request.")
    pixels: int = Field(description="Maximum pixels per request, over all images.")
    labels: int = Field(description="Maximum labels per /v1/predict request.")
    explained_labels: int = Field(description="Maximum labels per /v1/explain request.")
    label_length: int = Field(description="Maximum length of a label, in characters.")
    seconds: float = Field(description="Time limit for a response, in seconds.")


class LabelsResponse(BaseModel):
    """Labels, capabilities and limits."""

    model: str = Field(examples=["builtin:everyday"])
    labels: list[LabelResponse]
    single_label: bool = Field(description="The model predicts exactly one label per image, the most confident.")
    new_labels: bool = Field(description="The model accepts labels it was not trained on.")
    explains: bool = Field(description="The model supports /v1/explain.")
    limits: LimitsResponse


class StatusResponse(BaseModel):
    """State of the server."""

    status: str = Field(examples=["ok"])


class Problem(BaseModel):
    """Error response."""

    code: str = Field(description="Machine-readable error code.", examples=["unreadable_image"])
    message: str = Field(
        description="What was wrong and what to do, in plain English.",
        examples=["cannot read image 'photo.jpg': it is empty (0 bytes)"],
    )


class ProblemError(HTTPException):
    """Error that becomes a `Problem` response.

    Args:
        status: HTTP status.
        code: Machine-readable code, such as ``"too_large"``.
        message: What was wrong and what to do.
        headers: Additional response headers.
    """

    def __init__(self, status: int, code: str, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, message, headers)
        self.code = code


def join_mistakes(mistakes: Sequence[str], *, most: int = 5) -> str:
    """Join the first few mistakes, and count the rest.

    Examples:
        >>> join_mistakes(["a is wrong", "b is wrong", "c is wrong"], most=1)
        'a is wrong; and 2 more'
    """
    more = [f"and {len(mistakes) - most} more"] if len(mistakes) > most else []
    return "; ".join([*mistakes[:most], *more])


def problem_response(error: ProblemError) -> JSONResponse:
    """Return the response for an error.

    Examples:
        >>> problem_response(ProblemError(413, "too_large", "send less")).body
        b'{"code":"too_large","message":"send less"}'
    """
    message = error.detail.encode("utf-8", "replace").decode()  # form encodings can carry lone surrogates
    problem = Problem(code=error.code, message=message)
    return JSONResponse(problem.model_dump(), status_code=error.status_code, headers=error.headers)
