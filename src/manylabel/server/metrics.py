"""Metrics of a server, for Prometheus."""

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["MeasureRequests", "ServerMetrics"]

_BATCHES = (1, 2, 4, 8, 16, 32, 64)


class ServerMetrics:
    """Counters of one server; each has its own, so that two in a process do not mix.

    Args:
        waiting: Returns how many images wait.

    Examples:
        >>> metrics = ServerMetrics(waiting=lambda: 3)
        >>> metrics.images.labels("read").inc()
        >>> 'manylabel_waiting_images 3.0' in metrics.text()
        True
    """

    def __init__(self, *, waiting: Callable[[], int]) -> None:
        registry = self.registry = CollectorRegistry()
        self.requests = Counter("manylabel_requests", "Answered requests.", ["path", "status"], registry=registry)
        self.seconds = Histogram("manylabel_request_seconds", "Seconds of an answer.", ["path"], registry=registry)
        self.images = Counter("manylabel_images", "Images, read or unreadable.", ["outcome"], registry=registry)
        self.batches = Histogram("manylabel_batch_images", "Images of a batch.", buckets=_BATCHES, registry=registry)
        gauge = Gauge("manylabel_waiting_images", "Images that wait for an answer.", registry=registry)
        gauge.set_function(waiting)
        ProcessCollector(registry=registry)

    def text(self) -> str:
        """Return all metrics in Prometheus's text format."""
        return generate_latest(self.registry).decode()


class MeasureRequests:
    """Counts answers by path and status, and times them.

    Args:
        app: What answers requests.
        metrics: Where they are counted.
    """

    def __init__(self, app: ASGIApp, *, metrics: ServerMetrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request and count it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.perf_counter(), 500

        async def noted(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, noted)
        finally:
            path = getattr(scope.get("route"), "path", "other")  # never what a caller made up: there are too many
            self.metrics.requests.labels(path, str(status)).inc()
            self.metrics.seconds.labels(path).observe(time.perf_counter() - start)
