"""The JSON that the server answers with."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

__all__ = [
    "ExplainAnswer",
    "ExplanationAnswer",
    "ImageAnswer",
    "LabelAnswer",
    "LabelsAnswer",
    "LimitsAnswer",
    "PredictAnswer",
    "Problem",
    "StatusAnswer",
    "TagAnswer",
]


class TagAnswer(BaseModel):
    """A label, and how sure the model is of it.

    Examples:
        >>> TagAnswer(label="/m/01yrx", display_name="cat", score=0.98).display_name
        'cat'
    """

    label: str = Field(description="The label's name.", examples=["cat"])
    display_name: str = Field(description="What to show a person.", examples=["cat"])
    score: float = Field(ge=0, le=1, description="A probability.", examples=[0.98])


class ImageAnswer(BaseModel):
    """The tags of one picture, or why it could not be read."""

    name: str = Field(description="The name that was sent.", examples=["photo.jpg"])
    tags: list[TagAnswer] = Field(description="The surest first; none where the picture could not be read.")
    error: str | None = Field(default=None, description="Why the picture could not be read.")


class PredictAnswer(BaseModel):
    """What is in some pictures."""

    model: str = Field(examples=["builtin:coco80"])
    pictures: list[ImageAnswer] = Field(description="In the order in which they were sent.")


class ExplanationAnswer(TagAnswer):
    """Where the model looks for a label."""

    method: str = Field(description="How it was found.", examples=["attention"])
    x: float = Field(ge=0, le=1, description="The hottest place, as a share of the picture's width.")
    y: float = Field(ge=0, le=1, description="The hottest place, as a share of the picture's height.")
    heat: list[list[float]] = Field(description="Rows of the heat map, 0 to 1.", examples=[[[0.0, 0.4], [0.2, 1.0]]])
    overlay: str = Field(
        description="The picture with the heat over it, a JPEG as data URL.", examples=["data:image/jpeg;base64,/9j/"]
    )


class ExplainAnswer(BaseModel):
    """Where the model looks for some labels in a picture."""

    model: str = Field(examples=["builtin:coco80"])
    name: str = Field(description="The picture's name that was sent.", examples=["photo.jpg"])
    explanations: list[ExplanationAnswer]


class LabelAnswer(BaseModel):
    """A label that the model knows."""

    label: str = Field(examples=["cat"])
    display_name: str = Field(examples=["cat"])
    threshold: Annotated[float, Field(ge=0, le=1)] | None = Field(
        description="The score from which on the label counts as present; none where only the surest label counts."
    )


class LimitsAnswer(BaseModel):
    """How much may be sent at once."""

    body_bytes: int = Field(description="Bytes of a request.")
    pictures: int = Field(description="Pictures of a request.")
    pixels: int = Field(description="Pixels of a picture.")
    labels: int = Field(description="Labels of a request for tags.")
    explained_labels: int = Field(description="Labels of a request for an explanation.")
    label_letters: int = Field(description="Letters of a label.")
    seconds: float = Field(description="How long an answer may take.")


class LabelsAnswer(BaseModel):
    """What the model can do."""

    model: str = Field(examples=["builtin:coco80"])
    labels: list[LabelAnswer]
    single_label: bool = Field(description="Whether the model names one label of each picture, the surest.")
    new_labels: bool = Field(description="Whether the model takes labels that it was not trained on.")
    explains: bool = Field(description="Whether /v1/explain is there for this model.")
    limits: LimitsAnswer


class StatusAnswer(BaseModel):
    """Whether the server is well."""

    status: str = Field(examples=["ok"])


class Problem(BaseModel):
    """Why there is no answer.

    Examples:
        >>> Problem(code="too_large", message="send less").model_dump()
        {'code': 'too_large', 'message': 'send less'}
    """

    model_config = ConfigDict(
        json_schema_extra={
            "example": {
                "code": "unreadable_picture",
                "message": "cannot read picture 'photo.jpg': it is empty (0 bytes)",
            }
        }
    )

    code: str = Field(description="A word for programs.")
    message: str = Field(description="What was wrong and what to do, for people.")
