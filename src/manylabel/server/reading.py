"""From a request to pictures and options: JSON or a form, within time, with words for whatever is wrong."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import FormData, UploadFile
from starlette.requests import Request

from manylabel.server.problems import ProblemError
from manylabel.server.questions import (
    MOST_LABELS,
    MOST_PICTURES,
    ExplainOptions,
    ExplainQuestion,
    PredictOptions,
    PredictQuestion,
)

__all__ = ["Asked", "SentImage", "read_explain", "read_predict"]

_MOST_FIELD = 10_000  # bytes of a field that is no file
_MOST_FIELDS = MOST_LABELS + 10
_MOST_NAME = 255
_MOST_NAMED = 5  # mistakes that are spelled out

Options = TypeVar("Options", PredictOptions, ExplainOptions)


@dataclass(frozen=True)
class SentImage:
    """A picture as it came: what it is called, and its file."""

    name: str
    content: bytes


@dataclass(frozen=True)
class Asked(Generic[Options]):
    """What a request asks: pictures, and what is wanted of them."""

    pictures: list[SentImage]
    options: Options


async def read_predict(request: Request, *, seconds: float) -> Asked[PredictOptions]:
    """Read a request for tags.

    Args:
        request: The request, its body not read yet.
        seconds: How long the body may take.

    Raises:
        ProblemError: It is not what /v1/predict takes.
    """
    return await _read(request, PredictQuestion, PredictOptions, field="pictures", most=MOST_PICTURES, seconds=seconds)


async def read_explain(request: Request, *, seconds: float) -> Asked[ExplainOptions]:
    """Read a request for an explanation.

    Args:
        request: The request, its body not read yet.
        seconds: How long the body may take.

    Raises:
        ProblemError: It is not what /v1/explain takes.
    """
    return await _read(request, ExplainQuestion, ExplainOptions, field="picture", most=1, seconds=seconds)


async def _read(
    request: Request,
    question: type[PredictQuestion] | type[ExplainQuestion],
    options: type[Options],
    *,
    field: str,
    most: int,
    seconds: float,
) -> Asked[Options]:
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    try:
        async with asyncio.timeout(seconds):
            if kind == "application/json":
                return await run_in_threadpool(_from_json, await request.body(), question, options)
            if kind == "multipart/form-data":
                async with request.form(max_files=most, max_fields=_MOST_FIELDS, max_part_size=_MOST_FIELD) as form:
                    return await _from_form(form, options, field)
    except TimeoutError:
        raise ProblemError(408, "too_slow", f"the request did not arrive within {seconds:g} s") from None
    except ValidationError as error:
        raise ProblemError(422, "bad_request", _in_words(error)) from None
    except (ValueError, AssertionError) as error:  # of forms with a strange encoding, among others
        raise ProblemError(422, "bad_request", f"the request cannot be understood: {error}") from None
    given = _clean(kind) or "nothing"
    words = f"send application/json or multipart/form-data, got {given}; /openapi.json shows examples"
    raise ProblemError(415, "unsupported_type", words)


def _from_json(
    body: bytes, question: type[PredictQuestion] | type[ExplainQuestion], options: type[Options]
) -> Asked[Options]:
    asked = question.model_validate_json(body, strict=True)
    wanted = options.model_validate(asked.model_dump(include=set(options.model_fields)))
    return Asked([SentImage(each.name, each.content()) for each in asked.sent()], wanted)


async def _from_form(form: FormData, options: type[Options], field: str) -> Asked[Options]:
    files = form.getlist(field)
    if not files or not all(isinstance(file, UploadFile) for file in files):
        raise ProblemError(422, "bad_request", f"the form needs files in the field {field!r}, as in: -F {field}=@a.jpg")
    given: dict[str, object] = {}
    for name, value in form.multi_items():
        if name == field:
            continue
        if isinstance(value, UploadFile):
            raise ProblemError(422, "bad_request", f"files go in the field {field!r}, got one in {_clean(name)!r}")
        if name == "labels":
            given[name] = [*map(_clean, map(str, form.getlist("labels")))]
        else:
            given[_clean(name)] = _clean(value)
    pictures = [
        SentImage(_clean(file.filename or "picture")[:_MOST_NAME], await file.read())
        for file in files
        if isinstance(file, UploadFile)
    ]
    return Asked(pictures, options.model_validate(given))


def _clean(text: str) -> str:
    """Replace halves of characters, which some encodings of forms can hold and JSON cannot."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _in_words(error: ValidationError) -> str:
    found = error.errors(include_url=False, include_input=False, include_context=False)
    lines = [f"{'.'.join(map(str, each['loc'])) or 'the request'}: {each['msg']}" for each in found[:_MOST_NAMED]]
    more = f"; and {len(found) - _MOST_NAMED} more" if len(found) > _MOST_NAMED else ""
    return _clean("; ".join(lines) + more)
