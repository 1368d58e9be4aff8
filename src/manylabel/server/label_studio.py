"""Label Studio's machine-learning backend protocol: pre-annotations of images with Choices.

Label Studio 1.23 calls ``/health`` and ``/setup`` when a model is connected, ``/predict`` for tasks, ``/versions``, and
``/webhook`` after every annotation. Requests carry addresses of images; only those at the origins that the operator
named are downloaded, and the host name and token that ``/setup`` offers are ignored.
"""

import asyncio
import base64
import json
import logging
import time
from functools import partial
from typing import Annotated, Any, NamedTuple
from urllib.parse import urljoin
from xml.etree import ElementTree

from fastapi import APIRouter, Body, Depends
from pydantic import BaseModel, Field
from starlette.requests import Request

from manylabel.errors import ConfigError, ImageError
from manylabel.image_files import fetch, origin
from manylabel.predictions import TagChoice
from manylabel.server.api import DOWNLOADS, Api, SentImage, bearer
from manylabel.server.limits import MAX_LABELS, ServerSettings
from manylabel.server.schemas import ProblemError
from manylabel.types import Tag

logger = logging.getLogger(__name__)

_TOKEN_SECONDS = 60.0  # access tokens are valid for five minutes
_BUCKETS = ("s3:", "gs:", "azure-blob:")


class Task(BaseModel):
    """An image to label."""

    id: int = 0
    data: dict[str, Any] = Field(description="Values that the labelling configuration refers to, as in $image.")


class PredictRequest(BaseModel):
    """Tasks, and the labelling configuration of their project."""

    tasks: list[Task]
    label_config: str


class SetupRequest(BaseModel):
    """Labelling configuration of a project to connect."""

    label_schema: str = Field(alias="schema")


class TaskPrediction(BaseModel):
    """Choices for one task: an annotation as Label Studio stores it."""

    result: list[dict[str, Any]]
    score: float = Field(description="Mean score of the choices; 0 if there are none.")
    model_version: str


class Results(BaseModel):
    """A prediction for each task, in order."""

    results: list[TaskPrediction]


class Choices(NamedTuple):
    """A ``<Choices>`` tag of a labelling configuration, and where its images are.

    Args:
        name: Name of the tag.
        to_name: Name of the ``<Image>`` tag.
        key: Key of the image address in a task's data.
        values: What a choice is called in annotations, by its text.
        is_single: Whether only one can be chosen.
    """

    name: str
    to_name: str
    key: str
    values: dict[str, str]
    is_single: bool


def read_choices(config: str) -> Choices:
    """Return the first Choices of an image in a labelling configuration.

    Raises:
        ConfigError: There are none, or the configuration is not valid.

    Examples:
        >>> read_choices('''<View><Image name="photo" value="$image"/><Choices name="tags" toName="photo"
        ...     choice="multiple"><Choice value="cat"/><Choice value="dog" alias="d"/></Choices></View>''')
        Choices(name='tags', to_name='photo', key='image', values={'cat': 'cat', 'dog': 'd'}, is_single=False)
    """
    if "<!doctype" in config.lower():
        raise ConfigError("the labelling configuration must not have a document type; remove it")
    try:
        root = ElementTree.fromstring(config)  # noqa: S314 - no entities without a document type
    except ElementTree.ParseError as error:
        raise ConfigError(f"the labelling configuration is not valid XML ({error})") from error
    images = {tag.get("name"): tag.get("value", "") for tag in root.iter("Image")}
    for tag in root.iter("Choices"):
        values = {text: each.get("alias", text) for each in tag.iter("Choice") if (text := each.get("value"))}
        name, to_name = tag.get("name", ""), tag.get("toName", "")
        if values and images.get(to_name, "").startswith("$"):
            is_single = tag.get("choice", "single").startswith("single")
            return Choices(name, to_name, images[to_name].removeprefix("$"), values, is_single)
    raise ConfigError("the labelling configuration has no <Choices> of an <Image>; add them to the project")


class ImageHost:
    """Downloads of images from the origins that are allowed.

    Args:
        origins: Label Studio's origin, such as ``http://localhost:8080``, then others that images may come from.
        key: API key of Label Studio: a personal access token, or a legacy token. It is sent to the first origin only.
        max_bytes: Maximum size of an image.
    """

    def __init__(self, origins: tuple[str, ...], *, key: str | None, max_bytes: int) -> None:
        self.origins = origins
        self.key = key
        self.max_bytes = max_bytes
        self._token = ("", -_TOKEN_SECONDS)  # and the time it was issued

    def address_of(self, task: Task, key: str) -> str:
        """Return the address of a task's image.

        Raises:
            ImageError: The task has none, or it is at another origin.
        """
        given = str(task.data.get(key, ""))
        if given.startswith(_BUCKETS):
            encoded = base64.urlsafe_b64encode(given.encode()).decode()
            given = f"/tasks/{task.id}/presign/?fileuri={encoded}"
        address = urljoin(f"{self.origins[0]}/", given)
        if not given or origin(address) not in self.origins:
            reason = f"it is not at {' or '.join(self.origins)}; allow another origin with --label-studio"
            raise ImageError(given or f"task {task.id}", reason)
        return address

    def load(self, task: Task, key: str) -> bytes | str:
        """Return an image, or the reason why it cannot be downloaded."""
        try:
            address = self.address_of(task, key)
            headers = self._headers() if origin(address) == self.origins[0] else {}
            return fetch(address, headers=headers, origins=self.origins, max_bytes=self.max_bytes)
        except (ImageError, ValueError) as error:
            return str(error)

    def _headers(self) -> dict[str, str]:
        """Return the authorisation; a personal access token is exchanged for one that is valid for minutes."""
        if self.key is None:
            return {}
        if self.key.count(".") != 2:  # not a JSON web token
            return {"Authorization": f"Token {self.key}"}
        token, issued = self._token
        if time.monotonic() - issued > _TOKEN_SECONDS:
            body = json.dumps({"refresh": self.key}).encode()
            address = f"{self.origins[0]}/api/token/refresh"
            answer = fetch(address, content=body, headers={"Content-Type": "application/json"}, origins=self.origins)
            found = json.loads(answer)
            token = str(found.get("access", "")) if isinstance(found, dict) else ""
            if not token:
                raise ImageError(address, "it returned no access token; check the API key of Label Studio")
            self._token = (token, time.monotonic())
        return {"Authorization": f"Bearer {token}"}


class LabelStudio:
    """Endpoints that Label Studio calls.

    Args:
        api: The model's API.
        settings: Its settings, with the origins of images.
    """

    def __init__(self, api: Api, settings: ServerSettings) -> None:
        self.api = api
        self.host = ImageHost(settings.label_studio, key=settings.label_studio_key, max_bytes=settings.max_body_bytes)

    def router(self) -> APIRouter:
        """Return the endpoints."""
        router = APIRouter(dependencies=[Depends(bearer)])
        router.get("/health")(self.health)
        router.post("/setup")(self.setup)
        router.post("/predict")(self.predict)
        router.get("/versions")(self.versions)
        router.post("/webhook")(self.webhook)
        return router

    async def health(self) -> dict[str, str]:
        """Report that the server is up."""
        return {"status": "UP", "model_class": "manylabel"}

    async def setup(self, request: SetupRequest) -> dict[str, str]:
        """Check that the model knows choices of a project, and return its version."""
        self._labels(_choices(request.label_schema))
        return {"model_version": self.api.model.name}

    async def versions(self) -> dict[str, list[str]]:
        """List the versions of the model: one."""
        return {"versions": [self.api.model.name]}

    async def webhook(self, event: Annotated[dict[str, Any], Body()]) -> dict[str, str]:  # noqa: ARG002 (sent, unused)
        """Accept an event and ignore it: models are trained with `manylabel train`."""
        return {}

    async def predict(self, body: PredictRequest, request: Request) -> Results:
        """Predict the choices of tasks; one whose image cannot be read gets none, and the reason is logged."""
        choices = _choices(body.label_config)
        names = self._labels(choices)
        results: list[TaskPrediction] = []
        for start in range(0, len(body.tasks), DOWNLOADS):  # images of few tasks at a time are in memory
            tasks = body.tasks[start : start + DOWNLOADS]
            results += await asyncio.gather(*(self._predict(task, choices, names, request) for task in tasks))
        return Results(results=results)

    async def _predict(self, task: Task, choices: Choices, names: dict[str, str], request: Request) -> TaskPrediction:
        loaded = await self.api.downloads.submit(partial(self.host.load, task, choices.key), request=request)
        tags: tuple[Tag, ...] | str = loaded if isinstance(loaded, str) else ()
        if not isinstance(loaded, str):
            image = SentImage(f"task {task.id}", loaded)
            try:
                (tags,), *_ = await self.api.tag(
                    [image], list(names), TagChoice(1 if choices.is_single else None), request
                )
            except ProblemError as error:
                if error.status_code != 413:  # too many pixels concern this image, others the server
                    raise
                tags = str(error.detail)
        if isinstance(tags, str):
            logger.warning("no prediction for task %d: %s", task.id, tags)
            tags = ()
        chosen = [names[tag.label] for tag in tags]
        result = {
            "from_name": choices.name,
            "to_name": choices.to_name,
            "type": "choices",
            "value": {"choices": chosen},
        }
        return TaskPrediction(
            result=[result] if chosen else [],
            score=sum(tag.score for tag in tags) / max(len(tags), 1),
            model_version=self.api.model.name,
        )

    def _labels(self, choices: Choices) -> dict[str, str]:
        """Return the value of each choice by the label to predict; new labels only if the model accepts them."""
        model = self.api.model
        known = {
            text.casefold(): name for name in model.spec.labels for text in (model.spec.labels.display(name), name)
        }
        new = model.takes_new_labels and len(choices.values) <= MAX_LABELS
        found = {
            known.get(text.casefold(), text): value
            for text, value in choices.values.items()
            if new or text.casefold() in known
        }
        if not found:
            given, labels = (", ".join([*names][:5]) for names in (choices.values, model.spec.labels))
            message = f"the model knows none of the choices ({given}, ...); it knows {labels}, ..."
            logger.warning(message)
            raise ProblemError(422, "unknown_label", message)
        return found


def _choices(config: str) -> Choices:
    try:
        return read_choices(config)
    except ConfigError as error:
        logger.warning("%s", error)  # Label Studio does not show it
        raise ProblemError(422, "bad_request", str(error)) from error
