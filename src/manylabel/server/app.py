"""`create_app`: a model as a web application."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from manylabel.server.api import add_api
from manylabel.server.limits import LimitBodies
from manylabel.server.metrics import MeasureRequests
from manylabel.server.page import add_page
from manylabel.server.problems import handle_problems
from manylabel.server.served_model import ServedModel
from manylabel.server.service import Service
from manylabel.server.settings import ServerSettings

__all__ = ["create_app"]


def create_app(model: ServedModel, settings: ServerSettings | None = None) -> FastAPI:
    """Make the application that serves a model; any ASGI server runs it.

    Args:
        model: The model.
        settings: The limits; the usual ones when left out.

    Returns:
        The application.

    Examples:
        >>> import tempfile
        >>> from pathlib import Path
        >>> from fastapi.testclient import TestClient
        >>> from manylabel import Classifier, heads
        >>> model = Classifier.create("resnet10t", head=heads.LinearHead, labels=["cat", "dog"], pretrained=False)
        >>> served = ServedModel.open(model.save(Path(tempfile.mkdtemp()) / "pets"), engine="torch")
        >>> with TestClient(create_app(served)) as client:
        ...     [each["label"] for each in client.get("/v1/labels").json()["labels"]]
        ['cat', 'dog']
    """
    settings = settings or ServerSettings()
    service = Service(model, settings)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with service.running():
            yield

    app = FastAPI(
        title="manylabel",
        summary="Names everything in a picture.",
        version=version("manylabel"),
        docs_url=None,  # both of FastAPI's pages load scripts from elsewhere
        redoc_url=None,
        lifespan=lifespan,
    )
    add_api(app, service)
    add_page(app)
    handle_problems(app)
    app.add_middleware(LimitBodies, max_body_bytes=settings.max_body_bytes, max_held_bytes=settings.max_held_bytes)
    app.add_middleware(MeasureRequests, metrics=service.metrics)
    if settings.allow_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.allow_origins),
            allow_methods=["GET", "POST"],
            allow_headers=["Authorization", "Content-Type"],
        )
    return app
