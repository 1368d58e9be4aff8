"""Cost of a model: multiply-accumulates, parameters, time and memory.

MACs count matrix products and convolutions, including the two products of attention, but, as in the papers, no norms,
activations, softmax, pooling and other element-wise work. One MAC is one multiplication and one addition; the "FLOPs"
of a paper are usually MACs.
"""

import statistics
import time
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import FlopCounterMode

from manylabel.errors import ConfigError


@dataclass(frozen=True)
class Cost:
    """Cost of a model.

    Args:
        macs: Multiply-accumulates of one call.
        parameters: All parameters.
        trainable: Trainable parameters.
    """

    macs: int
    parameters: int
    trainable: int


def count_macs(model: nn.Module, *inputs: object) -> int:
    """Count the multiply-accumulates of one call of a model, in its current mode.

    The call runs on shapes alone (torch's meta device), so it is fast for any size and leaves the model unchanged.

    Args:
        model: Any model whose operations depend on shapes, not on values.
        *inputs: Its inputs: tensors, or lists and dictionaries of them.

    Returns:
        MACs of the whole batch.

    Examples:
        >>> count_macs(nn.Linear(10, 5), torch.zeros(2, 10))
        100
    """
    shapes = {name: tensor.to("meta") for name, tensor in model.state_dict(keep_vars=True).items()}
    shapes |= {name: tensor.to("meta") for name, tensor in model.named_buffers()}  # also those that are not saved
    meta_inputs = tree_map_only(Tensor, lambda tensor: tensor.to("meta"), inputs)
    # The counter sees the two products of plain attention, but not of fused.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        torch.func.functional_call(model, shapes, meta_inputs)
    return int(counter.get_total_flops()) // 2


def count_parameters(model: nn.Module, *, trainable_only: bool = False) -> int:
    """Count the parameters of a model, each shared one once.

    Args:
        model: Any model.
        trainable_only: Whether to count only trainable parameters.

    Examples:
        >>> count_parameters(nn.Linear(10, 5))
        55
    """
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad or not trainable_only)


def count_cost(model: nn.Module, *inputs: object) -> Cost:
    """Count MACs and parameters at once; see `count_macs`.

    Examples:
        >>> count_cost(nn.Linear(10, 5), torch.zeros(1, 10))
        Cost(macs=50, parameters=55, trainable=55)
    """
    return Cost(
        macs=count_macs(model, *inputs),
        parameters=count_parameters(model),
        trainable=count_parameters(model, trainable_only=True),
    )


def median_seconds(
    calls: Mapping[str, Callable[[], object]],
    *,
    rounds: int = 20,
    warmup: int = 2,
    clock: Callable[[], float] = time.perf_counter,
) -> dict[str, float]:
    """Time several calls, interleaved so that other load affects all alike; return the median of each.

    Args:
        calls: The calls, by name.
        rounds: Number of timed runs of each.
        warmup: Number of runs before that.
        clock: Returns seconds; `time.process_time` excludes other programs on a busy machine.

    Returns:
        Seconds, by name.

    Raises:
        ConfigError: There is nothing to time.

    Examples:
        >>> seconds = median_seconds({"short": lambda: sum(range(10)), "long": lambda: sum(range(100_000))}, rounds=3)
        >>> seconds["short"] < seconds["long"]
        True
    """
    if not calls or rounds < 1:
        raise ConfigError(f"timing needs at least one call and one round, got {len(calls)} calls and {rounds} rounds")
    seconds: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(warmup + rounds):
        for name, call in calls.items():
            start = clock()
            call()
            if turn >= warmup:
                seconds[name].append(clock() - start)
    return {name: statistics.median(times) for name, times in seconds.items()}


def peak_memory(call: Callable[[], object]) -> int:
    """Measure the peak memory of the tensors that a call allocates.

    Existing tensors (weights, inputs) do not count; tensors that autograd saves for backward do. Temporary memory
    inside a single operation is not counted.

    Args:
        call: The call.

    Returns:
        Bytes.

    Examples:
        >>> numbers = torch.zeros(1000)
        >>> peak_memory(lambda: (numbers + 1).exp().sum())  # two tensors of 4,000 bytes
        8000
    """
    tracker = _Tracker()
    with tracker:
        call()
    return tracker.peak


class _Tracker(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch's own lacks types
    """Tracks the allocation and release of tensor storages."""

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
        """Remember existing storages: a view of one allocates nothing."""
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key not in self.own and key not in self.foreign:
            self.foreign.add(key)
            weakref.finalize(storage, self.foreign.discard, key)  # its address may be reused

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
