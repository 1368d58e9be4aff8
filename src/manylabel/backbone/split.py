"""Two parts of a backbone: a frozen bottom, whose output is cached, and a top that is trained on it.

The model's own code runs in both parts. Each part is a copy of the model in which the modules of the other part are
placeholders: they hold no parameters, compute nothing and return zeros of the shape that the code behind them expects.

Letters in shape comments: B images, C channels, H and W pixels of an image or positions of a map, N tokens.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, Self, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import FlopCounterMode

from manylabel.backbone.blueprint import Layout, TimmModel, on_meta, set_mode, stage_maps

__all__ = [
    "Call",
    "Cut",
    "Tap",
    "Top",
    "bottom_model",
    "from_cache",
    "shallow_copy",
    "to_cache",
    "top_model",
    "trace_calls",
    "without_rest",
]


Module = TypeVar("Module", bound=nn.Module)


@dataclass(frozen=True)
class Cut:
    """A stage after which a backbone can be cut.

    Args:
        stage: Number of the stage.
        name: Module of the model that ends there.
        shape: Shape of the cached features per image: ``(C, H, W)``, or ``(C, N, 1)`` for tokens.
        top_macs: Fraction of the backbone's multiply-accumulates that the top takes.
    """

    stage: int
    name: str
    shape: tuple[int, int, int]
    top_macs: float

    @property
    def num_bytes(self) -> int:
        """Bytes per image in half precision, as the feature cache stores them."""
        return 2 * prod(self.shape)


@dataclass(frozen=True)
class Call:
    """A call of a module, seen in one run of a model.

    Args:
        start: Time at which it began, in calls and returns.
        end: Time at which it returned.
        output: Its result, on the meta device.
        flops: Floating-point operations of the run up to `end`.
    """

    start: int
    end: int
    output: Any
    flops: int


def trace_calls(
    model: nn.Module, run: Callable[[TimmModel, Tensor], object], *, size: tuple[int, int]
) -> tuple[dict[str, list[Call]], int]:
    """Run a copy of a model on the meta device, and return the calls of its modules by path, and the flops of the run.

    Args:
        model: The model.
        run: Runs a model on images.
        size: Height and width of the images.
    """
    model = on_meta(model).requires_grad_(False)  # the counter fails on parameters among a module's inputs
    calls: dict[str, list[Call]] = {}
    clock, started = itertools.count(), []

    def enter(_module: nn.Module, _inputs: object) -> None:
        started.append(next(clock))

    def leave(path: str) -> Callable[[nn.Module, object, object], None]:
        def hook(_module: nn.Module, _inputs: object, output: object) -> None:
            call = Call(started.pop(), next(clock), output, int(counter.get_total_flops()))
            calls.setdefault(path, []).append(call)

        return hook

    for path, module in model.named_modules():
        module.register_forward_pre_hook(enter)
        module.register_forward_hook(leave(path))
    # fused attention hides its two products from the counter
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        run(model, torch.empty(2, 3, *size, device="meta"))
    return calls, int(counter.get_total_flops())


def top_model(model: TimmModel, calls: Mapping[str, list[Call]], cut: str) -> TimmModel:
    """Return a copy of a model in which placeholders stand for everything before a module's end.

    Modules that run after it are shared with the model. The placeholder of the module itself returns the features that
    ``forward.features`` holds.
    """
    end = calls[cut][0].end
    before = [path for path, seen in calls.items() if seen[-1].end < end and not _contains(cut, path)]
    return _with_placeholders(model, {path: _Zeros(calls[path][0].output) for path in before} | {cut: _Given()})


def bottom_model(model: TimmModel, calls: Mapping[str, list[Call]], cut: str) -> TimmModel:
    """Return a frozen copy of a model that runs only up to the end of a module."""
    return copy.deepcopy(without_rest(model, calls, cut)).requires_grad_(False)


def without_rest(model: nn.Module, calls: Mapping[str, list[Call]], last: str) -> TimmModel:
    """Return a copy of a model in which placeholders stand for everything that runs after a module, others shared."""
    end = calls[last][-1].end
    after = [path for path, seen in calls.items() if seen[0].start > end]
    return _with_placeholders(model, {path: _Zeros(calls[path][0].output) for path in after})


def to_cache(features: Tensor, layout: Layout) -> Tensor:
    """Return the features of a module as ``[B, C, H, W]``, tokens ``[B, N, C]`` as ``[B, C, N, 1]``.

    Examples:
        >>> to_cache(torch.zeros(2, 197, 64), "tokens").shape
        torch.Size([2, 64, 197, 1])
    """
    if layout == "tokens":
        return features.transpose(1, 2).unsqueeze(3)
    return features.permute(0, 3, 1, 2) if layout == "NHWC" else features


def from_cache(features: Tensor, layout: Layout) -> Tensor:
    """Undo `to_cache`.

    Examples:
        >>> from_cache(torch.zeros(2, 64, 197, 1), "tokens").shape
        torch.Size([2, 197, 64])
    """
    if layout == "tokens":
        return features.squeeze(3).transpose(1, 2)
    return features.permute(0, 2, 3, 1) if layout == "NHWC" else features


class Tap:
    """Forward hook of the module at the cut, which holds its output for the bottom.

    Args:
        layout: Layout of the output.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self._output: list[Tensor] = []

    def __call__(self, _module: nn.Module, _inputs: object, output: Tensor) -> None:
        """Remember the output."""
        self._output[:] = [output]

    def take(self) -> Tensor:
        """Return the output of the last run as ``[B, C, H, W]``."""
        return to_cache(self._output.pop(), self.layout)


class Top(nn.Module):
    """The part of a backbone above a cut: cached features in, the backbone's feature maps out.

    It shares its modules with the backbone, so training the top trains the backbone, and nothing has to be copied back.
    Its batch norms stay in eval mode when it is trained, unless `keep_statistics` is called with False: the bottom's
    output was computed with fixed statistics, too.

    Made by `Backbone.split`.

    Args:
        model: The model, with placeholders below the cut; see `top_model`.
        cut: Path of the module after which it was cut.
        entries: Positions in timm's list of features of the maps to return, -1 for the final one.
        final_layout: Layout of the model's final features.
        layout: Layout of the features at the cut.
        shape: Shape of the features that it takes, per image.
        size: Height and width of the images that the features belong to.
        num_prefix_tokens: Number of class and register tokens among the tokens at the cut.
    """

    def __init__(
        self,
        model: TimmModel,
        *,
        cut: str,
        entries: Sequence[int],
        final_layout: Layout,
        layout: Layout,
        shape: tuple[int, int, int],
        size: tuple[int, int],
        num_prefix_tokens: int,
    ) -> None:
        super().__init__()
        self.model = model
        self.cut = cut
        self.entries = tuple(entries)
        self.final_layout = final_layout
        self.layout = layout
        self.shape = shape
        self.size = size
        self.num_prefix_tokens = num_prefix_tokens
        self.keeps_statistics = True

    def forward(self, features: Sequence[Tensor]) -> list[Tensor]:
        """Return the maps of the backbone's chosen stages, finest first.

        Args:
            features: Output of the bottom, or the same from a cache: the features at the cut, ``[B, C, H, W]`` or
                ``[B, C, N, 1]``, after the maps of chosen stages below the cut, which are returned as they are.

        Returns:
            One map ``[B, C, H, W]`` per stage.
        """
        *below, last = features
        given: _Given = self.model.get_submodule(self.cut).forward
        given.features = from_cache(last, self.layout)
        images = last.new_zeros(()).expand(last.shape[0], 3, *self.size)  # only the shape is read
        maps = stage_maps(self.model, images, self.entries, layout=self.final_layout)
        del given.features  # else the batch would stay in memory, and in copies of the model
        return [*below, *maps]

    def mirror(self, features: Tensor) -> Tensor:
        """Mirror features at the cut left to right, as an approximation of the features of the mirrored image.

        Args:
            features: ``[B, C, H, W]``, or tokens ``[B, C, N, 1]``, whose prefix tokens stay.
        """
        if self.layout != "tokens":
            return features.flip(3)
        prefix, grid = features[:, :, : self.num_prefix_tokens], features[:, :, self.num_prefix_tokens :]
        columns = round((grid.shape[2] * self.size[1] / self.size[0]) ** 0.5)
        mirrored = grid.reshape(*grid.shape[:2], -1, columns).flip(3).reshape_as(grid)
        return torch.cat([prefix, mirrored], dim=2)

    def keep_statistics(self, keep: bool = True) -> None:
        """Freeze batch-norm statistics, also in training mode, or unfreeze them.

        Args:
            keep: Use the running means and variances instead of those of each batch.
        """
        self.keeps_statistics = keep
        self.train(self.training)

    def train(self, mode: bool = True) -> Self:
        """Switch between training and eval mode; batch norms stay in eval mode while statistics are frozen."""
        set_mode(self, mode, keeps_statistics=self.keeps_statistics)
        return self


class _Zeros:
    """Forward of a placeholder: zeros in the shape of the module's output."""

    def __init__(self, output: object) -> None:
        self.output = output  # on the meta device: shapes only

    def __call__(self, *inputs: object, **options: object) -> object:
        like = next(value for value in tree_leaves((inputs, options)) if isinstance(value, Tensor))
        # one stored number, whatever the shape
        return tree_map_only(
            Tensor, lambda seen: like.new_zeros(()).expand(like.shape[0], *seen.shape[1:]), self.output
        )


class _Given:
    """Forward of the placeholder at the cut: the cached features."""

    features: Tensor

    def __call__(self, *_inputs: object, **_options: object) -> Tensor:
        return self.features


class _Placeholder(nn.Module):
    """A module without contents, with the plain attributes and the methods of the module that it stands for.

    A model's code may ask its patch embedding for the grid of an image, for example.
    """

    def __init__(self, module: nn.Module, forward: Callable[..., object]) -> None:
        super().__init__()
        self.kind = type(module)
        self.__dict__.update({name: value for name, value in vars(module).items() if not name.startswith("_")})
        self.forward = forward  # each placeholder has its own

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the class has
        if name == "kind" or name.startswith("__"):  # asked for by copy before the attributes are there
            raise AttributeError(name)
        return getattr(self.kind, name).__get__(self)


def _with_placeholders(model: nn.Module, forwards: Mapping[str, Callable[..., object]]) -> TimmModel:
    """Return a copy of a model with placeholders, each with its forward; all other modules are shared."""
    copied = {"": shallow_copy(model)}

    def own(path: str) -> nn.Module:
        """Copy the modules on a path, each once, so that the originals stay as they are."""
        if path not in copied:
            parent, _, name = path.rpartition(".")
            owner = own(parent)
            copied[path] = owner._modules[name] = shallow_copy(owner.get_submodule(name))
        return copied[path]

    for path, forward in forwards.items():
        if not any(_contains(path, other) for other in forwards):  # else it is inside another placeholder
            parent, _, name = path.rpartition(".")
            own(parent)._modules[name] = _Placeholder(model.get_submodule(path), forward)
    return copied[""]


def shallow_copy(module: Module) -> Module:
    """Return a copy of a module with the same contents, whose contents and hooks can be changed alone."""
    twin = copy.copy(module)
    for registry in ("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks"):
        setattr(twin, registry, copy.copy(getattr(module, registry)))
    return twin


def _contains(path: str, container: str) -> bool:
    """Return whether a module lies inside another one."""
    return container == "" or path.startswith(f"{container}.")
