"""`Batcher`: single items in, batches through worker threads, single answers out; requests take turns."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

__all__ = ["Batcher"]

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Batcher(Generic[Item, Answer]):
    """Works on items in batches: what waits when a worker becomes free goes together.

    Nothing is waited for: a lone item is worked on at once, and others gather meanwhile. Requests that wait take turns,
    one item each, so that a request of many items delays others by little.

    Args:
        work: Turns a list of items into as many answers; it runs in a thread.
        batch_size: Most items that go together.
        workers: Batches that are worked on at the same time, each in a thread of its own.
        on_batch: Called with the size of every batch.

    Examples:
        >>> async def double() -> list[int]:
        ...     batcher = Batcher[int, int](lambda numbers: [2 * number for number in numbers])
        ...     batcher.start()
        ...     answers = await asyncio.gather(*(batcher.submit(number) for number in (1, 2, 3)))
        ...     await batcher.close()
        ...     return answers
        >>> asyncio.run(double())
        [2, 4, 6]
    """

    def __init__(
        self,
        work: Callable[[list[Item]], Sequence[Answer]],
        *,
        batch_size: int = 16,
        workers: int = 1,
        on_batch: Callable[[int], None] | None = None,
    ) -> None:
        self.work = work
        self.batch_size = batch_size
        self.workers = workers
        self.on_batch = on_batch
        self._queue = _Turns[Item, Answer]()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_running(self) -> bool:
        """Whether items are worked on."""
        return bool(self._tasks)

    def start(self) -> None:
        """Begin to work; call it from the event loop."""
        self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="batcher")
        self._tasks = [asyncio.create_task(self._run()) for _ in range(self.workers)]

    async def close(self) -> None:
        """Finish what was submitted, then stop."""
        await self._queue.join()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        self._threads.shutdown()

    async def submit(self, item: Item, *, request: object = None) -> Answer:
        """Return the answer to an item; one that nobody waits for any more is not worked on.

        Args:
            item: The item.
            request: What takes turns with others; items without one share their turns.
        """
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((request, item, answer))
        return await answer

    async def _run(self) -> None:
        while True:
            batch = [await self._queue.get()]
            size = min(self.batch_size, math.ceil((self._queue.qsize() + 1) / self.workers))
            batch += [self._queue.get_nowait() for _ in range(size - 1)]
            wanted = [(item, answer) for _, item, answer in batch if not answer.done()]
            if wanted:
                await self._answer(wanted)
            for _ in batch:
                self._queue.task_done()
            del batch, wanted  # while this waits for the next item, it keeps no image alive

    async def _answer(self, batch: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        items = [item for item, _ in batch]
        try:
            answers = await asyncio.get_running_loop().run_in_executor(self._threads, self.work, items)
        except Exception as error:  # noqa: BLE001 - whoever asked is told, the worker goes on
            for _, waiting in batch:
                if not waiting.done():
                    waiting.set_exception(error)
            items.clear()  # the error's traceback keeps frames alive, which must not keep images
            batch.clear()
            return
        for (_, waiting), answer in zip(batch, answers, strict=True):
            if not waiting.done():
                waiting.set_result(answer)
        if self.on_batch is not None:
            self.on_batch(len(batch))


class _Turns(asyncio.Queue[tuple[object, Item, "asyncio.Future[Answer]"]], Generic[Item, Answer]):
    """A queue whose requests take turns: whoever was served goes to the end of the line.

    asyncio's queues are made to be changed by these methods; its own priority queue is.
    """

    _queue: dict[object, deque[tuple[object, Item, asyncio.Future[Answer]]]]

    def _init(self, maxsize: int) -> None:  # noqa: ARG002 - it has no limit
        self._queue = {}

    def _put(self, item: tuple[object, Item, asyncio.Future[Answer]]) -> None:
        self._queue.setdefault(item[0], deque()).append(item)

    def _get(self) -> tuple[object, Item, asyncio.Future[Answer]]:
        request, items = next(iter(self._queue.items()))
        del self._queue[request]
        first = items.popleft()
        if items:
            self._queue[request] = items
        return first

    def qsize(self) -> int:
        """Return how many items wait."""
        return sum(map(len, self._queue.values()))
