"""A server with several replicas of a model: Ray Serve spreads requests over them, and starts one anew that dies."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from manylabel.builtin import DEFAULT_MODEL
from manylabel.cluster import connected_to_ray
from manylabel.deploy.on_ray.placed_model import PlacedModel
from manylabel.deploy.opening import EngineName, shown_name
from manylabel.errors import ClusterError, ConfigError
from manylabel.extras import require

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
    labels: Sequence[str] | None = None,
    device: str | None = None,
    host: str = "127.0.0.1",
    port: int = 8000,
    replicas: int = 1,
    batch_size: int = 16,
    wait_seconds: float = 0.01,
    address: str | None = None,
) -> Iterator[str]:
    """Serve a model over HTTP until the end of the context.

    ``POST /v1/predict`` takes a form with files in the field ``pictures``, or one picture as the body
    (``Content-Type: image/jpeg``), and ``?top=K`` or ``?threshold=T``. Answers are those of `manylabel serve`; of its
    requests, only the form of pictures is taken, and there is no page.

    Args:
        model: As `open_engine` takes it; a folder must be there on every machine.
        engine: What to run the model with.
        labels: Other labels than its own, for models that can tell labels they have not seen.
        device: Where torch runs the model; ``"cuda"`` sets a GPU aside for each replica.
        host: Where to listen; on this machine alone unless you say otherwise. There is no key and no encryption.
        port: Where to listen. Ray Serve that runs already on a cluster stays at its own host and port.
        replicas: How many models work at the same time, each on a CPU or GPU.
        batch_size: Pictures that go through a model at once.
        wait_seconds: How long the first picture of a batch waits for others.
        address: That of a Ray cluster, such as ``"auto"``; Ray is started on this machine when left out.

    Yields:
        The address of the server.

    Raises:
        MissingExtraError: Ray is not installed.
        ConfigError: A setting is wrong.
        ModelFormatError: There is no such model.
        ClusterError: Ray cannot be had, or the replicas do not start.

    Examples:
        >>> with serve_with_ray("my-model", replicas=0) as url:
        ...     print(url)
        Traceback (most recent call last):
        manylabel.errors.ConfigError: replicas must be at least 1, got 0
    """
    if batch_size < 1 or wait_seconds < 0:
        raise ConfigError(f"batch_size must be at least 1 and wait_seconds 0, got {batch_size} and {wait_seconds}")
    placed = PlacedModel(model, engine=engine, labels=labels, device=device)
    placed.fit(replicas)
    for module in ("ray", "python_multipart"):
        require(module, extra="ray")
    placed.check()
    with connected_to_ray(address, advice=ADVICE) as ray:
        placed.fit(replicas, None if address else ray.cluster_resources())
        serve = require("ray.serve", extra="ray")
        from manylabel.deploy.on_ray.replica import Replica

        deployment = serve.deployment(
            Replica,
            num_replicas=replicas,
            ray_actor_options={"num_cpus": 1, "num_gpus": placed.num_gpus},
            max_ongoing_requests=2 * batch_size,  # one batch is computed while the next gathers
            max_queued_requests=MOST_WAITING,
            logging_config=QUIET,
        )
        application = deployment.bind(placed, shown_name(model), batch_size, wait_seconds)
        with _running(serve, application, {"host": host, "port": port}):
            yield f"http://{host}:{port}"


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
