"""How far the pass of the pictures through a backbone is, how fast, and how long it takes yet."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["FeatureProgress", "Meter", "duration"]


@dataclass(frozen=True)
class FeatureProgress:
    """How far the pass is.

    Args:
        done: Views of pictures that have been through the backbone, those of earlier runs included.
        total: Views of pictures in all.
        pictures_per_second: Speed of this run; 0 until it can be told.
        seconds_left: At this speed; None until it can be told.
        num_bytes: What all of them take on disk.

    Examples:
        >>> print(FeatureProgress(done=400, total=1000, pictures_per_second=20.0, seconds_left=30.0, num_bytes=10**9))
        20 pictures/s, about 30 s left, 1.0 GB on disk in all
    """

    done: int
    total: int
    pictures_per_second: float
    seconds_left: float | None
    num_bytes: int

    def __str__(self) -> str:
        parts = [f"{self.num_bytes / 1e9:.1f} GB on disk in all"]
        if self.seconds_left is not None:
            parts = [f"{self.pictures_per_second:.0f} pictures/s", f"about {duration(self.seconds_left)} left", *parts]
        return ", ".join(parts)


class Meter:
    """Counts pictures and tells the speed.

    The first batch does not count for the speed: it waits until the backbone is exported and the workers have started.

    Args:
        total: Views of pictures in all.
        num_bytes: What all of them take on disk.
        report: Told after every batch.

    Examples:
        >>> meter = Meter(total=8, num_bytes=80, report=lambda progress: print(progress.done, progress.total))
        >>> meter.count(5)
        5 8
    """

    def __init__(self, *, total: int, num_bytes: int, report: Callable[[FeatureProgress], None] | None) -> None:
        self.total = total
        self.num_bytes = num_bytes
        self.report = report
        self.done = 0
        self._timed = 0
        self._start: float | None = None

    def count(self, pictures: int, *, timed: bool = False) -> None:
        """Add pictures that are done, and report.

        Args:
            pictures: How many.
            timed: Whether they were computed just now.
        """
        self.done += pictures
        if timed and self._start is not None:
            self._timed += pictures
        if timed and self._start is None:
            self._start = time.perf_counter()
        if self.report is None:
            return
        speed = 0.0 if self._start is None else self._timed / (time.perf_counter() - self._start)
        left = (self.total - self.done) / speed if speed else None
        self.report(FeatureProgress(self.done, self.total, speed, left, self.num_bytes))


def duration(seconds: float) -> str:
    """Write a time as people read it.

    Args:
        seconds: How many.

    Examples:
        >>> duration(9.4), duration(75), duration(7300)
        ('9 s', '1 min 15 s', '2 h 1 min')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3600} h {whole % 3600 // 60} min"
