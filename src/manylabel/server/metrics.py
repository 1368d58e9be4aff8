"""Prometheus metrics of a server."""

import time
from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, generate_latest
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_BATCHES = (1, 2, 4, 8, 16, 32, 64)


class ServerMetrics:
    """Metrics of one server, in a registry of its own.

    Args:
        waiting: Returns the number of images in the queue.

    Examples:
        >>> metrics = ServerMetrics(waiting=lambda: 3)
        >>> metrics.images.labels("read").inc()
        >>> 'manylabel_waiting_images 3.0' in metrics.text()
        True
    """

    def __init__(self, *, waiting: Callable[[], int]) -> None:
        registry = self.registry = CollectorRegistry()
        self.requests = Counter("manylabel_requests", "Requests answered.", ["path", "status"], registry=registry)
        self.seconds = Histogram("manylabel_request_seconds", "Response time in seconds.", ["path"], registry=registry)
        self.images = Counter("manylabel_images", "Images received, by outcome.", ["outcome"], registry=registry)
        self.batches = Histogram("manylabel_batch_images", "Images per batch.", buckets=_BATCHES, registry=registry)
        gauge = Gauge("manylabel_waiting_images", "Images waiting for a response.", registry=registry)
        gauge.set_function(waiting)
        ProcessCollector(registry=registry)

    def text(self) -> str:
        """Return all metrics in the Prometheus text format."""
        return generate_latest(self.registry).decode()


class MeasureRequests:
    """Middleware that counts and times responses by path and status.

    Args:
        app: The application.
        metrics: The metrics to update.
    """

    def __init__(self, app: ASGIApp, *, metrics: ServerMetrics) -> None:
        self.app = app
        self.metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a request and count it."""
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
            path = getattr(scope.get("route"), "path", "other")  # the route, not the URL: bounded cardinality
            self.metrics.requests.labels(path, str(status)).inc()
            self.metrics.seconds.labels(path).observe(time.perf_counter() - start)
