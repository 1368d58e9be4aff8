"""Limits of a server: settings, and the middleware that rejects requests before their bodies are read."""

import asyncio
import base64
import ipaddress
import secrets
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from manylabel.errors import ConfigError
from manylabel.image_files import origin
from manylabel.server.schemas import ProblemError, problem_response

MAX_IMAGES = 64  # per request
MAX_LABELS = 100  # per /v1/predict request
MAX_EXPLAINED = 10  # labels per /v1/explain request
MAX_LABEL_LENGTH = 100  # per label
BODIES_HELD = 10  # bodies of maximum size in memory at once
TYPES = ("multipart/form-data", "image/", "application/octet-stream")
_PAGE = "/ /page.css /page.js /backend.js /docs /docs.js /swagger-ui.css /swagger-ui-bundle.js"
OPEN_PATHS = frozenset(f"{_PAGE} /openapi.json /healthz /readyz".split())  # need no key


@dataclass(frozen=True)
class ServerSettings:
    """Limits and access rules of a server.

    Args:
        max_body_bytes: Maximum bytes per request; all requests together may hold ten times as many.
        max_pixels: Maximum pixels per request, over all images.
        max_waiting: Maximum images in the queue; further requests get status 429.
        seconds: Time limit for receiving a body, and for answering it.
        batch_size: Maximum images per batch.
        workers: Number of batches computed concurrently.
        api_key: Key that clients must send (default: none).
        allow_hosts: Host names of this server, in addition to IP addresses and localhost. Checked because a web page
            can have its own name resolved to this machine (DNS rebinding).
        allow_origins: Other origins that may read responses (CORS), such as ``https://example.org``.
        label_studio: Origin of Label Studio, such as ``http://localhost:8080``, whose images are downloaded and which
            may call its endpoints; then other origins of images (default: none, and no endpoints).
        label_studio_key: API key of Label Studio.

    Raises:
        ConfigError: A limit is not above 0, or the key is not valid in a header.

    Examples:
        >>> ServerSettings(max_body_bytes=1_000_000).seconds
        30.0
    """

    max_body_bytes: int = 20_000_000
    max_pixels: int = 100_000_000
    max_waiting: int = 256
    seconds: float = 30.0
    batch_size: int = 16
    workers: int = 1
    api_key: str | None = None
    allow_hosts: tuple[str, ...] = ()
    allow_origins: tuple[str, ...] = ()
    label_studio: tuple[str, ...] = ()
    label_studio_key: str | None = None

    def __post_init__(self) -> None:
        for name in ("max_body_bytes", "max_pixels", "max_waiting", "seconds", "batch_size", "workers"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{name} must be above 0, got {getattr(self, name)}")
        for address in self.label_studio:
            if origin(address) != address:
                raise ConfigError(f"label_studio must be an origin such as http://localhost:8080, got {address!r}")
        key = self.api_key
        if key is not None and not (key.isascii() and key.isprintable() and key and " " not in key):
            raise ConfigError("the API key must be printable ASCII without spaces; omit it to run without a key")


class Limits:
    """Middleware that rejects requests by their headers, and bodies that are too large, too slow or too many.

    Args:
        app: The application.
        settings: The limits.

    Examples:
        >>> from fastapi import FastAPI
        >>> from fastapi.testclient import TestClient
        >>> client = TestClient(Limits(FastAPI(), ServerSettings(max_body_bytes=10)), "http://localhost")
        >>> client.post("/", content=b"x" * 11).json()["code"]
        'too_large'
    """

    def __init__(self, app: ASGIApp, settings: ServerSettings) -> None:
        self.app = app
        self.settings = settings
        self.held = 0  # bytes of received bodies without a response yet

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request, or reject it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_plainly(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["X-Content-Type-Options"] = "nosniff"
            await send(message)

        refusal = self._refusal(scope, Headers(scope=scope))
        if refusal is not None:
            await problem_response(refusal)(scope, receive, send_plainly)
            return
        body = _Body(self, receive)
        try:
            await self.app(scope, body.receive, send_plainly)
        finally:
            self.held -= body.received

    def _refusal(self, scope: Scope, headers: Headers) -> ProblemError | None:
        settings = self.settings
        host = _name_of(headers.get("host", ""))
        if not _is_local(host) and host not in settings.allow_hosts:
            message = f"host {host!r} is not allowed; start the server with: --allow-host {host}"
            return ProblemError(421, "unknown_host", message)
        if settings.api_key is not None and scope["path"] not in OPEN_PATHS:
            key = _key_of(headers.get("authorization", ""))
            if not secrets.compare_digest(key.encode(), settings.api_key.encode()):
                message = "missing or wrong API key; send it as in: -H 'Authorization: Bearer KEY'"
                return ProblemError(401, "unauthorised", message, headers={"WWW-Authenticate": "Bearer"})
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        types = (*TYPES, "application/json") if settings.label_studio else TYPES
        if scope["method"] == "POST" and kind and not kind.startswith(types):
            message = f"unsupported content type {kind}; send multipart/form-data or an image, as in: -F images=@a.jpg"
            return ProblemError(415, "unsupported_type", message)
        length = headers.get("content-length", "")
        if length.isdigit() and int(length[:20]) > settings.max_body_bytes:
            return self.too_large(f"this one has {int(length[:20]):,}")
        return None

    def too_large(self, given: str) -> ProblemError:
        """Return the error for a body that is too large."""
        message = (
            f"a request may have at most {self.settings.max_body_bytes:,} bytes, {given}; send fewer or smaller images"
        )
        return ProblemError(413, "too_large", message, headers=_CLOSE)


class _Body:
    """Body of a request, counted as it arrives.

    Rejections close the connection, since the rest of the body is not read.
    """

    def __init__(self, limits: Limits, receive: Receive) -> None:
        self.limits = limits
        self.source = receive
        self.received = 0
        self.is_complete = False
        self.deadline = asyncio.get_running_loop().time() + limits.settings.seconds

    async def receive(self) -> Message:
        """Return the next chunk."""
        limits, settings = self.limits, self.limits.settings
        try:
            async with asyncio.timeout_at(None if self.is_complete else self.deadline):
                message = await self.source()
        except TimeoutError:
            problem = f"the request did not arrive within {settings.seconds:g} s"
            raise ProblemError(408, "too_slow", problem, headers=_CLOSE) from None
        self.is_complete = not message.get("more_body", False)
        self.received += len(message.get("body", b""))
        limits.held += len(message.get("body", b""))
        if self.received > settings.max_body_bytes:
            raise limits.too_large("this one has more")
        if limits.held > BODIES_HELD * settings.max_body_bytes:
            problem = "too many large requests at once; try again later"
            raise ProblemError(429, "busy", problem, headers={"Retry-After": "1", **_CLOSE})
        return message


_CLOSE = {"Connection": "close"}


def _key_of(authorisation: str) -> str:
    """Return the key: a bearer token, or the password of basic authentication, which Label Studio uses."""
    scheme, _, key = authorisation.partition(" ")
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(key, validate=True).decode().partition(":")[2]
        except ValueError:
            return ""
    return key if scheme.lower() == "bearer" else ""


def _name_of(host: str) -> str:
    """Return the name in a Host header, without the port."""
    try:
        return (urlsplit(f"//{host}").hostname or "").removesuffix(".")
    except ValueError:  # brackets without an address
        return host


def _is_local(host: str) -> bool:
    """Return whether no DNS lookup was involved: localhost, an IP address, or no Host header (HTTP/1.0)."""
    if not host or host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True
