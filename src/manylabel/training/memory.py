"""Running out of memory, told in a sentence that helps."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from manylabel.errors import TrainingError

__all__ = ["explain_full_memory"]


@contextmanager
def explain_full_memory(*, batch_size: int, accumulate: int) -> Iterator[None]:
    """Turn an error of full memory, on any device, into one that says what to do.

    Args:
        batch_size: Pictures per step that did not fit.
        accumulate: Batches per optimizer step.

    Raises:
        TrainingError: Memory ran out inside the block.

    Examples:
        >>> with explain_full_memory(batch_size=64, accumulate=1):
        ...     raise MemoryError
        Traceback (most recent call last):
        manylabel.errors.TrainingError: memory ran out with batch_size 64; try batch_size 32 with accumulate 2, ...
    """
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _is_full_memory(error):
            raise
        smaller = max(batch_size // 2, 1)
        raise TrainingError(
            f"memory ran out with batch_size {batch_size}; try batch_size {smaller} with accumulate {2 * accumulate}, "
            "which trains alike, or a smaller image_size or head"
        ) from error


def _is_full_memory(error: Exception) -> bool:
    # On a CPU torch raises a plain RuntimeError with the allocator's name in it.
    known = isinstance(error, MemoryError | torch.OutOfMemoryError)
    return known or "DefaultCPUAllocator" in str(error) or "MPS backend out of memory" in str(error)
