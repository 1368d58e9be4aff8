"""Ray, for work on more than one machine: reached or started when it is needed, and left as it was found."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

from manylabel.errors import ClusterError
from manylabel.system import require

__all__ = ["connected_to_ray"]

logger = logging.getLogger(__name__)

LOCAL_ATTEMPTS = 3  # Ray gives its own processes 15 seconds to start, too few on a busy machine whose disk is cold


@contextmanager
def connected_to_ray(
    address: str | None = None, *, num_cpus: int | None = None, advice: str = "try again"
) -> Iterator[ModuleType]:
    """Connect to Ray, or start it on this machine; what was started is stopped in the end.

    Args:
        address: That of a cluster; None starts Ray on this machine alone. Ray that runs already in this process is used
            as it is.
        num_cpus: CPUs that Ray on this machine may give away; all when left out.
        advice: What to do when Ray cannot be had, in the words of whoever needs it.

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
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing leaves the machine unasked
    with _own_signals():
        try:
            _start(ray, address, num_cpus, advice)
            yield ray
        finally:
            ray.shutdown()


def _start(ray: ModuleType, address: str | None, num_cpus: int | None, advice: str) -> None:
    local = {"include_dashboard": False, "num_cpus": num_cpus} if address is None else {}
    with _own_path():
        for attempts_left in reversed(range(1 if address else LOCAL_ATTEMPTS)):
            try:
                ray.init(address=address, log_to_driver=False, configure_logging=False, **local)
                return
            except Exception as error:  # a plain one, where a busy machine takes too long
                if attempts_left:
                    logger.info("Ray did not start in time, and is started again: %s", error)
                    continue
                where = "be started on this machine" if address is None else f"be reached at {address}"
                raise ClusterError(f"Ray cannot {where} ({error}); {advice}") from error


@contextmanager
def _own_signals() -> Iterator[None]:
    """Give back what SIGTERM does, which Ray changes for good; only the main thread can, and Ray does so only there."""
    before = signal.getsignal(signal.SIGTERM)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, before)


@contextmanager
def _own_path() -> Iterator[None]:
    """Let processes that are started here import what this one can: Ray hands on the environment, not ``sys.path``."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    try:
        yield
    finally:
        os.environ.pop("PYTHONPATH")
        os.environ.update({} if before is None else {"PYTHONPATH": before})
