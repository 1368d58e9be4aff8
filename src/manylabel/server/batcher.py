"""`Batcher`: dynamic batching of single items in worker threads, fair between requests."""

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

Item = TypeVar("Item")
Result = TypeVar("Result")


class Batcher(Generic[Item, Result]):
    """Dynamic batching: a free worker takes all waiting items, up to the batch size.

    There is no batching delay: a lone item is processed at once, and others queue meanwhile. Waiting requests are
    served round-robin, one item each, so a large request hardly delays the others.

    Args:
        work: Function from a list of items to a list of results; runs in a thread.
        batch_size: Maximum number of items per batch.
        workers: Number of batches processed concurrently, each in its own thread.
        on_batch: Called with the size of every batch.

    Examples:
        >>> async def double() -> list[int]:
        ...     batcher = Batcher[int, int](lambda numbers: [2 * number for number in numbers])
        ...     batcher.start()
        ...     results = await asyncio.gather(*(batcher.submit(number) for number in (1, 2, 3)))
        ...     await batcher.close()
        ...     return results
        >>> asyncio.run(double())
        [2, 4, 6]
    """

    def __init__(
        self,
        work: Callable[[list[Item]], Sequence[Result]],
        *,
        batch_size: int = 16,
        workers: int = 1,
        on_batch: Callable[[int], None] | None = None,
    ) -> None:
        self.work = work
        self.batch_size = batch_size
        self.workers = workers
        self.on_batch = on_batch
        self._queue = _Turns[Item, Result]()
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def is_running(self) -> bool:
        """True while the workers run."""
        return bool(self._tasks)

    def start(self) -> None:
        """Start the workers; call it from the event loop."""
        self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="batcher")
        self._tasks = [asyncio.create_task(self._run()) for _ in range(self.workers)]

    async def close(self) -> None:
        """Finish submitted items, then stop."""
        await self._queue.join()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        self._threads.shutdown()

    async def submit(self, item: Item, *, request: object = None) -> Result:
        """Return the result to an item; cancelled items are skipped.

        Args:
            item: The item.
            request: Key for round-robin scheduling; items without one are scheduled together.
        """
        result: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self._queue.put_nowait((request, item, result))
        return await result

    async def _run(self) -> None:
        while True:
            batch = [await self._queue.get()]
            size = min(self.batch_size, math.ceil((self._queue.qsize() + 1) / self.workers))
            batch += [self._queue.get_nowait() for _ in range(size - 1)]
            wanted = [(item, result) for _, item, result in batch if not result.done()]
            if wanted:
                await self._process(wanted)
            for _ in batch:
                self._queue.task_done()
            del batch, wanted  # free the images while waiting for the next item

    async def _process(self, batch: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        items = [item for item, _ in batch]
        try:
            results = await asyncio.get_running_loop().run_in_executor(self._threads, self.work, items)
        except Exception as error:  # noqa: BLE001 - passed on to the callers; the worker continues
            for _, waiting in batch:
                if not waiting.done():
                    waiting.set_exception(error)
            items.clear()  # the error's traceback keeps this frame, and thus the images, alive
            batch.clear()
            return
        for (_, waiting), result in zip(batch, results, strict=True):
            if not waiting.done():
                waiting.set_result(result)
        if self.on_batch is not None:
            self.on_batch(len(batch))


class _Turns(asyncio.Queue[tuple[object, Item, "asyncio.Future[Result]"]], Generic[Item, Result]):
    """Round-robin queue: a request that was served moves to the end.

    Overrides the same methods of `asyncio.Queue` as asyncio's own `PriorityQueue`.
    """

    _queue: dict[object, deque[tuple[object, Item, asyncio.Future[Result]]]]

    def _init(self, maxsize: int) -> None:  # noqa: ARG002 - it has no limit
        self._queue = {}

    def _put(self, item: tuple[object, Item, asyncio.Future[Result]]) -> None:
        self._queue.setdefault(item[0], deque()).append(item)

    def _get(self) -> tuple[object, Item, asyncio.Future[Result]]:
        request, items = next(iter(self._queue.items()))
        del self._queue[request]
        first = items.popleft()
        if items:
            self._queue[request] = items
        return first

    def qsize(self) -> int:
        """Return the number of waiting items."""
        return sum(map(len, self._queue.values()))
