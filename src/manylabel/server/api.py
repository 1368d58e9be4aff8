"""Endpoints of the server: request options, and the path from decoding through batches to the model."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Self

import numpy as np
from fastapi import APIRouter, Depends, Form, Query, UploadFile
from fastapi.responses import PlainTextResponse
from fastapi.security import HTTPBearer
from numpy.typing import NDArray
from pydantic import BaseModel, Field, StringConstraints, model_validator
from starlette.requests import Request

from manylabel.errors import ImageError, LabelError
from manylabel.images import Pixels, image_size, prepare
from manylabel.predictions import InferenceSpec, TagChoice
from manylabel.server import schemas
from manylabel.server.batcher import Batcher
from manylabel.server.limits import MAX_EXPLAINED, MAX_IMAGES, MAX_LABEL_LENGTH, MAX_LABELS, ServerSettings
from manylabel.server.metrics import ServerMetrics
from manylabel.server.model import ServedModel
from manylabel.server.schemas import ProblemError, join_mistakes
from manylabel.system import default_workers
from manylabel.types import Tag

if TYPE_CHECKING:  # torch is imported on first use
    from manylabel.classifier.typed_labels import TypedLabel

_MAX_NAME_LENGTH = 255  # characters of a file name
DOWNLOADS = 8  # images downloaded at once
bearer = HTTPBearer(auto_error=False, description="API key, if the server requires one; checked by `Limits`.")

Label = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_LABEL_LENGTH)]


class PredictOptions(BaseModel, extra="forbid"):
    """Options of /v1/predict."""

    top: int | None = Field(
        default=None, ge=1, le=100_000, description="Number of tags per image, most confident first."
    )
    threshold: float | None = Field(
        default=None, ge=0, le=1, description="Lowest score of a tag (default: the model's own thresholds)."
    )
    labels: list[Label] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_LABELS,
        description="Labels to score (default: all); new ones only if /v1/labels reports new_labels.",
    )

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.top is not None and self.threshold is not None:
            raise ValueError("pass top or threshold, not both")
        return self


class ExplainOptions(BaseModel, extra="forbid"):
    """Options of /v1/explain."""

    labels: list[Label] | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_EXPLAINED,
        description="Labels to explain (default: the predicted ones).",
    )


class ImagesForm(BaseModel, extra="forbid"):
    """Form with images."""

    images: list[UploadFile] = Field(default=[], min_length=1, max_length=MAX_IMAGES, description="Image files.")


class ImageForm(ImagesForm):
    """Form with one image."""

    images: list[UploadFile] = Field(default=[], min_length=1, max_length=1, description="One image file.")


class SentImage(NamedTuple):
    """An uploaded image, still encoded."""

    name: str
    content: bytes


class Api:
    """Request handlers.

    Images are decoded in threads and scored in batches. Explanations and new labels need torch and run one at a time in
    a separate thread. Every queue is fair: requests are served round-robin.

    Args:
        model: The model.
        settings: The limits.
    """

    def __init__(self, model: ServedModel, settings: ServerSettings) -> None:
        self.model = model
        self.settings = settings
        self.waiting = 0  # accepted images without a response yet
        self.metrics = ServerMetrics(waiting=lambda: self.waiting)
        self.decoding = Batcher[partial[Any], Any](_call_each, batch_size=1, workers=default_workers())
        self.scoring = Batcher[Pixels, NDArray[np.float32]](
            lambda pixels: list(model.engine.scores(np.stack(pixels))),
            batch_size=settings.batch_size,
            workers=settings.workers,
            on_batch=self.metrics.batches.observe,
        )
        self.torch = Batcher[partial[Any], Any](_call_each, batch_size=1)
        self.downloads = Batcher[partial[Any], Any](_call_each, batch_size=1, workers=DOWNLOADS)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve until the context exits, then finish accepted requests."""
        for threads in (self.downloads, self.decoding, self.scoring, self.torch):
            threads.start()
        try:
            size = self.model.spec.input_spec.size
            await self.scoring.submit(np.zeros((*size, 3), dtype=np.uint8))  # warm-up: the first batch is the slowest
            yield
        finally:
            for threads in (self.downloads, self.decoding, self.scoring, self.torch):
                await threads.close()

    def router(self) -> APIRouter:
        """Return the endpoints."""
        router = APIRouter()
        keyed: dict[str, Any] = {"dependencies": [Depends(bearer)]}
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
    ) -> schemas.PredictResponse:
        """Predict the tags of images sent as a multipart form, or of one image sent as the request body.

        Concurrent images are scored in batches, within and across requests. An unreadable image is returned with an
        `error`; if all are unreadable, the status is 422.
        """
        images = await _read(request, form.images)
        if options.labels is None and not len(self.model.spec.labels):
            message = "this model has no labels of its own; pass some, as in /v1/predict?labels=zebra&labels=sunset"
            raise ProblemError(422, "bad_request", message)
        choice = TagChoice(options.top, options.threshold)
        found, spec, unknown = await self.tag(images, options.labels, choice, request)
        if all(isinstance(each, str) for each in found):
            raise _unreadable(images, found)
        results = [
            schemas.ImageResponse(name=image.name, tags=[], error=each)
            if isinstance(each, str)
            else schemas.ImageResponse(name=image.name, tags=schemas.TagResponse.list_of(each, spec))
            for image, each in zip(images, found, strict=True)
        ]
        return schemas.PredictResponse(
            model=self.model.name,
            images=results,
            unknown_labels=[
                schemas.UnknownLabelResponse(label=each.label, nearest=list(each.nearest)) for each in unknown
            ],
        )

    async def tag(
        self, images: list[SentImage], labels: list[str] | None, choice: TagChoice, request: Request
    ) -> "tuple[list[tuple[Tag, ...] | str], InferenceSpec, list[TypedLabel]]":
        """Return the tags of each image, or the reason it cannot be read; the spec of the labels; those not known."""
        columns = None if labels is None else self.model.columns(labels)
        spec = self.model.spec
        unknown: list[TypedLabel] = []
        with self._accept(len(images)):
            async with self._in_time():
                await self._check_pixels(images, request)
                read = await asyncio.gather(*(self._decode(image, request) for image in images))
                pixels = [each for each in read if not isinstance(each, str)]
                if not pixels:
                    return [str(each) for each in read], spec, unknown
                if columns is None and labels is not None:
                    scores, spec, unknown = await self._in_torch(request, self.model.ask, pixels, labels)
                else:
                    rows = await asyncio.gather(*(self.scoring.submit(each, request=request) for each in pixels))
                    scores = np.stack(rows)
                    if columns is not None:
                        scores, spec = scores[:, columns], self.model.spec_of(columns)
        tags = iter(choice.pick(scores, spec))
        return [each if isinstance(each, str) else next(tags) for each in read], spec, unknown

    async def explain(
        self,
        request: Request,
        form: Annotated[ImageForm, Form(media_type="multipart/form-data")],
        options: Annotated[ExplainOptions, Query()],
    ) -> schemas.ExplainResponse:
        """Explain labels of an image with heat maps."""
        if self.model.folder is None:
            message = "explanations need torch and the folder of a trained model; serve one where torch is installed"
            raise ProblemError(422, "not_offered", message)
        (image,) = images = await _read(request, form.images)
        if options.labels is not None:
            self.model.columns(options.labels)
        with self._accept(1):
            async with self._in_time():
                await self._check_pixels(images, request)
                found = await self._in_torch(request, self._explain, image, options.labels)
        return schemas.ExplainResponse(model=self.model.name, name=image.name, explanations=found)

    async def labels(self) -> schemas.LabelsResponse:
        """List labels with their thresholds, capabilities of the model, and request limits."""
        return schemas.LabelsResponse(
            model=self.model.name,
            labels=schemas.LabelResponse.list_of(self.model.spec),
            single_label=self.model.spec.single_label,
            new_labels=self.model.takes_new_labels,
            explains=self.model.folder is not None,
            limits=schemas.LimitsResponse(
                body_bytes=self.settings.max_body_bytes,
                images=min(MAX_IMAGES, self.settings.max_waiting),
                pixels=self.settings.max_pixels,
                labels=MAX_LABELS,
                explained_labels=MAX_EXPLAINED,
                label_length=MAX_LABEL_LENGTH,
                seconds=self.settings.seconds,
            ),
        )

    async def health(self) -> schemas.StatusResponse:
        """Report that the process is alive."""
        return schemas.StatusResponse(status="ok")

    async def ready(self) -> schemas.StatusResponse:
        """Report readiness; 503 while the server starts or stops."""
        if not self.scoring.is_running:
            message = "the server is starting or stopping; try again later"
            raise ProblemError(503, "not_ready", message, headers={"Retry-After": "1"})
        return schemas.StatusResponse(status="ready")

    async def show_metrics(self) -> PlainTextResponse:
        """Return metrics in the Prometheus format."""
        return PlainTextResponse(self.metrics.text(), media_type="text/plain; version=0.0.4")

    @contextmanager
    def _accept(self, count: int) -> Iterator[None]:
        """Count waiting images, and refuse requests beyond the limit."""
        most = self.settings.max_waiting
        if count > most:
            raise ProblemError(413, "too_many", f"at most {most} images may be in the queue, got {count}; send fewer")
        if self.waiting + count > most:
            raise _busy(f"the queue holds {self.waiting} of at most {most} images and this request adds {count}")
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
            wait = f"{self.settings.seconds:g} s"
            raise _busy(f"no response within {wait}; try again, or send fewer or smaller images") from None

    async def _check_pixels(self, images: list[SentImage], request: Request) -> None:
        """Refuse too many pixels, counted from the image headers."""
        pixels: int = await self.decoding.submit(partial(_count_pixels, images), request=request)
        if pixels > self.settings.max_pixels:
            message = f"a request may have at most {self.settings.max_pixels:,} pixels, this one has {pixels:,}"
            raise ProblemError(413, "too_many_pixels", f"{message}; send fewer or smaller images")

    async def _decode(self, image: SentImage, request: Request) -> Pixels | str:
        """Return the pixels ``[H, W, 3]`` of an image, or the reason it cannot be read."""
        call = partial(_prepare, image, self.model.spec)
        pixels: Pixels | str = await self.decoding.submit(call, request=request)
        self.metrics.images.labels("unreadable" if isinstance(pixels, str) else "read").inc()
        return pixels

    async def _in_torch(self, request: Request, function: Any, *arguments: Any) -> Any:  # noqa: ANN401 - as the function
        """Call a function in the torch thread."""
        found = await self.torch.submit(partial(_attempt, function, *arguments), request=request)
        if isinstance(found, _Refusal):
            raise ProblemError(422, found.code, found.message)
        return found

    def _explain(self, image: SentImage, labels: list[str] | None) -> list[schemas.ExplanationResponse]:
        found = self.model.explain(image.content, labels, name=image.name)
        return [schemas.ExplanationResponse.of(each, self.model.spec.labels) for each in found]


class _Refusal(NamedTuple):
    """A client error raised in a thread.

    Only text is returned: an exception's traceback would keep the thread's frames, and thus the image, alive.
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
    """Count the pixels of all images with a readable header."""
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
    """Return the images of a form, or the image in the body."""
    if files:
        return [SentImage(_clean(file.filename or "image"), await file.read()) for file in files]
    if request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise ProblemError(422, "bad_request", "no files in the form field 'images'; send them as in: -F images=@a.jpg")
    return [SentImage("image", await request.body())]


def _clean(name: str) -> str:
    """Shorten a name, and replace lone surrogates, which JSON cannot hold."""
    return name.encode("utf-8", "replace").decode()[:_MAX_NAME_LENGTH]


def _unreadable(images: list[SentImage], reasons: list[Any]) -> ProblemError:
    named = [str(ImageError(image.name, reason)) for image, reason in zip(images, reasons, strict=True)]
    return ProblemError(422, "unreadable_image", join_mistakes(named))


def _busy(message: str) -> ProblemError:
    return ProblemError(429, "busy", f"{message}; try again later", headers={"Retry-After": "2"})
