"""How far a command is, on the standard error: a bar on a terminal, a line now and then in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["progress_bar"]

SECONDS_BETWEEN_LINES = 30  # in a log


@contextmanager
def progress_bar(doing: str) -> Iterator[Callable[[int, int], None]]:
    """Give what is to be told how many pictures are done, and of how many.

    Args:
        doing: What is done with them, such as "reading pictures".

    Examples:
        >>> with progress_bar("reading pictures") as progress:
        ...     progress(1, 2)
    """
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    if not console.is_terminal:
        yield _lines(console, doing)
        return
    words = TextColumn("{task.description}", markup=False)
    columns = (words, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(doing, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _lines(console: Console, doing: str) -> Callable[[int, int], None]:
    told = time.monotonic()

    def tell(done: int, total: int) -> None:
        nonlocal told
        if time.monotonic() >= told + SECONDS_BETWEEN_LINES:
            told = time.monotonic()
            console.print(f"{doing}: {done:,}/{total:,}", markup=False)

    return tell
