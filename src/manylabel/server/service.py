"""`Service`: the way of a request through decoding, batches and the model, within its limits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from manylabel.errors import ImageError
from manylabel.images import Pixels
from manylabel.predictions import InferenceSpec
from manylabel.server.answers import ExplainAnswer, ImageAnswer, PredictAnswer
from manylabel.server.batcher import Batcher
from manylabel.server.metrics import ServerMetrics
from manylabel.server.places import Places
from manylabel.server.problems import ProblemError
from manylabel.server.questions import ExplainOptions, PredictOptions
from manylabel.server.reading import Asked, SentImage
from manylabel.server.served_model import ServedModel
from manylabel.server.settings import ServerSettings
from manylabel.server.wording import explanation_answer, tag_answers
from manylabel.system import default_workers

__all__ = ["Service"]

_MOST_NAMED = 5  # pictures that an error names
_MOST_EXPLAINED_AT_ONCE = 16  # requests that wait for the one thread that explains

Result = TypeVar("Result")


class Service:
    """Answers questions about pictures.

    Pictures are decoded by threads. Those for the model's own labels meet in batches; explanations and new labels,
    which need torch, go one by one through a thread of their own.

    Args:
        model: The model.
        settings: The limits.
    """

    def __init__(self, model: ServedModel, settings: ServerSettings) -> None:
        self.model = model
        self.settings = settings
        self.places = Places(settings.max_waiting)
        self.explained = Places(_MOST_EXPLAINED_AT_ONCE)
        self.metrics = ServerMetrics(waiting=lambda: self.places.taken)
        self.batches = Batcher[Pixels, NDArray[np.float32]](
            lambda pixels: list(model.score(pixels)),
            batch_size=settings.batch_size,
            workers=settings.workers,
            on_batch=self.metrics.batches.observe,
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Work until the end of the context, and finish what was accepted."""
        self.batches.start()
        self.decoders = ThreadPoolExecutor(default_workers(), thread_name_prefix="decoder")
        self.torch = ThreadPoolExecutor(1, thread_name_prefix="torch")
        try:
            size = self.model.predictor.spec.input_spec.size
            await self.batches.submit(np.zeros((*size, 3), dtype=np.uint8))  # the first answer takes longest
            yield
        finally:
            await self.batches.close()
            for threads in (self.decoders, self.torch):
                threads.shutdown()

    @property
    def is_ready(self) -> bool:
        """Whether pictures are answered."""
        return self.batches.is_running

    async def predict(self, asked: Asked[PredictOptions]) -> PredictAnswer:
        """Tag pictures; one that cannot be read says why.

        Raises:
            ProblemError: No picture can be read, too much waits, or it took too long.
            LabelError: A label is asked for that the model cannot know.
        """
        labels = asked.options.labels
        columns = list(range(len(self.model.predictor.labels))) if labels is None else self.model.columns(labels)
        with self.places.reserve(len(asked.pictures)):
            async with self._in_time():
                read = await asyncio.gather(*map(self._decode, asked.pictures))
                pixels = [each for each in read if not isinstance(each, ImageError)]
                self._refuse_unless_any(read)
                if columns is None and labels is not None:
                    scores, spec = await self._in_torch(partial(self.model.ask, pixels, labels))
                else:
                    scores, spec = await self._score(pixels, columns or [])
        tags = iter(asked.options.choice().pick(scores, spec))
        answers = [
            ImageAnswer(name=picture.name, tags=[], error=found.reason)
            if isinstance(found, ImageError)
            else ImageAnswer(name=picture.name, tags=tag_answers(next(tags), spec.labels))
            for picture, found in zip(asked.pictures, read, strict=True)
        ]
        return PredictAnswer(model=self.model.name, pictures=answers)

    async def explain(self, asked: Asked[ExplainOptions]) -> ExplainAnswer:
        """Show where the model looks for labels.

        Raises:
            ProblemError: The model cannot be explained, too much waits, or it took too long.
            LabelError: A label is asked for that the model cannot know.
            ImageError: The picture cannot be read.
        """
        if not self.model.explains:
            words = "an exported file cannot be explained; serve the model's folder instead"
            raise ProblemError(422, "not_offered", words)
        (picture,) = asked.pictures
        labels = asked.options.labels
        if labels is not None:
            self.model.columns(labels)
        with self.explained.reserve(1):
            async with self._in_time():
                found = await self._in_torch(
                    lambda: [
                        explanation_answer(each, self.model.predictor.labels)
                        for each in self.model.explain(picture.content, labels, name=picture.name)
                    ]
                )
        return ExplainAnswer(model=self.model.name, name=picture.name, explanations=found)

    async def _decode(self, picture: SentImage) -> Pixels | ImageError:
        prepare = partial(self.model.prepare, picture.content, name=picture.name)
        try:
            pixels = await asyncio.get_running_loop().run_in_executor(self.decoders, prepare)
        except ImageError as error:
            self.metrics.pictures.labels("unreadable").inc()
            return error
        self.metrics.pictures.labels("read").inc()
        return pixels

    async def _score(self, pixels: list[Pixels], columns: list[int]) -> tuple[NDArray[np.float32], InferenceSpec]:
        rows = await asyncio.gather(*map(self.batches.submit, pixels))
        return np.stack(rows)[:, columns], self.model.spec(columns)

    async def _in_torch(self, call: Callable[[], Result]) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self.torch, call)

    @asynccontextmanager
    async def _in_time(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self.settings.seconds):
                yield
        except TimeoutError:
            words = f"no answer within {self.settings.seconds:g} s; send fewer or smaller pictures, or try again later"
            raise ProblemError(429, "busy", words, headers={"Retry-After": "10"}) from None

    def _refuse_unless_any(self, read: list[Pixels | ImageError]) -> None:
        """Raise when no picture could be read."""
        bad = [each for each in read if isinstance(each, ImageError)]
        if len(bad) == len(read):
            more = f"; and {len(bad) - _MOST_NAMED} more" if len(bad) > _MOST_NAMED else ""
            raise ProblemError(422, "unreadable_picture", "; ".join(map(str, bad[:_MOST_NAMED])) + more)
