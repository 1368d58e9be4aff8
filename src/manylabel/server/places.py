"""`Places`: a bounded number of pictures that may be here at once."""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager

from manylabel.server.problems import ProblemError

__all__ = ["Places"]

_MEMORY = 0.8  # how much of the time so far is kept when a request is done
_LONGEST_ADVICE = 60  # seconds


class Places:
    """Counts what is accepted and not answered yet, and refuses what is too much.

    Args:
        most: How many places there are.

    Examples:
        >>> places = Places(2)
        >>> with places.reserve(2):
        ...     places.taken
        2
        >>> with places.reserve(3):
        ...     pass
        Traceback (most recent call last):
        manylabel.server.problems.ProblemError: (413, 'too_many', ...
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0
        self.seconds = 0.0  # how long a request keeps its places

    @contextmanager
    def reserve(self, count: int) -> Iterator[None]:
        """Keep places while a request is answered.

        Args:
            count: How many.

        Raises:
            ProblemError: There are not so many at all, or not now; then it says when to come again.
        """
        if count > self.most:
            raise ProblemError(413, "too_many", f"this server takes {self.most} pictures at once, got {count}")
        if self.taken + count > self.most:
            seconds = min(max(1, math.ceil(self.seconds)), _LONGEST_ADVICE)
            words = f"{self.taken} of {self.most} places are taken and this needs {count}; try again in {seconds} s"
            raise ProblemError(429, "busy", words, headers={"Retry-After": str(seconds)})
        self.taken += count
        start = time.perf_counter()
        try:
            yield
        finally:
            self.taken -= count
            self.seconds = _MEMORY * self.seconds + (1 - _MEMORY) * (time.perf_counter() - start)
