"""From a request to pictures: a form of files, or a picture as the body; what cannot be answered says why."""

from __future__ import annotations

from dataclasses import dataclass

from starlette.datastructures import FormData, UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException
from starlette.requests import Request
from starlette.types import Message

from manylabel.deploy.choosing import TagChoice
from manylabel.errors import ConfigError

__all__ = ["Question", "RefusedError", "SentPicture", "read_question"]

FIELD = "pictures"  # the form's field
MOST_BYTES = 20_000_000  # of a request
MOST_PICTURES = 64
_MOST_NAME = 255


class RefusedError(Exception):
    """A request that cannot be answered.

    Args:
        status: The HTTP status.
        code: A word for programs.
        message: What was wrong and what to do.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(status, code, message)
        self.status = status
        self.code = code
        self.message = message


@dataclass(frozen=True)
class SentPicture:
    """A picture as it came: what it is called, and its file."""

    name: str
    content: bytes


@dataclass(frozen=True)
class Question:
    """What a request asks: pictures, and which tags are wanted."""

    pictures: tuple[SentPicture, ...]
    choice: TagChoice


async def read_question(request: Request) -> Question:
    """Read a request for tags.

    Args:
        request: ``POST /v1/predict?top=3``, or ``?threshold=0.5``, with a form or a picture.

    Raises:
        RefusedError: It is not that.
    """
    if request.url.path != "/v1/predict":
        raise RefusedError(404, "not_found", "there is nothing here; send pictures to /v1/predict")
    if request.method != "POST":
        raise RefusedError(405, "method_not_allowed", "send pictures with POST")
    choice = _read_choice(request)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == "multipart/form-data":
        return Question(await _read_form(request), choice)
    if kind.startswith("image/") or kind == "application/octet-stream":
        return Question((SentPicture("picture", await _read_body(request)),), choice)
    wanted = "send multipart/form-data, or a picture as image/jpeg or the like"
    raise RefusedError(415, "unsupported_type", f"{wanted}, got {kind or 'nothing'}")


def _read_choice(request: Request) -> TagChoice:
    top, threshold = (request.query_params.get(name) for name in ("top", "threshold"))
    try:
        return TagChoice(None if top is None else int(top), None if threshold is None else float(threshold))
    except ConfigError as error:
        raise RefusedError(422, "bad_request", str(error)) from None
    except ValueError:
        given = f"top={top}" if threshold is None else f"threshold={threshold}"
        raise RefusedError(422, "bad_request", f"top and threshold must be numbers, got {given}") from None


async def _read_body(request: Request) -> bytes:
    """Return the body; one that is too large is not read to its end."""
    content = bytearray()
    async for chunk in request.stream():
        content += chunk
        if len(content) > MOST_BYTES:
            words = f"a request may have {MOST_BYTES:,} bytes, this one has more; send fewer or smaller pictures"
            raise RefusedError(413, "too_large", words)
    return bytes(content)


async def _read_form(request: Request) -> tuple[SentPicture, ...]:
    body = await _read_body(request)

    async def receive() -> Message:
        return {"type": "http.request", "body": body, "more_body": False}

    try:
        async with Request(request.scope, receive).form(max_files=MOST_PICTURES, max_fields=1) as form:
            return await _read_files(form)
    except (HTTPException, MultiPartException, ValueError, KeyError) as error:
        words = getattr(error, "detail", None) or getattr(error, "message", None) or str(error)
        raise RefusedError(422, "bad_request", f"the form cannot be read: {words}") from None


async def _read_files(form: FormData) -> tuple[SentPicture, ...]:
    files = [file for file in form.getlist(FIELD) if isinstance(file, UploadFile)]
    if not files or len(files) < len(form.multi_items()):
        words = f"the form needs files in the field {FIELD!r} and nothing else, as in: -F {FIELD}=@a.jpg"
        raise RefusedError(422, "bad_request", words)
    return tuple([SentPicture((file.filename or "picture")[:_MOST_NAME], await file.read()) for file in files])
