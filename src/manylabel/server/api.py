"""Endpoints of the server: what they take, and the way of a request through decoding, batches and the model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import Annotated, Any, NamedTuple, Self

import numpy as np
from fastapi import APIRouter, Depends, Form, Query, UploadFile
from fastapi.responses import PlainTextResponse
from fastapi.security import HTTPBearer
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator
from starlette.requests import Request

from manylabel.errors import ImageError, LabelError
from manylabel.images import Pixels, image_size, prepare
from manylabel.predictions import InferenceSpec, TagChoice
from manylabel.server.answers import (
    ExplainAnswer,
    ExplanationAnswer,
    ImageAnswer,
    LabelAnswer,
    LabelsAnswer,
    LimitsAnswer,
    PredictAnswer,
    ProblemError,
    StatusAnswer,
    TagAnswer,
    join_mistakes,
)
from manylabel.server.batcher import Batcher
from manylabel.server.limits import MOST_EXPLAINED, MOST_IMAGES, MOST_LABELS, MOST_LETTERS, ServerSettings
from manylabel.server.metrics import ServerMetrics
from manylabel.server.model import ServedModel
from manylabel.system import default_workers

__all__ = ["Api"]

_MOST_NAME = 255  # letters of a file's name
_bearer = HTTPBearer(auto_error=False, description="The API key, where the server has one; `Limits` checks it.")

Label = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MOST_LETTERS)]


class PredictOptions(BaseModel):
    """Which tags are wanted."""

    model_config = ConfigDict(extra="forbid")

    top: int | None = Field(default=None, ge=1, le=100_000, description="Number of tags, most confident first.")
    threshold: float | None = Field(
        default=None, ge=0, le=1, description="Lowest score of a tag (default: the model's own thresholds)."
    )
    labels: list[Label] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_LABELS,
        description="Only these labels; new ones where /v1/labels states that the model takes them.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.top is not None and self.threshold is not None:
            raise ValueError("give top or threshold, not both")
        return self


class ExplainOptions(BaseModel):
    """Which labels are to be explained."""

    model_config = ConfigDict(extra="forbid")

    labels: list[Label] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_EXPLAINED,
        description="Labels to explain (default: those that the model finds).",
    )


class ImagesForm(BaseModel):
    """Form with images."""

    model_config = ConfigDict(extra="forbid")

    images: list[UploadFile] = Field(default=[], min_length=1, max_length=MOST_IMAGES, description="Image files.")


class ImageForm(ImagesForm):
    """Form with one image."""

    images: list[UploadFile] = Field(default=[], min_length=1, max_length=1, description="One image file.")


class SentImage(NamedTuple):
    """An image as it came."""

    name: str
    content: bytes


class Api:
    """Endpoints, and what answers them.

    Images are decoded in threads. Those for the model's own labels meet in batches; explanations and new labels, which
    need torch, go one by one through a thread of their own. Requests take turns everywhere.

    Args:
        model: The model.
        settings: The limits.
    """

    def __init__(self, model: ServedModel, settings: ServerSettings) -> None:
        self.model = model
        self.settings = settings
        self.waiting = 0  # images that are accepted and not answered yet
        self.metrics = ServerMetrics(waiting=lambda: self.waiting)
        self.decoding = Batcher[partial[Any], Any](_call_each, batch_size=1, workers=default_workers())
        self.scoring = Batcher[Pixels, NDArray[np.float32]](
            lambda pixels: list(model.engine.scores(np.stack(pixels))),
            batch_size=settings.batch_size,
            workers=settings.workers,
            on_batch=self.metrics.batches.observe,
        )
        self.torch = Batcher[partial[Any], Any](_call_each, batch_size=1)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answer until the end of the context, and finish what was accepted."""
        for threads in (self.decoding, self.scoring, self.torch):
            threads.start()
        try:
            size = self.model.spec.input_spec.size
            await self.scoring.submit(np.zeros((*size, 3), dtype=np.uint8))  # the first answer takes longest
            yield
        finally:
            for threads in (self.decoding, self.scoring, self.torch):
                await threads.close()

    def router(self) -> APIRouter:
        """Return the endpoints."""
        router = APIRouter()
        keyed: dict[str, Any] = {"dependencies": [Depends(_bearer)]}
        raw = {"requestBody": {"content": {"image/*": {"schema": {"type": "string", "format": "binary"}}}}}
        text: dict[int | str, Any] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
        router.post("/v1/predict", openapi_extra=raw, **keyed)(self.predict)
        router.post("/v1/explain", openapi_extra=raw, **keyed)(self.explain)
        router.get("/v1/labels", **keyed)(self.labels)
        router.get("/metrics", response_model=None, responses=text, **keyed)(self.show_metrics)
        router.get("/healthz")(self.health)
        router.get("/readyz")(self.ready)
        return router

    async def predict(
        self,
        request: Request,
        form: Annotated[ImagesForm, Form(media_type="multipart/form-data")],
        options: Annotated[PredictOptions, Query()],
    ) -> PredictAnswer:
        """Tag one or more images, sent as a form; or one, sent as it is.

        Images that come together, in one request or in several, go through the model together. Of several images, one
        that cannot be read has an `error`; when none can be read, the answer is 422.
        """
        images = await _read(request, form.images)
        columns = None if options.labels is None else self.model.columns(options.labels)
        with self._accept(len(images)):
            async with self._in_time():
                await self._check_pixels(images, request)
                read = await asyncio.gather(*(self._decode(image, request) for image in images))
                pixels = [each for each in read if not isinstance(each, str)]
                if not pixels:
                    raise _unreadable(images, read)
                if columns is None and options.labels is not None:
                    scores, spec = await self._in_torch(request, self.model.ask, pixels, options.labels)
                else:
                    rows = await asyncio.gather(*(self.scoring.submit(each, request=request) for each in pixels))
                    scores, spec = np.stack(rows), self.model.spec
                    if columns is not None:
                        scores, spec = scores[:, columns], self.model.spec_of(columns)
        tags = iter(TagChoice(options.top, options.threshold).pick(scores, spec))
        answers = [
            ImageAnswer(name=image.name, tags=[], error=found)
            if isinstance(found, str)
            else ImageAnswer(name=image.name, tags=TagAnswer.list_of(next(tags), spec.labels))
            for image, found in zip(images, read, strict=True)
        ]
        return PredictAnswer(model=self.model.name, images=answers)

    async def explain(
        self,
        request: Request,
        form: Annotated[ImageForm, Form(media_type="multipart/form-data")],
        options: Annotated[ExplainOptions, Query()],
    ) -> ExplainAnswer:
        """Show where the model looks for labels in an image."""
        if self.model.folder is None:
            message = "an exported file cannot be explained; serve the model's folder instead"
            raise ProblemError(422, "not_offered", message)
        (image,) = images = await _read(request, form.images)
        if options.labels is not None:
            self.model.columns(options.labels)
        with self._accept(1):
            async with self._in_time():
                await self._check_pixels(images, request)
                found = await self._in_torch(request, self._explain, image, options.labels)
        return ExplainAnswer(model=self.model.name, name=image.name, explanations=found)

    async def labels(self) -> LabelsAnswer:
        """List the labels of the model with their thresholds, what else it can do, and how much may be sent."""
        return LabelsAnswer(
            model=self.model.name,
            labels=LabelAnswer.list_of(self.model.spec),
            single_label=self.model.spec.single_label,
            new_labels=self.model.takes_new_labels,
            explains=self.model.folder is not None,
            limits=LimitsAnswer(
                body_bytes=self.settings.max_body_bytes,
                images=min(MOST_IMAGES, self.settings.max_waiting),
                pixels=self.settings.max_pixels,
                labels=MOST_LABELS,
                explained_labels=MOST_EXPLAINED,
                label_letters=MOST_LETTERS,
                seconds=self.settings.seconds,
            ),
        )

    async def health(self) -> StatusAnswer:
        """Tell that the process answers."""
        return StatusAnswer(status="ok")

    async def ready(self) -> StatusAnswer:
        """Tell whether images are answered: 503 while the server starts or stops."""
        if not self.scoring.is_running:
            message = "the server starts or stops; try again"
            raise ProblemError(503, "not_ready", message, headers={"Retry-After": "1"})
        return StatusAnswer(status="ready")

    async def show_metrics(self) -> PlainTextResponse:
        """Return the metrics of this server for Prometheus."""
        return PlainTextResponse(self.metrics.text(), media_type="text/plain; version=0.0.4")

    @contextmanager
    def _accept(self, count: int) -> Iterator[None]:
        """Count images that wait, and refuse what is too much."""
        most = self.settings.max_waiting
        if count > most:
            raise ProblemError(413, "too_many", f"this server takes {most} images at once, got {count}")
        if self.waiting + count > most:
            raise _busy(f"{self.waiting} of {most} places are taken and this request needs {count}")
        self.waiting += count
        try:
            yield
        finally:
            self.waiting -= count

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self.settings.seconds):
                yield
        except TimeoutError:
            raise _busy(f"no answer within {self.settings.seconds:g} s; send fewer or smaller images") from None

    async def _check_pixels(self, images: list[SentImage], request: Request) -> None:
        """Refuse too many pixels, by the headers of the files."""
        pixels: int = await self.decoding.submit(partial(_count_pixels, images), request=request)
        if pixels > self.settings.max_pixels:
            message = f"a request may have {self.settings.max_pixels:,} pixels, this one has {pixels:,}"
            raise ProblemError(413, "too_many_pixels", f"{message}; send fewer or smaller images")

    async def _decode(self, image: SentImage, request: Request) -> Pixels | str:
        """Return the pixels ``[H, W, 3]`` of an image, or why it cannot be read."""
        call = partial(_prepare, image, self.model.spec)
        pixels: Pixels | str = await self.decoding.submit(call, request=request)
        self.metrics.images.labels("unreadable" if isinstance(pixels, str) else "read").inc()
        return pixels

    async def _in_torch(self, request: Request, function: Any, *arguments: Any) -> Any:  # noqa: ANN401 - as the function
        """Call a function in the thread of torch."""
        found = await self.torch.submit(partial(_attempt, function, *arguments), request=request)
        if isinstance(found, _Refusal):
            raise ProblemError(422, found.code, found.message)
        return found

    def _explain(self, image: SentImage, labels: list[str] | None) -> list[ExplanationAnswer]:
        found = self.model.explain(image.content, labels, name=image.name)
        return [ExplanationAnswer.of(each, self.model.spec.labels) for each in found]


class _Refusal(NamedTuple):
    """A mistake of the caller that showed in a thread.

    Only words come back: an exception's traceback would keep the thread's frames alive, and the image with them.
    """

    code: str
    message: str


def _attempt(function: Any, *arguments: Any) -> Any:  # noqa: ANN401 - as the function
    try:
        return function(*arguments)
    except LabelError as error:
        return _Refusal("unknown_label", str(error))
    except ImageError as error:
        return _Refusal("unreadable_image", str(error))


def _call_each(calls: list[partial[Any]]) -> list[Any]:
    return [call() for call in calls]


def _count_pixels(images: list[SentImage]) -> int:
    """Return the pixels of all images whose headers can be read."""
    count = 0
    for image in images:
        try:
            height, width = image_size(image.content)
        except ImageError:
            continue
        count += height * width
    return count


def _prepare(image: SentImage, spec: InferenceSpec) -> Pixels | str:
    try:
        return prepare(image.content, spec.input_spec, name=image.name)
    except ImageError as error:
        return error.reason


async def _read(request: Request, files: list[UploadFile]) -> list[SentImage]:
    """Return the images of a form, or the image that is the body."""
    if files:
        return [SentImage(_clean(file.filename or "image"), await file.read()) for file in files]
    if request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise ProblemError(422, "bad_request", "the form needs files in the field 'images', as in: -F images=@a.jpg")
    return [SentImage("image", await request.body())]


def _clean(name: str) -> str:
    """Shorten a name, and replace halves of characters, which some encodings of forms can hold and JSON cannot."""
    return name.encode("utf-8", "replace").decode()[:_MOST_NAME]


def _unreadable(images: list[SentImage], reasons: list[Any]) -> ProblemError:
    named = [str(ImageError(image.name, reason)) for image, reason in zip(images, reasons, strict=True)]
    return ProblemError(422, "unreadable_image", join_mistakes(named))


def _busy(message: str) -> ProblemError:
    return ProblemError(429, "busy", f"{message}; try again later", headers={"Retry-After": "2"})
