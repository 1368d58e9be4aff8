"""Running an application until a signal ends it; what was accepted is finished first."""

import uvicorn
from fastapi import FastAPI

__all__ = ["make_server", "run_server"]

_MOST_CONNECTIONS = 1_000
_IDLE_SECONDS = 15


def make_server(app: FastAPI, *, host: str = "127.0.0.1", port: int = 8000, finish_seconds: int = 60) -> uvicorn.Server:
    """Return a server that is not running yet.

    Args:
        app: The application.
        host: Where it listens; only this machine can reach the default.
        port: The port; 0 takes any that is free.
        finish_seconds: How long accepted requests may take after a signal.

    Examples:
        >>> make_server(FastAPI(), port=0).config.host
        '127.0.0.1'
    """
    config = uvicorn.Config(
        app,
        host=host,
        port=port,
        log_level="warning",
        access_log=False,
        server_header=False,
        limit_concurrency=_MOST_CONNECTIONS,
        timeout_keep_alive=_IDLE_SECONDS,
        timeout_graceful_shutdown=finish_seconds,
    )
    return uvicorn.Server(config)


def run_server(app: FastAPI, *, host: str = "127.0.0.1", port: int = 8000, finish_seconds: int = 60) -> None:
    """Serve until SIGINT or SIGTERM, then finish what was accepted.

    Args:
        app: The application.
        host: Where it listens; only this machine can reach the default.
        port: The port.
        finish_seconds: How long accepted requests may take after the signal.
    """
    make_server(app, host=host, port=port, finish_seconds=finish_seconds).run()
