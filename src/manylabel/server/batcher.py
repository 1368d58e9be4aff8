"""`Batcher`: single items in, batches through a worker thread, single answers out."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

__all__ = ["Batcher"]

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Batcher(Generic[Item, Answer]):
    """Works on items in batches: what waits when a worker becomes free goes together.

    Nothing is waited for: a lone item is worked on at once. While it is, others gather.

    Args:
        work: Turns a list of items into as many answers; it runs in a thread.
        batch_size: How many items go together at most.
        workers: How many batches are worked on at the same time, each in a thread of its own.
        on_batch: Told the size of every batch.

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
        self._queue: asyncio.Queue[tuple[Item, asyncio.Future[Answer]]] = asyncio.Queue()
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

    async def submit(self, item: Item) -> Answer:
        """Return the answer to an item; one that nobody waits for any more is not worked on."""
        answer: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((item, answer))
        return await answer

    async def _run(self) -> None:
        while True:
            batch = [await self._queue.get()]
            share = min(self.batch_size, math.ceil((self._queue.qsize() + 1) / self.workers))
            batch += [self._queue.get_nowait() for _ in range(share - 1)]
            wanted = [(item, answer) for item, answer in batch if not answer.done()]
            if wanted:
                await self._answer(wanted)
            for _ in batch:
                self._queue.task_done()

    async def _answer(self, batch: list[tuple[Item, asyncio.Future[Answer]]]) -> None:
        items = [item for item, _ in batch]
        try:
            answers = await asyncio.get_running_loop().run_in_executor(self._threads, self.work, items)
        except Exception as error:  # noqa: BLE001 - whoever asked is told, the worker goes on
            for _, waiting in batch:
                if not waiting.done():
                    waiting.set_exception(error)
            return
        for (_, waiting), answer in zip(batch, answers, strict=True):
            if not waiting.done():
                waiting.set_result(answer)
        if self.on_batch is not None:
            self.on_batch(len(batch))
