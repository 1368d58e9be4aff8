"""A server with several replicas of a model: Ray Serve spreads requests over them, and starts one anew that dies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from manylabel.builtin import DEFAULT_MODEL
from manylabel.cluster import connected_to_ray
from manylabel.errors import ClusterError
from manylabel.inference.on_ray.placed_model import PlacedModel
from manylabel.inference.opening import EngineName
from manylabel.system import require

if TYPE_CHECKING:  # the extra may be missing
    from fastapi import FastAPI

    from manylabel.inference.server import ServerSettings

__all__ = ["serve_with_ray"]

APPLICATION = "manylabel"
QUIET = {"log_level": "WARNING", "enable_access_log": False}
MOST_WAITING = 256  # requests that wait for a replica; more are told to come again (503)
ADVICE = "try again when the machine is less busy, or take: manylabel serve"


@contextmanager
def serve_with_ray(
    model: str | Path = DEFAULT_MODEL,
    *,
    engine: EngineName = "auto",
    device: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    replicas: int = 1,
    settings: ServerSettings | None = None,
    address: str | None = None,
) -> Iterator[str]:
    """Serve a model over HTTP until the end of the context: each replica is the server of `manylabel serve`.

    Args:
        model: As `open_engine` takes it; a folder must be there on every machine.
        engine: What to run the model with.
        device: Where torch runs the model; ``"cuda"`` sets a GPU aside for each replica.
        host: Where to listen; on this machine alone unless you say otherwise. There is no encryption.
        port: Where to listen. Ray Serve that runs already on a cluster stays at its own host and port.
        replicas: How many models work at the same time, each on a CPU or GPU.
        settings: The limits of each replica, and its key; the usual ones when left out.
        address: That of a Ray cluster, such as ``"auto"``; Ray is started on this machine when left out.

    Yields:
        The address of the server.

    Raises:
        MissingExtraError: Ray or the server is not installed.
        ConfigError: A setting is wrong.
        ModelFormatError: There is no such model.
        ClusterError: Ray cannot be had, or the replicas do not start.

    Examples:
        >>> with serve_with_ray("my-model", replicas=0) as url:
        ...     print(url)
        Traceback (most recent call last):
        manylabel.errors.ConfigError: replicas must be at least 1, got 0
    """
    placed = PlacedModel(model, engine=engine, device=device)
    placed.fit(replicas)
    for module in ("ray", "fastapi", "prometheus_client", "python_multipart"):
        require(module, extra="ray")
    placed.check()
    with connected_to_ray(address, advice=ADVICE) as ray:
        placed.fit(replicas, None if address else ray.cluster_resources())
        serve = require("ray.serve", extra="ray")
        from manylabel.inference.server import ServerSettings

        limits = settings or ServerSettings()
        deployment = serve.deployment(
            serve.ingress(_app_of(placed, limits))(),
            name="Replica",
            num_replicas=replicas,
            ray_actor_options={"num_cpus": 1, "num_gpus": placed.num_gpus},
            max_ongoing_requests=limits.max_waiting,
            max_queued_requests=MOST_WAITING,
            logging_config=QUIET,
        )
        with _running(serve, deployment.bind(), {"host": host, "port": port}):
            yield f"http://{host}:{port}"


def _app_of(placed: PlacedModel, settings: ServerSettings) -> Callable[[], FastAPI]:
    """Return what makes the server's application where a replica is."""

    def build() -> FastAPI:
        from manylabel.inference.server import create_app

        return create_app(placed.open_served(max_pixels=settings.max_pixels), settings)

    return build


@contextmanager
def _running(serve: ModuleType, application: object, http_options: dict[str, str | int]) -> Iterator[None]:
    """Run an application; Ray Serve is left as it was found."""
    was_there = bool(serve.status().proxies)
    try:
        try:
            serve.start(http_options=http_options, logging_config=QUIET)
            serve.run(application, name=APPLICATION, route_prefix="/")
        except RuntimeError as error:
            reason = str(error).strip().splitlines()[-1]
            raise ClusterError(f"the server does not start: {reason}; choose another port, or see Ray's log") from error
        yield
    finally:
        if was_there:
            serve.delete(APPLICATION)
        else:
            serve.shutdown()
