"""How many cores there are to work with."""

import os

__all__ = ["available_cores"]


def available_cores() -> int:
    """Return how many cores this process may use; a container or a job often gives it fewer than there are.

    Examples:
        >>> available_cores() >= 1
        True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
