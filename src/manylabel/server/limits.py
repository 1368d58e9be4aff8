"""How much is read: a body that is too large is refused before it comes, and all bodies together have a limit too."""

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from manylabel.server.problems import ProblemError, problem_response

__all__ = ["LimitBodies"]


class LimitBodies:
    """Refuses bodies by their announced length, and stops reading those that announce none.

    Args:
        app: What answers requests.
        max_body_bytes: The limit of one body.
        max_held_bytes: The limit of all bodies that are here at the same time.

    Examples:
        >>> from fastapi import FastAPI
        >>> from fastapi.testclient import TestClient
        >>> client = TestClient(LimitBodies(FastAPI(), max_body_bytes=10, max_held_bytes=100))
        >>> client.post("/", content=b"x" * 11).json()["code"]
        'too_large'
    """

    def __init__(self, app: ASGIApp, *, max_body_bytes: int, max_held_bytes: int) -> None:
        self.app = app
        self.max_body_bytes = max_body_bytes
        self.max_held_bytes = max_held_bytes
        self.held = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, or refuse it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        expected = self._expected(scope)
        refusal = self._refusal(expected)
        if refusal is not None:
            await problem_response(refusal)(scope, receive, send)
            return
        self.held += expected
        try:
            await self.app(scope, self._counted(receive), send)
        finally:
            self.held -= expected

    def _expected(self, scope: Scope) -> int:
        """Return how many bytes a body may have: what it says, or as many as are allowed where it comes in chunks."""
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"")
        if length.isdigit():
            return int(length[:20])
        return self.max_body_bytes if b"transfer-encoding" in headers else 0

    def _refusal(self, expected: int) -> ProblemError | None:
        if expected > self.max_body_bytes:
            return self._too_large(f"this request has {expected:,}")
        if self.held + expected > self.max_held_bytes and self.held:
            return ProblemError(
                429, "busy", "too much is being sent at once; try again in 1 s", headers={"Retry-After": "1"}
            )
        return None

    def _counted(self, receive: Receive) -> Receive:
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self.max_body_bytes:
                raise self._too_large("this request has more")
            return message

        return counted

    def _too_large(self, what: str) -> ProblemError:
        message = f"a request may have {self.max_body_bytes:,} bytes, {what}; send fewer or smaller pictures"
        # The rest of the body is not read, so that the connection cannot be used again.
        return ProblemError(413, "too_large", message, headers={"Connection": "close"})
