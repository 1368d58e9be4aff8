"""What callers ask: the JSON of requests, its limits, and the same as a form."""

from __future__ import annotations

import base64
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from manylabel.predictions import TagChoice

__all__ = [
    "MOST_EXPLAINED",
    "MOST_LABELS",
    "MOST_LETTERS",
    "MOST_PICTURES",
    "EncodedImage",
    "ExplainOptions",
    "ExplainQuestion",
    "PredictOptions",
    "PredictQuestion",
]

MOST_PICTURES = 64
MOST_LABELS = 100
MOST_EXPLAINED = 10
MOST_LETTERS = 100  # of a label
_MOST_NAME = 255
_DOT = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"  # a red pixel

Label = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MOST_LETTERS)]


class EncodedImage(BaseModel):
    """A picture inside JSON.

    Examples:
        >>> EncodedImage(data="data:image/png;base64,aGk=").content()
        b'hi'
    """

    model_config = ConfigDict(extra="forbid")

    name: str = Field(default="picture", max_length=_MOST_NAME, description="What the answer calls it.")
    data: str = Field(
        min_length=1,
        description="The file in base64; a data URL will do.",
        examples=[_DOT],
        json_schema_extra={"format": "byte"},
    )

    def content(self) -> bytes:
        """Return the file.

        Raises:
            ValueError: It is not base64.
        """
        text = self.data.partition(",")[2] if self.data.startswith("data:") else self.data
        try:
            return base64.b64decode(text, validate=True)
        except ValueError as error:  # binascii.Error is one
            raise ValueError(f"the data of {self.name!r} is not base64 ({error})") from error


class PredictOptions(BaseModel):
    """Which tags are wanted.

    Examples:
        >>> PredictOptions(top=3).choice()
        TagChoice(top=3, threshold=None)
    """

    model_config = ConfigDict(extra="forbid")

    top: int | None = Field(default=None, ge=1, le=100_000, description="So many tags, the surest.", examples=[5])
    threshold: float | None = Field(
        default=None,
        ge=0,
        le=1,
        description="Tags that reach it; the model's own thresholds decide when neither is given.",
    )
    labels: list[Label] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_LABELS,
        description="Only these labels; new ones where /v1/labels says that the model takes them.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.top is not None and self.threshold is not None:
            raise ValueError("give top or threshold, not both")
        return self

    def choice(self) -> TagChoice:
        """Return which scores become tags."""
        return TagChoice(self.top, self.threshold)


class PredictQuestion(PredictOptions):
    """Pictures to tag."""

    pictures: list[EncodedImage] = Field(min_length=1, max_length=MOST_PICTURES)

    def sent(self) -> list[EncodedImage]:
        """Return the pictures."""
        return self.pictures


class ExplainOptions(BaseModel):
    """Which labels are to be explained."""

    model_config = ConfigDict(extra="forbid")

    labels: list[Label] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_EXPLAINED,
        description="These labels; those that the model finds when left out.",
    )


class ExplainQuestion(ExplainOptions):
    """A picture to explain."""

    picture: EncodedImage

    def sent(self) -> list[EncodedImage]:
        """Return the picture, in a list."""
        return [self.picture]
