"""Batches: what comes together goes together, in order, and one failure is not everybody's."""

import asyncio
import threading
import time

import pytest

from manylabel.server.batcher import Batcher


def run(items, *, seconds=0.02, **settings):
    """Return the answers, the batches and how long it took."""
    batches = []

    def work(numbers):
        batches.append(list(numbers))
        time.sleep(seconds)
        return [10 * number for number in numbers]

    async def main():
        batcher = Batcher(work, **settings)
        batcher.start()
        answers = await asyncio.gather(*map(batcher.submit, items))
        await batcher.close()
        return answers

    start = time.perf_counter()
    return asyncio.run(main()), batches, time.perf_counter() - start


def test_items_that_wait_go_together_and_get_their_own_answers():
    answers, batches, _ = run(range(20), batch_size=8)
    assert answers == [10 * number for number in range(20)]
    assert [number for batch in batches for number in batch] == list(range(20))
    assert [len(batch) for batch in batches] == [8, 8, 4]


def test_a_lone_item_does_not_wait_for_others():
    tries = [run([1], seconds=0) for _ in range(5)]
    assert all(batches == [[1]] for _, batches, _ in tries)
    assert min(seconds for _, _, seconds in tries) < 1  # the quickest: a busy machine may hold up any one


def test_several_workers_share_what_waits():
    _, batches, _ = run(range(8), batch_size=8, workers=2)
    assert sorted(map(len, batches)) == [1, 3, 4] or max(map(len, batches)) <= 4
    assert sum(map(len, batches)) == 8


def test_sizes_of_batches_are_told():
    sizes = []
    _, batches, _ = run(range(5), batch_size=2, on_batch=sizes.append)
    assert sizes == [len(batch) for batch in batches]


def test_a_failure_is_told_to_its_batch_and_the_next_one_is_answered():
    def work(numbers):
        if 0 in numbers:
            raise RuntimeError("zero")
        return numbers

    async def main():
        batcher = Batcher(work, batch_size=1)
        batcher.start()
        results = await asyncio.gather(*map(batcher.submit, (0, 1)), return_exceptions=True)
        await batcher.close()
        return results

    failed, fine = asyncio.run(main())
    assert str(failed) == "zero"
    assert fine == 1


def test_what_nobody_waits_for_is_not_worked_on():
    seen, gate = [], threading.Event()

    def work(numbers):
        gate.wait(10)
        seen.extend(numbers)
        return numbers

    async def main():
        batcher = Batcher(work, batch_size=1)
        batcher.start()
        first, second, third = (asyncio.ensure_future(batcher.submit(number)) for number in (1, 2, 3))
        await asyncio.sleep(0.05)
        second.cancel()
        await asyncio.sleep(0)
        gate.set()
        await batcher.close()
        return await first, await third

    assert asyncio.run(main()) == (1, 3)
    assert seen == [1, 3]


def test_closing_finishes_what_was_submitted():
    async def main():
        batcher = Batcher(lambda numbers: (time.sleep(0.02), numbers)[1], batch_size=1)
        batcher.start()
        waiting = [asyncio.ensure_future(batcher.submit(number)) for number in range(5)]
        await asyncio.sleep(0)
        await batcher.close()
        assert not batcher.is_running
        return [task.result() for task in waiting]

    assert asyncio.run(main()) == list(range(5))


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.slow
def test_as_many_batches_at_once_as_workers_and_never_more(workers):
    running, most, lock = 0, 0, threading.Lock()
    all_at_work = threading.Barrier(workers)

    def work(numbers):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        all_at_work.wait(20)
        time.sleep(0.02)  # one more would show now
        with lock:
            running -= 1
        return numbers

    async def main():
        batcher = Batcher(work, batch_size=1, workers=workers)
        batcher.start()
        await asyncio.gather(*map(batcher.submit, range(9)))
        await batcher.close()

    asyncio.run(main())
    assert most == workers
