"""Two parts of a backbone: a frozen bottom, whose output is cached, and a top that is trained on it.

The model's own code runs in both parts. Each part is a copy of the model in which the modules of the other part are
placeholders: they hold no parameters, compute nothing and return zeros of the shape that the code behind them expects.

Letters in shape comments: B images, C channels, H and W pixels of an image or positions of a map, N tokens.
"""

import copy
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.flop_counter import FlopCounterMode

from manylabel.backbone.blueprint import (
    FeatureModule,
    Layout,
    TimmModel,
    from_nchw,
    on_meta,
    stage_maps,
    unused_parameters,
)

Module = TypeVar("Module", bound=nn.Module)


@dataclass(frozen=True)
class Cut:
    """A module after which a backbone can be cut.

    Args:
        stage: Number of the stage that ends there, if one does.
        name: Path of the module.
        shape: Shape of the cached features per image: ``(C, H, W)``, or ``(C, N, 1)`` for tokens.
        layout: Layout of the module's output.
        top_macs: Fraction of the backbone's multiply-accumulates that the top takes.
    """

    stage: int | None
    name: str
    shape: tuple[int, int, int]
    layout: Layout
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
    """Return a copy of a model in which placeholders stand for everything up to a module's end, others shared."""
    end = calls[cut][0].end
    return _with_placeholders(model, calls, [path for path, seen in calls.items() if seen[-1].end <= end])


def without_rest(model: nn.Module, calls: Mapping[str, list[Call]], last: str) -> TimmModel:
    """Return a copy of a model in which placeholders stand for everything that runs after a module, others shared."""
    end = calls[last][-1].end
    return _with_placeholders(model, calls, [path for path, seen in calls.items() if seen[0].start > end])


class Top(FeatureModule):
    """The part of a backbone above a cut: cached features in, the backbone's feature maps out.

    It shares its modules with the backbone, so training the top trains the backbone, and nothing has to be copied back.
    Its batch norms stay in eval mode when it is trained, unless `keep_statistics` is called with False: the bottom's
    output was computed with fixed statistics, too.

    Made by `Backbone.split`.

    Args:
        model: The model, with placeholders up to the cut; see `top_model`.
        cut: The cut.
        entries: Positions in timm's list of features of the maps to return, -1 for the final one.
        layout: Layout of the model's final features.
        size: Height and width of the images that the features belong to.
    """

    keeps_statistics = True

    def __init__(
        self, model: TimmModel, *, cut: Cut, entries: Iterable[int], layout: Layout, size: tuple[int, int]
    ) -> None:
        super().__init__()
        self.model, self.cut, self.entries, self.layout, self.size = model, cut, tuple(entries), layout, size

    def forward(self, features: Sequence[Tensor]) -> list[Tensor]:
        """Return the maps of the backbone's chosen stages, finest first.

        Args:
            features: Output of the bottom, or the same from a cache: the features at the cut, ``[B, C, H, W]`` or
                ``[B, C, N, 1]``, after the maps of chosen stages below the cut, which are returned as they are.

        Returns:
            One map ``[B, C, H, W]`` per stage.
        """
        *below, last = features
        given: list[Tensor] = self.model.get_submodule(self.cut.name).given
        given.append(from_nchw(last, self.cut.layout))
        images = last.new_zeros(()).expand(last.shape[0], 3, *self.size)  # only the shape is read
        maps = stage_maps(self.model, images, self.entries, layout=self.layout)
        given.clear()  # else the batch would stay in memory, and in copies of the model
        return [*below, *maps]

    def mirror(self, features: Tensor) -> Tensor:
        """Mirror features at the cut left to right, as an approximation of the features of the mirrored image.

        Args:
            features: ``[B, C, H, W]``, or tokens ``[B, C, N, 1]``, whose prefix tokens stay.
        """
        if self.cut.layout != "tokens":
            return features.flip(3)
        num_prefix = getattr(self.model, "num_prefix_tokens", 0)
        prefix, grid = features[:, :, :num_prefix], features[:, :, num_prefix:]
        columns = round((grid.shape[2] * self.size[1] / self.size[0]) ** 0.5)
        mirrored = grid.reshape(*grid.shape[:2], -1, columns).flip(3).reshape_as(grid)
        return torch.cat([prefix, mirrored], dim=2)

    @torch.enable_grad()
    def used_parameters(self) -> set[str]:
        """Return the names of the model's parameters that its maps depend on."""
        shapes = on_meta(self)
        maps = [stage for stage in shapes([torch.empty(1, *self.cut.shape, device="meta")]) if stage.requires_grad]
        return {name for name, _ in shapes.model.named_parameters()} - unused_parameters(shapes.model, maps)


class _Placeholder(nn.Module):
    """A module without contents, with the plain attributes and the methods of the module that it stands for.

    A model's code may ask its patch embedding for the grid of an image, for example. It returns the features that it
    is given, else zeros in the shape of the module's output.
    """

    def __init__(self, module: nn.Module, output: object) -> None:
        super().__init__()
        self.__dict__.update({name: value for name, value in vars(module).items() if not name.startswith("_")})
        self.__dict__.pop("forward", None)
        self.kind, self.seen = type(module), output
        self.given: list[Tensor] = []

    def forward(self, *inputs: object, **options: object) -> object:
        if self.given:
            return self.given[0]
        like = next(value for value in tree_leaves((inputs, options)) if isinstance(value, Tensor))
        # one stored number, whatever the shape
        return tree_map_only(Tensor, lambda seen: like.new_zeros(()).expand(like.shape[0], *seen.shape[1:]), self.seen)

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - whatever the class has
        if name == "kind" or name.startswith("__"):  # asked for by copy before the attributes are there
            raise AttributeError(name)
        return getattr(self.kind, name).__get__(self)


def _with_placeholders(model: nn.Module, calls: Mapping[str, list[Call]], paths: Sequence[str]) -> TimmModel:
    """Return a copy of a model with placeholders at some paths; all other modules are shared."""
    copied = {"": shallow_copy(model)}

    def own(path: str) -> nn.Module:
        """Copy the modules on a path, each once, so that the originals stay as they are."""
        if path not in copied:
            parent, _, name = path.rpartition(".")
            owner = own(parent)
            copied[path] = owner._modules[name] = shallow_copy(owner.get_submodule(name))
        return copied[path]

    for path in paths:
        if not any(path.startswith(f"{other}.") for other in paths):  # else it is inside another placeholder
            parent, _, name = path.rpartition(".")
            own(parent)._modules[name] = _Placeholder(model.get_submodule(path), calls[path][0].output)
    return copied[""]


def shallow_copy(module: Module) -> Module:
    """Return a copy of a module with the same contents, whose contents and hooks can be changed alone."""
    twin = copy.copy(module)
    for registry in ("_parameters", "_buffers", "_modules", "_forward_hooks", "_forward_pre_hooks"):
        setattr(twin, registry, copy.copy(getattr(module, registry)))
    return twin
