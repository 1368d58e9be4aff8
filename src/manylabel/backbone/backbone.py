"""Any timm or torchvision model as a source of feature maps ``[B, C, H, W]``, finest first, the final one last.

Letters in shape comments: B images, C channels, H and W pixels of an image or positions of a map.
"""

import copy
import dataclasses
import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from msgspec.structs import replace
from timm.data.config import resolve_data_config
from timm.layers.conv2d_same import Conv2dSame
from timm.layers.norm_act import BatchNormAct2d
from torch import Tensor, nn
from torch.nn.utils.fusion import fuse_conv_bn_eval
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from manylabel.backbone.blueprint import FeatureModule, Layout, as_nchw, examine_model, module_outputs, stage_maps
from manylabel.backbone.classes import load_classes
from manylabel.backbone.extractor import adopt_model, find_name
from manylabel.backbone.split import Call, Cut, Top, shallow_copy, top_model, trace_calls, without_rest
from manylabel.backbone.weights import build_model
from manylabel.errors import ConfigError
from manylabel.seeds import private_generator
from manylabel.types import LARGEST_INPUT, InputSpec

# Convolutions that use their weight unchanged; a norm cannot be folded into one that standardises it first.
FOLDABLE = (nn.Conv2d, Conv2dSame)


class Backbone(FeatureModule):
    """Any timm or torchvision model, as a feature extractor for heads: images in, feature maps out.

    Stages are numbered from the first block group (stride 4 in a hierarchical model; every block is a stage in a
    plain transformer) to the final one, and from the end with negative numbers, as in a list. The stem before the first
    group is not a stage. The final map is the one that the model's own classifier pools: after its last norm or
    convolution, but before a norm that timm applies to the pooled vector. Class and register tokens are dropped.

    Args:
        model: Name of a timm model, with or without a weights tag (``"resnet50.a1_in1k"``), of a torchvision model
            (``"torchvision:resnet50"``), or of an offline model (``"offline:efficientnet_lite0"``), whose weights come
            with the extra ``offline`` and need no hub. Or a model object: a timm model, which loses its classifier, or
            another image classifier, such as one from torchvision, whose modules are shared.
        pretrained: Load the pretrained weights of the name; a model object keeps its own weights.
        frozen: Stop gradients and stay in eval mode, which fixes batch-norm statistics.
        stages: Stages whose maps to return, in ascending order (default: all).
        weights: A ``.safetensors`` file or a state dict saved by torch, instead of the pretrained weights.
        image_size: Input size, for models built for a fixed size; for others it only changes `input_spec`.

    Attributes:
        channels: Channels per map.
        strides: Pixels per position, per map.
        input_spec: Size and normalisation of images.

    Raises:
        ConfigError: There is no such model, stage or size, or the hub cannot be reached.
        ModelFormatError: The file of weights does not fit the model.

    Examples:
        >>> backbone = Backbone("resnet10t", pretrained=False, stages=(0, -1)).eval()
        >>> [tuple(stage.shape) for stage in backbone(torch.zeros(2, 3, 64, 96))]
        [(2, 64, 16, 24), (2, 512, 2, 3)]
        >>> backbone.channels, backbone.strides
        ((64, 512), (4, 32))
    """

    def __init__(
        self,
        model: str | nn.Module,
        *,
        pretrained: bool = True,
        frozen: bool = False,
        stages: Sequence[int] | None = None,
        weights: str | Path | None = None,
        image_size: int | None = None,
    ) -> None:
        super().__init__()
        if image_size is not None and not 1 <= image_size <= LARGEST_INPUT:
            raise ConfigError(f"image_size must be in 1..{LARGEST_INPUT} pixels, got {image_size}")
        if not isinstance(model, str | nn.Module):
            raise ConfigError(f"model must be the name of a model, or a model, got {type(model).__name__}")
        if not isinstance(model, str) and weights is not None:
            raise ConfigError("weights need a model name, got a model object; load them into the model first")
        self.weights = None if weights is None else str(weights)
        self._cut: Cut | None = None  # of a bottom
        self._has_name = isinstance(model, str)
        if isinstance(model, str):
            self.name, self.pretrained, self.image_size = model, pretrained, image_size
            self.model, self._blueprint = build_model(model, image_size, pretrained=pretrained, weights=weights)
        else:
            self.model = adopt_model(model, image_size)
            self._blueprint = examine_model(self.model, image_size)
            self.name, self.pretrained = self.model.pretrained_cfg["architecture"], False
            self.image_size = image_size or (None if self.takes_any_size else self._blueprint.size[0])
        self.select(stages)
        self.input_spec = _input_spec(self.model, self._blueprint.size)
        training = self.model.training
        self.freeze(frozen)
        self.train(training)

    def freeze(self, frozen: bool = True) -> None:
        """Freeze the backbone, or unfreeze it.

        Args:
            frozen: Stop gradients and stay in eval mode.

        Examples:
            >>> backbone = Backbone("resnet10t", pretrained=False, frozen=True)
            >>> backbone.freeze(False)
            >>> all(parameter.requires_grad for parameter in backbone.parameters()), backbone.training
            (True, True)
        """
        self.frozen = frozen
        for key, parameter in self.model.named_parameters():
            # distributed training fails on a parameter that requires a gradient but gets none
            parameter.requires_grad_(not frozen and key not in self._blueprint.unused)
        self.train()

    def select(self, stages: Sequence[int] | None) -> None:
        """Choose the stages whose maps are returned.

        Args:
            stages: Numbers of stages, in ascending order (default: all).

        Raises:
            ConfigError: There is no such stage, or they are not in ascending order.

        Examples:
            >>> backbone = Backbone("resnet10t", pretrained=False)
            >>> backbone.select((1, -1))
            >>> backbone.stages
            (1, 3)
        """
        self.stages = _absolute(stages, count=self.num_stages, name=self.name)
        self.channels = tuple(self._blueprint.channels[stage] for stage in self.stages)
        self.strides = tuple(self._blueprint.strides[stage] for stage in self.stages)

    @property
    def num_stages(self) -> int:
        """Number of stages."""
        return len(self._blueprint.channels)

    @property
    def stage_modules(self) -> tuple[str, ...]:
        """Path in `model` of the module that ends each stage before the final one."""
        return self._blueprint.modules

    @property
    def class_names(self) -> tuple[str, ...]:
        """Names of the classes that the pretrained model was trained on; the synonyms of a class, separated by commas.

        Raises:
            ConfigError: It has no pretrained weights, or the names are not known.
        """
        return load_classes(self.name).names

    def class_logits(self, final: Tensor) -> tuple[Tensor, Tensor]:
        """Return the logits that the pretrained model's own classifier gives for its classes.

        They are meaningful as long as the weights are the pretrained ones.

        Args:
            final: The final map, ``[B, C, H, W]``.

        Returns:
            Logits of the pooled map ``[B, K]``, and of each position ``[B, K, H, W]``.
        """
        pooled, local = load_classes(self.name).to(final.device)(final)
        return pooled, local

    @property
    def takes_any_size(self) -> bool:
        """True if images may have any height and width, not only multiples of a number or a fixed size."""
        return self._blueprint.size_step == 1

    def forward(self, images: Tensor) -> list[Tensor]:
        """Return the maps of the chosen stages, finest first.

        Args:
            images: ``[B, 3, H, W]``, normalised as in `input_spec`.

        Returns:
            One map ``[B, C, H, W]`` per stage.

        Raises:
            ConfigError: The model does not take images of this size.
        """
        self._check_size(images.shape[-2], images.shape[-1])
        entries = [self._blueprint.entries[stage] for stage in self.stages]
        if self._cut is None or entries[-1] != -1:
            return stage_maps(self.model, images, entries, layout=self._blueprint.layout)
        (last,), maps = module_outputs(
            self.model,
            [self._cut.name],
            lambda: stage_maps(self.model, images, entries, layout=self._blueprint.layout),
        )
        return [*maps[:-1], as_nchw(last, self._cut.layout)]

    def check_name(self) -> None:
        """Raise unless `name` and `image_size` build the same architecture, as loading a saved model does.

        A torchvision model gets its name there, such as ``torchvision:resnet50``.

        Raises:
            ConfigError: The backbone was made of a model that neither timm nor torchvision builds by a name.
        """
        if self._has_name:
            return
        name = find_name(self.model, self.image_size)
        if name is None:
            raise ConfigError(
                f"a classifier with this {self.name} cannot be saved: neither timm nor torchvision can build it by "
                "name; save its state_dict(), or pass the backbone by name"
            )
        self.name, self._has_name = name, True

    def fuse(self, *, channels_last: bool = False) -> "Backbone":
        """Return a frozen copy for inference, with every batch-norm folded into the preceding convolution.

        Args:
            channels_last: Use the memory format channels-last, which is faster on CPUs and newer GPUs.

        Returns:
            The copy; this backbone stays as it is.

        Examples:
            >>> backbone = Backbone("resnet10t", pretrained=False).eval()
            >>> images = torch.rand(1, 3, 64, 64)
            >>> torch.allclose(backbone.fuse()(images)[-1], backbone(images)[-1], atol=1e-4)
            True
        """
        fused = copy.deepcopy(self)
        fused.frozen = True
        fused.requires_grad_(False).train()
        weight = next(self.model.parameters())
        fold_batch_norms(fused.model, weight.new_zeros(1, 3, *self._blueprint.size))
        return fused.to(memory_format=torch.channels_last) if channels_last else fused

    def cuts(self, *, size: tuple[int, int] | None = None) -> list[Cut]:
        """List the stages after which the backbone can be cut, with the cost of each cut.

        Args:
            size: Height and width of the images (default: those of `input_spec`).

        Returns:
            The cuts, from the first stage to the last but one.

        Examples:
            >>> for cut in Backbone("resnet10t", pretrained=False).cuts():
            ...     print(cut.stage, cut.name, cut.shape, f"{cut.num_bytes / 1e3:.0f} kB", f"{cut.top_macs:.0%}")
            0 layer1 (64, 44, 44) 248 kB 51%
            1 layer2 (128, 22, 22) 124 kB 35%
            2 layer3 (256, 11, 11) 62 kB 19%
        """
        calls, total = self._trace(size)
        cuts = [self._cut_after(name, calls, total) for name in self.stage_modules]
        return [cut for cut in cuts if cut is not None]

    def split(self, stage: int | str, *, size: tuple[int, int] | None = None) -> "tuple[Backbone, Top]":
        """Cut the backbone after a stage, to cache the output of the bottom and train only the top.

        ``top(bottom(images))`` equals ``backbone(images)``, which is verified on one image before the parts are
        returned. The bottom is a frozen copy. The top shares its modules with this backbone, so training it trains the
        backbone: afterwards exactly the parameters that the top uses require gradients. Batch norms of the top stay in
        eval mode in training, unless ``top.keep_statistics(False)`` is called.

        Args:
            stage: Number of a stage before the final one (see `cuts`), or the path of a module (``"blocks.4"``).
            size: Height and width of the images (default: those of `input_spec`). Convolutional models take others,
                too; transformers do not.

        Returns:
            The bottom, a `Backbone` whose last map is the raw output at the cut: ``[B, C, H, W]``, or tokens with their
            prefix as ``[B, C, N, 1]``; chosen stages below the cut come before it. The feature cache takes it as any
            other backbone. And the top, which maps the bottom's output to the maps of the chosen stages.

        Raises:
            ConfigError: There is no such stage or module, or the model cannot be cut there.

        Examples:
            >>> backbone = Backbone("resnet10t", pretrained=False, stages=(-1,)).eval()
            >>> bottom, top = backbone.split(2)
            >>> features = bottom(torch.rand(2, 3, 64, 64))
            >>> [tuple(part.shape) for part in features], [tuple(part.shape) for part in top(features)]
            ([(2, 256, 4, 4)], [(2, 512, 2, 2)])
        """
        size = size or self.input_spec.size
        self._check_size(*size)
        name = stage if isinstance(stage, str) else self._cut_name(stage)
        calls, total = self._trace(size)
        cut = self._cut_after(name, calls, total)
        if cut is None:
            names = ", ".join(cut.name for cut in self.cuts(size=size))
            raise ConfigError(
                f"{self.name} cannot be cut after {name!r}, which is not a module that runs once and returns a map; "
                f"available: {names or 'none'}"
            )
        blueprint, end = self._blueprint, calls[name][0].end
        below = [number for number, path in enumerate(blueprint.modules) if path in calls and calls[path][-1].end < end]
        above = [number for number in self.stages if number not in below]
        if not above or blueprint.modules[above[-1] :][:1] == (name,):
            raise ConfigError(f"{self.name} cannot be cut after {name!r}: no stage of {self.stages} is above it")
        entries = [blueprint.entries[number] for number in above]
        top = Top(top_model(self.model, calls, name), cut=cut, entries=entries, layout=blueprint.layout, size=size)
        bottom = self._bottom(copy.deepcopy(without_rest(self.model, calls, name)), cut, below)
        self._verify(bottom, top)
        trained = top.used_parameters()
        for key, parameter in self.model.named_parameters():
            parameter.requires_grad_(key in trained)
        return bottom, top.train(self.training)

    def __repr__(self) -> str:
        settings = f"pretrained={self.pretrained}, frozen={self.frozen}, stages={self.stages}"
        return f"Backbone({self.name!r}, {settings}, channels={self.channels}, strides={self.strides})"

    def _trace(self, size: tuple[int, int] | None) -> tuple[dict[str, list[Call]], int]:
        return trace_calls(
            self.model,
            lambda model, images: stage_maps(model, images, [-1], layout=self._blueprint.layout),
            size=size or self.input_spec.size,
        )

    def _cut_name(self, stage: int) -> str:
        (number,) = _absolute([stage], count=self.num_stages, name=self.name)
        if number == self.num_stages - 1:
            raise ConfigError(f"{self.name} cannot be cut after its final stage, {stage}: no layers would be above it")
        return self.stage_modules[number]

    def _cut_after(self, name: str, calls: Mapping[str, list[Call]], flops: int) -> Cut | None:
        """Return the cut after a module, or None unless it runs once per image and returns a map or tokens."""
        seen = calls.get(name, [])
        if len(seen) != 1 or not isinstance(seen[0].output, Tensor) or seen[0].output.ndim not in {3, 4}:
            return None
        last, stages = seen[0], self.stage_modules
        layout: Layout = "NHWC" if self._blueprint.layout == "NHWC" else "NCHW"
        layout = "tokens" if last.output.ndim == 3 else layout
        channels, height, width = as_nchw(last.output, layout).shape[1:]
        stage = stages.index(name) if name in stages else None
        return Cut(stage, name, (channels, height, width), layout, 1 - last.flops / flops)

    def _bottom(self, model: nn.Module, cut: Cut, below: Sequence[int]) -> "Backbone":
        """Return a frozen backbone whose final map is the output at the cut."""
        blueprint = self._blueprint
        bottom = shallow_copy(self)
        bottom.model, bottom._cut, bottom.frozen = model.requires_grad_(False), cut, True
        bottom._blueprint = dataclasses.replace(
            blueprint,
            entries=(*(blueprint.entries[number] for number in below), -1),
            modules=tuple(blueprint.modules[number] for number in below),
            channels=(*(blueprint.channels[number] for number in below), cut.shape[0]),
            strides=(*(blueprint.strides[number] for number in below), blueprint.strides[len(below)]),
        )
        bottom.select((*(number for number in below if number in self.stages), -1))
        return bottom.eval()

    @torch.no_grad()
    def _verify(self, bottom: "Backbone", top: Top) -> None:
        """Raise unless both parts together give the same maps as the whole, on one image."""
        like = next(self.model.parameters())
        image = torch.from_numpy(private_generator("cut of a backbone").random((1, 3, *top.size))).to(like)
        whole, parts = copy.deepcopy(self).requires_grad_(False), copy.deepcopy(top)
        try:
            for one, other in zip(whole.eval()(image), parts.eval()(bottom(image)), strict=True):
                torch.testing.assert_close(other, one, atol=1e-4 * float(one.abs().max()), rtol=1e-4)
        except Exception as error:  # layers fail in any way on inputs that they were not made for
            raise ConfigError(
                f"{self.name} cannot be cut after {top.cut.name!r}: the layers above need more than its output; "
                "choose another stage"
            ) from error

    def _check_size(self, height: int, width: int) -> None:
        blueprint, step = self._blueprint, self._blueprint.size_step
        if step == 0 and (height, width) != blueprint.size:
            own = " x ".join(map(str, blueprint.size))
            raise ConfigError(
                f"{self.name} is built for {own} pixels, got {height} x {width}; "
                f"resize the images or build it with image_size={height}"
            )
        if step > 1 and (height % step or width % step):
            raise ConfigError(f"{self.name} needs multiples of {step} pixels each way, got {height} x {width}")


def _absolute(stages: Sequence[int] | None, *, count: int, name: str) -> tuple[int, ...]:
    """Return non-negative stage numbers, checked."""
    if stages is None:
        return tuple(range(count))
    wrong = [stage for stage in stages if not -count <= stage < count]
    if wrong or not len(stages):
        raise ConfigError(f"{name} has stages 0 to {count - 1}, or -{count} to -1, got {list(stages)}")
    absolute = tuple(stage % count for stage in stages)
    if list(absolute) != sorted(set(absolute)):
        raise ConfigError(f"stages must be in ascending order, finest first, got {list(stages)} of {count}")
    return absolute


def _input_spec(model: nn.Module, size: tuple[int, int]) -> InputSpec:
    """Translate timm's data config."""
    config = resolve_data_config(model=model)  # type: ignore[no-untyped-call]  # timm leaves it untyped
    interpolation: Literal["bilinear", "bicubic"] = "bilinear" if config["interpolation"] == "bilinear" else "bicubic"
    spec = InputSpec(size=size, mean=config["mean"], std=config["std"], interpolation=interpolation)
    if config["crop_mode"] == "squash":
        return spec
    return replace(spec, resize="crop", crop_fraction=min(1.0, config["crop_pct"]))


def fingerprint_weights(backbone: Backbone) -> str:
    """Return a fingerprint of a backbone's architecture and weights, batch-norm statistics included.

    Args:
        backbone: The backbone, on any device.

    Returns:
        Letters and digits.

    Examples:
        >>> backbone = Backbone("resnet10t", pretrained=False)
        >>> before = fingerprint_weights(backbone)
        >>> with torch.no_grad():
        ...     _ = next(backbone.parameters()).add_(1.0)
        >>> fingerprint_weights(backbone) == before
        False
    """
    digest = hashlib.sha256(f"{backbone.name} {backbone.image_size}".encode())
    for name, tensor in backbone.model.state_dict().items():
        values = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {values.dtype} {tuple(values.shape)}".encode())
        digest.update(values.flatten().view(torch.uint8).numpy().data)
    return digest.hexdigest()


def fold_batch_norms(model: nn.Module, images: Tensor) -> int:
    """Fold every batch-norm that directly follows a convolution into it, in place.

    The order of layers is found by running the model once, so any architecture works.

    Args:
        model: A model in eval mode.
        images: Images to run it on, for instance one of zeros.

    Returns:
        The number of folded norms.

    Examples:
        >>> model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()).eval()
        >>> fold_batch_norms(model, torch.zeros(1, 3, 8, 8)), model[1]
        (1, Identity())
    """
    pairs = _find_pairs(model, images)
    names = {module: name for name, module in model.named_modules()}
    for convolution, norm in pairs:
        model.set_submodule(names[convolution], fuse_conv_bn_eval(convolution, norm))
        model.set_submodule(names[norm], norm.act if isinstance(norm, BatchNormAct2d) else nn.Identity())
    return len(pairs)


class _Reads(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves its hook for subclasses untyped
    """Count of reads per tensor, by modules or plain functions."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.counts: Counter[int] = Counter()

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 - as in torch
        self.counts.update(id(value) for value in tree_leaves((args, kwargs)) if isinstance(value, Tensor))
        return operation(*args, **(kwargs or {}))


def _find_pairs(model: nn.Module, images: Tensor) -> list[tuple[nn.Conv2d, nn.BatchNorm2d]]:
    """Run the model and find norms that are the only readers of a convolution's output, both used once."""
    reads = _Reads()
    calls: Counter[nn.Module] = Counter()
    written: dict[int, tuple[nn.Conv2d, Tensor]] = {}  # a reference to each tensor, so that ids stay unique
    candidates: list[tuple[nn.Conv2d, nn.BatchNorm2d, int]] = []

    def watch(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        calls[module] += 1
        if type(module) in FOLDABLE and isinstance(module, nn.Conv2d):
            written[id(output)] = (module, output)
            reads.counts[id(output)] = 0  # the id may have been another tensor's
        elif isinstance(module, nn.BatchNorm2d) and id(inputs[0]) in written:
            candidates.append((written[id(inputs[0])][0], module, id(inputs[0])))

    leaves = [module for module in model.modules() if isinstance(module, nn.Conv2d | nn.BatchNorm2d)]
    handles = [module.register_forward_hook(watch) for module in leaves]
    with torch.no_grad(), reads:
        model(images)
    for handle in handles:
        handle.remove()
    return [
        (convolution, norm)
        for convolution, norm, output in candidates
        if calls[convolution] == calls[norm] == reads.counts[output] == 1
    ]
