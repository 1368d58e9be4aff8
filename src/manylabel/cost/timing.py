"""Time of calls beside each other: interleaved, so that what else the machine does hits all of them alike."""

import statistics
import time
from collections.abc import Callable, Mapping

from manylabel.errors import ConfigError

__all__ = ["median_seconds"]


def median_seconds(
    calls: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 20,
    warmup: int = 2,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Time several calls by turns and return the median of each.

    Args:
        calls: What to run, by name.
        rounds: How often each is timed.
        warmup: How often each is run before that.
        clock: Gives seconds; `time.process_time` leaves out what other programs take from a busy machine.

    Returns:
        Seconds, by name.

    Raises:
        ConfigError: There is nothing to time.

    Example:
        >>> seconds = median_seconds({"short": lambda: sum(range(10)), "long": lambda: sum(range(100_000))}, rounds=3)
        >>> seconds["short"] < seconds["long"]
        True
    """
    if not calls or rounds < 1:
        raise ConfigError(f"timing needs at least one call and one round, got {len(calls)} calls and {rounds} rounds")
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(warmup + rounds):
        for name, call in calls.items():
            start = clock()
            call()
            if turn >= warmup:
                seconds[name].append(clock() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}
