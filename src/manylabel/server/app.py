"""`create_app`: a model as a web application, with an API and a web page."""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path

import fastapi_swagger
from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request

from manylabel.errors import LabelError
from manylabel.server.api import Api
from manylabel.server.label_studio import LabelStudio
from manylabel.server.limits import Limits, ServerSettings
from manylabel.server.metrics import MeasureRequests
from manylabel.server.model import ServedModel
from manylabel.server.schemas import Problem, ProblemError, join_mistakes, problem_response

logger = logging.getLogger(__name__)

_STATUSES = (400, 401, 408, 413, 415, 421, 422, 429, 503)  # of problems
_WORDS = {
    404: ("not_found", "no such endpoint; /openapi.json lists all endpoints"),
    405: ("method_not_allowed", "method not allowed here; the Allow header lists the allowed ones"),
}
_PAGE = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    "/page.js": ("page.js", "text/javascript"),
    "/backend.js": ("server.js", "text/javascript"),
    "/docs": ("docs.html", "text/html"),
    "/docs.js": ("docs.js", "text/javascript"),
}
_SWAGGER = {"/swagger-ui.css": "text/css", "/swagger-ui-bundle.js": "text/javascript"}  # files of fastapi-swagger
_PAGE_HEADERS = {
    "Cache-Control": "no-cache",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
}


def create_app(model: ServedModel, settings: ServerSettings | None = None) -> FastAPI:
    """Create the ASGI application that serves a model.

    Args:
        model: The model.
        settings: The limits.

    Returns:
        The application.

    Examples:
        >>> import tempfile
        >>> from fastapi.testclient import TestClient
        >>> from manylabel import Classifier, heads
        >>> model = Classifier.create("resnet10t", head=heads.LinearClassifier, labels=["cat", "dog"], pretrained=False)
        >>> served = ServedModel.open(model.save_pretrained(Path(tempfile.mkdtemp()) / "pets"), engine="torch")
        >>> with TestClient(create_app(served), "http://localhost") as client:
        ...     [each["label"] for each in client.get("/v1/labels").json()["labels"]]
        ['cat', 'dog']
    """
    settings = settings or ServerSettings()
    api = Api(model, settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with api.running():
            yield

    app = FastAPI(
        title="manylabel",
        summary="Multi-label image classification.",
        version=version("manylabel"),
        docs_url=None,  # FastAPI's docs page loads scripts from a CDN; ours has them from a package
        redoc_url=None,
        responses={status: {"model": Problem} for status in _STATUSES},
        lifespan=lifespan,
    )
    app.include_router(api.router())
    if settings.label_studio:
        app.include_router(LabelStudio(api, settings).router())
    for path, (name, kind) in _PAGE.items():
        app.get(path, include_in_schema=False)(_file(Path(__file__).parent / "page" / name, kind))
    for path, kind in _SWAGGER.items():
        app.get(path, include_in_schema=False)(_file(Path(fastapi_swagger.__file__).parent / f"resources{path}", kind))
    for error in (HTTPException, RequestValidationError, LabelError, ClientDisconnect, Exception):
        app.add_exception_handler(error, _on_error)
    app.add_middleware(Limits, settings=settings)
    app.add_middleware(MeasureRequests, metrics=api.metrics)
    if settings.allow_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.allow_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    return app


def _file(path: Path, kind: str) -> Callable[[], Awaitable[Response]]:
    content = path.read_bytes()

    async def send() -> Response:
        return Response(content, media_type=kind, headers=_PAGE_HEADERS)

    return send


def _on_error(_: Request, error: Exception) -> JSONResponse:
    """Turn every exception into a `Problem`; unexpected ones are logged and reveal nothing."""
    match error:
        case ProblemError():
            return problem_response(error)
        case HTTPException():
            code, message = _WORDS.get(error.status_code, ("bad_request", str(error.detail)))
            return problem_response(ProblemError(error.status_code, code, message, headers=error.headers))
        case RequestValidationError():
            return problem_response(ProblemError(422, "bad_request", _in_words(error)))
        case LabelError():
            return problem_response(ProblemError(422, "unknown_label", str(error)))
        case ClientDisconnect():
            return problem_response(ProblemError(400, "cut_off", "the connection closed before the request ended"))
    logger.error("a request failed", exc_info=error)
    message = "internal server error; see the server log for details"
    return problem_response(ProblemError(500, "internal", message))


def _in_words(error: RequestValidationError) -> str:
    """Describe the first mistakes, without the input, which may be large."""
    found = [f"{'.'.join(map(str, each['loc'][1:])) or 'the request'}: {each['msg']}" for each in error.errors()]
    return join_mistakes(found)
