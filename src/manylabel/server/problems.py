"""What a caller is told when a request cannot be answered: a status, a code for programs, a sentence for people."""

import logging
from collections.abc import Mapping

from fastapi import FastAPI
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request

from manylabel.errors import ImageError, LabelError
from manylabel.server.answers import Problem

__all__ = ["ProblemError", "handle_problems", "problem_response"]

logger = logging.getLogger(__name__)

_CODES = {404: "not_found", 405: "method_not_allowed"}
_WORDS = {
    404: "there is nothing here; /openapi.json lists what there is",
    405: "this address takes other methods; the header Allow names them",
}


class ProblemError(Exception):
    """A request that cannot be answered.

    Args:
        status: The HTTP status.
        code: A word for programs, such as ``"too_large"``.
        message: What was wrong and what to do.
        headers: Further headers of the answer.

    Examples:
        >>> ProblemError(429, "busy", "come again in 2 seconds", headers={"Retry-After": "2"}).status
        429
    """

    def __init__(self, status: int, code: str, message: str, *, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(status, code, message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})


def problem_response(error: ProblemError) -> JSONResponse:
    """Return the answer that tells of a problem.

    Examples:
        >>> problem_response(ProblemError(413, "too_large", "send less")).body
        b'{"code":"too_large","message":"send less"}'
    """
    answer = Problem(code=error.code, message=error.message)
    return JSONResponse(answer.model_dump(), status_code=error.status, headers=error.headers)


def handle_problems(app: FastAPI) -> None:
    """Let an app answer every exception with a `Problem`; what is not expected is logged and tells nothing.

    Args:
        app: The app.
    """

    def on_problem(_: Request, error: Exception) -> JSONResponse:
        return problem_response(_as_problem(error))

    for kind in (ProblemError, HTTPException, LabelError, ImageError, ClientDisconnect, Exception):
        app.add_exception_handler(kind, on_problem)


def _as_problem(error: Exception) -> ProblemError:
    match error:
        case ProblemError():
            return error
        case HTTPException():
            words = _WORDS.get(error.status_code, str(error.detail))
            return ProblemError(
                error.status_code, _CODES.get(error.status_code, "bad_request"), words, headers=error.headers
            )
        case LabelError():
            return ProblemError(422, "unknown_label", str(error))
        case ImageError():
            return ProblemError(422, "unreadable_picture", str(error))
        case ClientDisconnect():
            return ProblemError(400, "cut_off", "the connection ended before the request did")
    logger.error("a request failed", exc_info=error)
    return ProblemError(
        500, "internal", "something went wrong here, not with your request; the log of the server says what"
    )
