"""Parallel work on a Ray cluster, or on a local Ray that is stopped afterwards."""

import logging
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any, Generic, TypeVar

from manylabel.errors import ClusterError, ConfigError
from manylabel.system import require

logger = logging.getLogger(__name__)

LOCAL_ATTEMPTS = 3  # Ray allows its processes 15 seconds to start, too few on a busy machine with a cold disk
RESTARTS = 2  # of an actor that dies; its item is retried
ITEMS_AHEAD = 2  # per actor
POLL_SECONDS = 0.5  # largest delay in noticing a signal
SECONDS_TO_SAVE = 60

Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def connected_to_ray(
    address: str | None = None, *, num_cpus: int | None = None, advice: str = "try again"
) -> Iterator[ModuleType]:
    """Connect to Ray, or start it on this machine; a connection that exists in this process is reused.

    Args:
        address: Address of a cluster (default: start Ray on this machine, and stop it afterwards).
        num_cpus: CPUs that a local Ray may use (default: all).
        advice: End of the error message if Ray is not available.

    Yields:
        The module ``ray``.

    Raises:
        MissingExtraError: Ray is not installed.
        ClusterError: Ray cannot be started or reached.
    """
    ray = require("ray", extra="ray")
    if ray.is_initialized():
        yield ray
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no telemetry without consent
    with _own_signals():
        try:
            _start(ray, address, num_cpus, advice)
            yield ray
        finally:
            ray.shutdown()


def map_on_ray(
    build: Callable[[], Callable[[Item], Result]],
    items: Iterable[Item],
    *,
    replicas: int | None = None,
    gpus: int = 0,
    address: str | None = None,
    advice: str = "try again",
) -> Iterator[Result]:
    """Map items over actors that each build a function once; yield results in the order of the items.

    Args:
        build: Called in each actor; returns the function to apply to items.
        items: The items; consumed lazily, a few ahead.
        replicas: Number of actors (default: one per GPU if they need one, else one per CPU).
        gpus: GPUs per actor.
        address: Address of a cluster (default: start Ray on this machine).
        advice: End of the error message, with what to do.

    Raises:
        MissingExtraError: Ray is not installed.
        ConfigError: There are more replicas than CPUs or GPUs on this machine.
        ClusterError: Ray is not available, or its actors fail.
    """
    with connected_to_ray(address, advice=advice) as ray:
        kind = "GPU" if gpus else "CPU"
        room = int(ray.cluster_resources().get(kind, 0))
        if replicas is not None and replicas > room and address is None:  # a cluster may grow on demand
            raise ConfigError(f"replicas must be at most {room}, one for each {kind}, got {replicas}")
        count = replicas or room or 1
        start = ray.remote(num_cpus=1, num_gpus=gpus, max_restarts=RESTARTS, max_task_retries=RESTARTS)(_Actor).remote
        actors: list[Any] = []
        pending: deque[Any] = deque()
        try:
            for number, item in enumerate(items):
                if number < count:
                    actors.append(start(build))
                pending.append(actors[number % count].call.remote(item))
                if len(pending) > ITEMS_AHEAD * count:
                    yield ray.get(pending.popleft())
            while pending:
                yield ray.get(pending.popleft())
        except ray.exceptions.RayError as error:
            raise ClusterError(f"work on Ray failed: {_last_line(error)}; {advice}") from error
        finally:
            for actor in actors:
                ray.kill(actor)


def run_on_ray(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    *,
    cpus: float = 1,
    gpus: float = 0,
    is_stopped: Callable[[], bool] = lambda: False,
) -> Iterator[tuple[Item, Result | ClusterError]]:
    """Call a function with each item as a Ray task, over an existing connection; yield items as they finish.

    Args:
        function: The function.
        items: The items.
        cpus: CPUs per task.
        gpus: GPUs per task.
        is_stopped: Polled twice a second; once true, tasks get a `KeyboardInterrupt` and a minute to save.

    Yields:
        Each item, with its result or error.
    """
    ray = require("ray", extra="ray")
    shared = ray.put(function)  # once, not with each item
    task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(_call)
    running = {task.remote(shared, item): item for item in items}
    while running and not is_stopped():
        for reference in ray.wait(list(running), timeout=POLL_SECONDS)[0]:
            try:
                result = ray.get(reference)
            except ray.exceptions.RayError as error:
                result = ClusterError(_last_line(error))
            yield running.pop(reference), result
    for reference in running:
        ray.cancel(reference)
    if running:
        ray.wait(list(running), num_returns=len(running), timeout=SECONDS_TO_SAVE)


class _Actor(Generic[Item, Result]):
    """A function in a Ray process."""

    def __init__(self, build: Callable[[], Callable[[Item], Result]]) -> None:
        self.function = build()

    def call(self, item: Item) -> Result:
        return self.function(item)


def _call(function: Callable[[Item], Result], item: Item) -> Result:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # inherited from a shell's background job; Ray cancels by it
        signal.signal(signal.SIGINT, signal.default_int_handler)
    return function(item)


def _last_line(error: Exception) -> str:
    return str(error).strip().splitlines()[-1]


def _start(ray: ModuleType, address: str | None, num_cpus: int | None, advice: str) -> None:
    local = {"include_dashboard": False, "num_cpus": num_cpus} if address is None else {}
    with _own_path():
        for attempts_left in reversed(range(1 if address else LOCAL_ATTEMPTS)):
            try:
                ray.init(address=address, log_to_driver=False, configure_logging=False, **local)
                return
            except Exception as error:  # a plain Exception on a timeout
                if attempts_left:
                    logger.info("Ray did not start in time, retrying: %s", error)
                    continue
                where = "be started on this machine" if address is None else f"be reached at {address}"
                raise ClusterError(f"Ray cannot {where} ({error}); {advice}") from error


@contextmanager
def _own_signals() -> Iterator[None]:
    """Restore the SIGTERM handler, which Ray replaces in the main thread."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


@contextmanager
def _own_path() -> Iterator[None]:
    """Let Ray processes import what this one can: Ray passes on the environment, but not ``sys.path``."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    try:
        yield
    finally:
        os.environ.pop("PYTHONPATH")
        os.environ.update({} if before is None else {"PYTHONPATH": before})
