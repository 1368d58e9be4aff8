"""Multiply-accumulates and parameters of any model, counted without computing anything.

What is counted: every matrix product and convolution, the two products of an attention among them. What is not:
norms, activations, softmax, pooling and other element-wise work, which the papers leave out too. One MAC is one
multiplication and one addition; where a paper says "FLOPs", it usually means MACs.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_map_only
from torch.utils.flop_counter import FlopCounterMode

__all__ = ["Cost", "count_cost", "count_macs", "count_parameters"]


@dataclass(frozen=True)
class Cost:
    """What a model costs.

    Args:
        macs: Multiply-accumulates of one call.
        parameters: All parameters.
        trainable: Those that are trained.
    """

    macs: int
    parameters: int
    trainable: int


def count_macs(model: nn.Module, *inputs: object) -> int:
    """Count the multiply-accumulates of one call of a model, in the mode (training or not) it is in.

    The call runs on shapes alone (torch's meta device): the model stays as and where it is, and size costs no time.

    Args:
        model: Any model whose work depends on shapes only, not on values.
        *inputs: What to call it with: tensors, or lists and dictionaries of them.

    Returns:
        MACs of the whole batch given.

    Examples:
        >>> count_macs(nn.Linear(10, 5), torch.zeros(2, 10))
        100
    """
    shapes = {name: tensor.to("meta") for name, tensor in model.state_dict(keep_vars=True).items()}
    shapes |= {name: tensor.to("meta") for name, tensor in model.named_buffers()}  # those that are not saved, too
    meta_inputs = tree_map_only(Tensor, lambda tensor: tensor.to("meta"), inputs)
    # Fused attention hides its two products from the counter; the plain one shows them.
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        torch.func.functional_call(model, shapes, meta_inputs)
    return int(counter.get_total_flops()) // 2


def count_parameters(model: nn.Module, *, trainable_only: bool = False) -> int:
    """Count the parameters of a model, each shared one once.

    Args:
        model: Any model.
        trainable_only: Whether to leave out frozen ones.

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
