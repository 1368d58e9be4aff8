"""The addresses of the server and what they answer."""

from __future__ import annotations

import secrets
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI
from fastapi.responses import PlainTextResponse
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.requests import Request

from manylabel.server.answers import (
    ExplainAnswer,
    LabelsAnswer,
    LimitsAnswer,
    PredictAnswer,
    Problem,
    StatusAnswer,
)
from manylabel.server.openapi import explain_body, predict_body
from manylabel.server.problems import ProblemError
from manylabel.server.questions import MOST_EXPLAINED, MOST_LABELS, MOST_LETTERS, MOST_PICTURES
from manylabel.server.reading import read_explain, read_predict
from manylabel.server.service import Service
from manylabel.server.wording import label_answers

__all__ = ["Api", "add_api"]

_REASONS = {
    400: "The request is broken.",
    401: "The API key is missing or wrong.",
    408: "The body took too long to arrive.",
    413: "The body is too large, or there are too many pictures.",
    415: "The body is neither JSON nor a form.",
    422: "The body, its labels or its pictures cannot be understood.",
    429: "Too much waits already; come again after the seconds that Retry-After says.",
    503: "The server does not answer questions now.",
}
_bearer = HTTPBearer(auto_error=False, description="The API key, where the server wants one.")


class Api:
    """What each address answers.

    Args:
        service: What answers questions about pictures.
    """

    def __init__(self, service: Service) -> None:
        self.service = service

    async def predict(self, request: Request) -> PredictAnswer:
        """Name what is in one or more pictures.

        Pictures that come together, in one request or in several, go through the model together. Of several pictures,
        one that cannot be read says so in its `error`; when none can be read, the answer is 422.
        """
        return await self.service.predict(await read_predict(request, seconds=self.service.settings.seconds))

    async def explain(self, request: Request) -> ExplainAnswer:
        """Show where the model looks for labels in a picture."""
        return await self.service.explain(await read_explain(request, seconds=self.service.settings.seconds))

    async def labels(self) -> LabelsAnswer:
        """List the labels of the model with their thresholds, what else it can do, and how much may be sent."""
        model, settings = self.service.model, self.service.settings
        return LabelsAnswer(
            model=model.name,
            labels=label_answers(model.predictor.spec),
            single_label=model.predictor.spec.single_label,
            new_labels=model.takes_new_labels,
            explains=model.explains,
            limits=LimitsAnswer(
                body_bytes=settings.max_body_bytes,
                pictures=min(MOST_PICTURES, settings.max_waiting),
                pixels=settings.max_pixels,
                labels=MOST_LABELS,
                explained_labels=MOST_EXPLAINED,
                label_letters=MOST_LETTERS,
                seconds=settings.seconds,
            ),
        )

    async def health(self) -> StatusAnswer:
        """Tell that the process answers."""
        return StatusAnswer(status="ok")

    async def ready(self) -> StatusAnswer:
        """Tell whether pictures are answered: 503 while the server starts or stops."""
        if not self.service.is_ready:
            raise ProblemError(503, "not_ready", "the server starts or stops; try again", headers={"Retry-After": "1"})
        return StatusAnswer(status="ready")

    async def metrics(self) -> PlainTextResponse:
        """Give the numbers of this server to Prometheus."""
        return PlainTextResponse(self.service.metrics.text(), media_type="text/plain; version=0.0.4")

    async def check_key(self, given: Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]) -> None:
        """Refuse callers that do not show the key, where there is one."""
        key = self.service.settings.api_key
        if key is None:
            return
        if given is None or not secrets.compare_digest(given.credentials.encode(), key.encode()):
            words = "this server wants its API key, as in: -H 'Authorization: Bearer KEY'"
            raise ProblemError(401, "unauthorised", words, headers={"WWW-Authenticate": "Bearer"})


def add_api(app: FastAPI, service: Service) -> None:
    """Add the addresses to an app.

    Args:
        app: The app.
        service: What answers questions about pictures.
    """
    api = Api(service)
    keyed = APIRouter(dependencies=[Depends(api.check_key)], responses=_problems(401))
    asked = _problems(400, 408, 413, 415, 422, 429)
    keyed.post("/v1/predict", tags=["pictures"], responses=asked, openapi_extra=predict_body())(api.predict)
    keyed.post("/v1/explain", tags=["pictures"], responses=asked, openapi_extra=explain_body())(api.explain)
    keyed.get("/v1/labels", tags=["model"])(api.labels)
    text: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
    keyed.get("/metrics", tags=["server"], response_model=None, responses=text)(api.metrics)
    app.include_router(keyed)
    app.get("/healthz", tags=["server"])(api.health)
    app.get("/readyz", tags=["server"], responses=_problems(503))(api.ready)


def _problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": Problem, "description": _REASONS[status]} for status in statuses}
