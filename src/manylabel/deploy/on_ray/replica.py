"""A replica of the server on Ray: pictures of requests that arrive together go through its model together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from manylabel.deploy.on_ray.placed_model import PlacedModel
from manylabel.deploy.on_ray.questions import Question, RefusedError, SentPicture, read_question
from manylabel.deploy.preparing import Pixels, refuse_large
from manylabel.errors import PictureError
from manylabel.extras import require
from manylabel.types import Tag

__all__ = ["Replica"]

logger = logging.getLogger(__name__)

_MOST_NAMED = 5  # pictures that an error names

Found: TypeAlias = NDArray[np.float32] | PictureError
"""The scores ``[L]`` of a picture, or why it could not be read."""


class Replica:
    """Answers ``POST /v1/predict`` in the form in which `manylabel serve` does.

    Args:
        model: What to open.
        name: What the answers call the model.
        batch_size: Pictures that go through the model at once.
        wait_seconds: How long the first picture of a batch waits for others.
    """

    def __init__(self, model: PlacedModel, name: str, batch_size: int, wait_seconds: float) -> None:
        serve = require("ray.serve", extra="ray")
        self.predictor = model.open()
        self.name = name

        @serve.batch(max_batch_size=batch_size, batch_wait_timeout_s=wait_seconds)  # type: ignore[untyped-decorator] # Ray's
        async def score(pictures: list[SentPicture]) -> list[Found]:
            return await asyncio.to_thread(self.score_batch, pictures)

        self.score = score  # takes one picture; Ray makes the batches

    async def __call__(self, request: Request) -> JSONResponse:
        """Answer a request; every mistake of the caller's is told in a sentence."""
        try:
            return JSONResponse(await self._answer(await read_question(request)))
        except RefusedError as error:
            return _problem(error.status, error.code, error.message)
        except ClientDisconnect:
            return _problem(400, "cut_off", "the connection ended before the request did")
        except Exception:
            logger.exception("a request failed")
            words = "something went wrong here, not with your request; the log of the server says what"
            return _problem(500, "internal", words)

    def score_batch(self, pictures: Sequence[SentPicture]) -> list[Found]:
        """Decode pictures and score those that can be read, in one batch."""
        pixels: list[Pixels] = []
        errors: list[PictureError | None] = []
        for picture in pictures:
            try:
                refuse_large(picture.content, name=picture.name)
                pixels.append(self.predictor.prepare(picture.content, name=picture.name))
                errors.append(None)
            except PictureError as error:
                errors.append(error)
        scores = iter(self.predictor.scores(np.stack(pixels) if pixels else np.empty((0,), np.uint8)))
        return [next(scores) if error is None else error for error in errors]

    async def _answer(self, question: Question) -> dict[str, Any]:
        found: list[Found] = await asyncio.gather(*map(self.score, question.pictures))
        bad = [each for each in found if isinstance(each, PictureError)]
        if len(bad) == len(found):
            more = f"; and {len(bad) - _MOST_NAMED} more" if len(bad) > _MOST_NAMED else ""
            raise RefusedError(422, "unreadable_picture", "; ".join(map(str, bad[:_MOST_NAMED])) + more)
        scores = np.stack([each for each in found if not isinstance(each, PictureError)])  # [B, L]
        tags = iter(question.choice.pick(scores, self.predictor.spec))
        pictures = [
            {"name": picture.name, "tags": [], "error": each.reason}
            if isinstance(each, PictureError)
            else {"name": picture.name, "tags": [*map(self._say, next(tags))], "error": None}
            for picture, each in zip(question.pictures, found, strict=True)
        ]
        return {"model": self.name, "pictures": pictures}

    def _say(self, tag: Tag) -> dict[str, str | float]:
        name = self.predictor.labels.display(tag.label)
        return {"label": tag.label, "display_name": name, "score": tag.score}


def _problem(status: int, code: str, message: str) -> JSONResponse:
    return JSONResponse({"code": code, "message": message}, status_code=status)
