"""Output to a terminal, and progress display: a bar, or in a log a line at least every ten seconds.

Lines come from a thread as well, so that a single long step, such as an export or a slow batch, is not silent.
"""

import re
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import ClassVar, Self

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.segment import Segment

SECONDS_BETWEEN_LINES = 10  # in a log
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


class SafeConsole(Console):
    r"""Console that prints names and labels of any content as they are.

    Codes such as ``:x:`` do not become emoji, and control characters, which could steer the terminal, become U+FFFD.

    Args:
        stderr: Whether to print to standard error.
        soft_wrap: Whether to leave long lines to the terminal.

    Examples:
        >>> SafeConsole().print("root:x:0 \x1b[31mred")
        root:x:0 \ufffd[31mred
    """

    def __init__(self, *, stderr: bool = False, soft_wrap: bool = False) -> None:
        super().__init__(stderr=stderr, soft_wrap=soft_wrap, highlight=False, emoji=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Yield the segments of something to print, without control characters in their text."""
        for text, style, control in super().render(renderable, options):
            yield Segment(text if control else _CONTROL.sub("\ufffd", text), style, control)


class ProgressBar:
    """Progress bar from the first `update` to `stop`; as a context manager, from beginning to end.

    Bars may be nested. In a log, the innermost one prints.

    Args:
        doing: Description of the work, such as "reading images".
        console: Console to draw on (default: standard error).
        keep: Whether to leave the complete bar on the terminal at the end.

    Examples:
        >>> with ProgressBar("reading images") as bar:
        ...     bar.update(1, 2)
    """

    _open: ClassVar[list[Self]] = []  # outermost first
    _told: ClassVar[float] = 0.0  # time of the last line of any bar

    def __init__(self, doing: str, *, console: Console | None = None, keep: bool = False) -> None:
        self.doing = doing
        self.console = console or SafeConsole(stderr=True, soft_wrap=True)
        self.keep = keep
        self._bar: Progress | None = None
        self._start = 0.0
        self._first: int | None = None
        self._latest: tuple[int, int | None, str] = (0, None, "")
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the clock, and lines in a log."""
        self._start, self._first = time.monotonic(), None
        ProgressBar._open.append(self)
        if len(ProgressBar._open) == 1:
            ProgressBar._told = self._start
            self._ended.clear()
            self._thread = threading.Thread(target=self._repeat, daemon=True)
            self._thread.start()

    def update(self, done: int, total: int | None, note: str = "", *, doing: str | None = None) -> None:
        """Update the progress.

        Args:
            done: Number of items done.
            total: Total number of items, if known.
            note: Additional text, such as a loss.
            doing: New description of the work (default: unchanged).
        """
        if not self.is_open:
            self.start()
        self.doing = doing or self.doing
        if done < self._latest[0]:  # another pass, with a rate of its own
            self._start, self._first = time.monotonic(), None
        self._latest = done, total, note
        self._first = done if self._first is None else self._first
        if not self.is_drawn:
            self._line()
            return
        if self._bar is None:
            columns = (
                TextColumn("{task.description}", markup=False),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("{task.fields[note]}", markup=False),
                TimeRemainingColumn(),
            )
            self._bar = Progress(*columns, console=self.console, transient=not self.keep)
            self._bar.add_task(self.doing, total=total, note=note)
            self._bar.start()
        self._bar.update(self._bar.task_ids[0], completed=done, total=total, note=note, description=self.doing)

    @property
    def is_open(self) -> bool:
        """True from `start` to `stop`."""
        return self in ProgressBar._open

    @property
    def is_drawn(self) -> bool:
        """True if a bar is drawn: in a terminal, or in a notebook with ipywidgets."""
        return self.console.is_terminal or (self.console.is_jupyter and find_spec("ipywidgets") is not None)

    def stop(self) -> None:
        """Stop the bar, and inner ones that an error left open; another `update` starts a new one."""
        if not self.is_open:
            return
        for bar in reversed(ProgressBar._open[ProgressBar._open.index(self) :]):
            bar._end()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _end(self) -> None:
        if self._thread is not None:
            self._ended.set()
            self._thread.join()
            self._thread = None
        ProgressBar._open.remove(self)
        if self._bar is not None:
            self._bar.stop()
            self._bar = None

    def _repeat(self) -> None:
        """Print lines of the innermost bar; the outermost one does so for all."""
        while not self._ended.wait(ProgressBar._told + SECONDS_BETWEEN_LINES - time.monotonic()):
            ProgressBar._open[-1]._line()

    def _line(self) -> None:
        now, (done, total, note) = time.monotonic(), self._latest
        if now < ProgressBar._told + SECONDS_BETWEEN_LINES:
            return
        ProgressBar._told = now
        if self.is_drawn:
            return
        elapsed, moved = now - self._start, done - (self._first or 0)
        left = f"about {duration(elapsed * (total - done) / moved)} left" if total and moved else duration(elapsed)
        reached = "" if self._first is None else f"{done:,}" if total is None else f"{done:,}/{total:,}"
        words = "  ".join(filter(None, [reached, note, left]))
        self.console.print(f"{self.doing}: {words}", markup=False, highlight=False, soft_wrap=True)


@contextmanager
def working(doing: str) -> Iterator[None]:
    """Show that work of unknown length is in progress: a spinner on a terminal, otherwise a line every ten seconds.

    Args:
        doing: Description of the work, such as "exporting the model".

    Examples:
        >>> with working("exporting the model"):
        ...     pass
    """
    with ProgressBar(doing) as bar, bar.console.status(escape(f"{doing} ...")):
        yield


def duration(seconds: float) -> str:
    """Format a duration for people.

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
