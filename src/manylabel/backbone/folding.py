"""Batch-norm folded into the convolution before it: the same function with one pass less, for inference."""

from collections import Counter
from collections.abc import Callable

import torch
from timm.layers.conv2d_same import Conv2dSame
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

__all__ = ["fold_batch_norms"]

# Convolutions that use their weight as it is; one that standardises it first cannot take a norm in.
FOLDABLE = (nn.Conv2d, Conv2dSame)


def fold_batch_norms(model: nn.Module, images: Tensor) -> int:
    """Fold every batch-norm that directly follows a convolution into it, in place.

    What follows what is seen by running the model once, so this works for any model that can run.

    Args:
        model: A model in eval mode.
        images: Pictures to run it on, for instance one of zeros.

    Returns:
        How many norms were folded.

    Examples:
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval()
        >>> fold_batch_norms(model, torch.zeros(1, 3, 8, 8)), model[1]
        (1, Identity())
    """
    pairs = _find_pairs(model, images)
    names = {module: name for name, module in model.named_modules()}
    for convolution, norm in pairs:
        _replace(model, names[convolution], fuse_conv_bn_eval(convolution, norm))
        _replace(model, names[norm], norm.act if isinstance(norm, BatchNormAct2d) else nn.Identity())
    return len(pairs)


class _Reads(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves its hook for subclasses untyped
    """Counts how often each tensor is read, whoever reads it: a module or a plain sum."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.counts: Counter[int] = Counter()

    def __torch_dispatch__(
        self,
        operation: Callable[..., object],
        types: tuple[type, ...],
        args: tuple[object, ...] = (),
        kwargs: dict[str, object] | None = None,
    ) -> object:
        self.counts.update(id(value) for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor))
        return operation(*args, **(kwargs or {}))


def _find_pairs(model: nn.Module, images: Tensor) -> list[tuple[nn.Conv2d, nn.BatchNorm2d]]:
    """Run the model and see which norm is the only reader of what which convolution wrote, each of them used once."""
    reads = _Reads()
    calls: Counter[nn.Module] = Counter()
    written: dict[int, tuple[nn.Conv2d, Tensor]] = {}  # keeping the tensors keeps their identities apart
    candidates: list[tuple[nn.Conv2d, nn.BatchNorm2d, int]] = []

    def watch(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        calls[module] += 1
        if type(module) in FOLDABLE and isinstance(module, nn.Conv2d):
            written[id(output)] = (module, output)
            reads.counts[id(output)] = 0  # the identity may have been another tensor's before
        elif isinstance(module, nn.BatchNorm2d) and id(inputs[0]) in written:
            candidates.append((written[id(inputs[0])][0], module, id(inputs[0])))

    leaves = [module for module in model.modules() if isinstance(module, nn.Conv2d | nn.BatchNorm2d)]
    handles = [module.register_forward_hook(watch) for module in leaves]
    try:
        with torch.no_grad(), reads:
            model(images)
    finally:
        for handle in handles:
            handle.remove()
    return [
        (convolution, norm)
        for convolution, norm, output in candidates
        if calls[convolution] == calls[norm] == reads.counts[output] == 1
    ]


def _replace(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, module)
