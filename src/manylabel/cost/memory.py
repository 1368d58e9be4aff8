"""Peak memory of a call: what its tensors take at the worst moment, on any device."""

import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

__all__ = ["peak_memory"]


def peak_memory(call: Callable[[], object]) -> int:
    """Measure the bytes of all tensors that a call makes and holds at its worst moment.

    What was there before (weights, inputs) does not count; what autograd saves for backward does. Memory that a single
    operation takes and frees inside itself is not seen.

    Args:
        call: What to run.

    Returns:
        Bytes.

    Examples:
        >>> import torch
        >>> numbers = torch.zeros(1000)
        >>> peak_memory(lambda: (numbers + 1).exp().sum())  # two of 4,000 bytes at once
        8000
    """
    tracker = _Tracker()
    with tracker:
        call()
    return tracker.peak


class _Tracker(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch's own lacks types
    """Sees every tensor that is made, and when its storage is freed."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call] # torch's own lacks types
        self.live = 0
        self.peak = 0
        self.own: set[int] = set()
        self.foreign: set[int] = set()

    def __torch_dispatch__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> object:
        tree_map_only(Tensor, self._meet, (args, kwargs or {}))
        result = func(*args, **(kwargs or {}))
        tree_map_only(Tensor, self._adopt, result)
        return result

    def _meet(self, tensor: Tensor) -> None:
        """Remember storages that were there before: a view of one is nothing new."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self.own and key not in self.foreign:
            self.foreign.add(key)
            weakref.finalize(storage, self.foreign.discard, key)  # its address may be given to a new one

    def _adopt(self, tensor: Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, storage.nbytes()
        if key in self.own or key in self.foreign:
            return
        self.own.add(key)
        self.live += size
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._release, key, size)

    def _release(self, key: int, size: int) -> None:
        self.own.discard(key)
        self.live -= size
