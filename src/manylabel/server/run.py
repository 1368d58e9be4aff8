"""Run an application until a signal stops it, with graceful shutdown."""

import asyncio
import logging

import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

MAX_CONNECTIONS = 512
MAX_PER_ADDRESS = 256  # connections; a proxy counts as one address
IDLE_SECONDS = 15
HEAD_SECONDS = 10.0


def make_server(
    app: FastAPI,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    finish_seconds: int = 60,
    head_seconds: float = HEAD_SECONDS,
) -> uvicorn.Server:
    """Create a server, not yet running.

    Args:
        app: The application.
        host: Address to listen on; the default is reachable from this machine only.
        port: Port; 0 for any free port.
        finish_seconds: Grace period for accepted requests after a signal.
        head_seconds: Time limit for receiving the headers of a request.

    Examples:
        >>> make_server(FastAPI(), port=0).config.host
        '127.0.0.1'
    """
    logging.getLogger("python_multipart").setLevel(logging.ERROR)  # malformed forms could fill the log
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        http=type("Protocol", (_Protocol,), {"head_seconds": head_seconds}),
        ws="none",
        log_level="error",  # uvicorn warns of every malformed request
        access_log=False,
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=finish_seconds,
    )
    return uvicorn.Server(config)


def run_server(app: FastAPI, *, host: str = "127.0.0.1", port: int = 8000, finish_seconds: int = 60) -> None:
    """Serve until SIGINT or SIGTERM, then finish accepted requests; same arguments as `make_server`."""
    make_server(app, host=host, port=port, finish_seconds=finish_seconds).run()


class _Protocol(H11Protocol):
    """HTTP protocol with limits that uvicorn lacks: time to receive headers, and connections per address."""

    head_seconds = HEAD_SECONDS
    timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in the parent
        super().connection_made(transport)
        if sum(_address(each) == _address(self) for each in self.connections) > MAX_PER_ADDRESS:
            transport.write(b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            transport.close()
        else:
            self._watch()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def _watch(self) -> None:
        """Start the timer while waiting for headers; the application times bodies and responses."""
        if self.cycle is not None and not self.cycle.response_complete:
            self._unwatch()
        elif self.timer is None:
            self.timer = self.loop.call_later(self.head_seconds, self.transport.close)

    def _unwatch(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


def _address(connection: object) -> str | None:
    client: tuple[str, int] | None = getattr(connection, "client", None)
    return client and client[0]
