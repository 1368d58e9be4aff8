"""Any timm model as a source of feature maps ``[B, C, H, W]``, finest first, the final one last.

Letters in shape comments: B pictures, C channels, H and W pixels of a picture or cells of a map.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal, Self

import torch
from timm.data.config import resolve_data_config
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from manylabel.backbone.blueprint import examine
from manylabel.backbone.extraction import stage_maps
from manylabel.backbone.folding import fold_batch_norms
from manylabel.backbone.weights import build_model, timm_name
from manylabel.errors import ConfigError
from manylabel.types import InputSpec

__all__ = ["Backbone"]


class Backbone(nn.Module):
    """Any timm model, reduced to what heads need: pictures in, feature maps out.

    Stages are numbered from the first block group (stride 4 in a hierarchical model; every block is a stage in a
    plain transformer) to the final one, and from the end with negative numbers, as in a list. A stem in front of the
    first group is no stage. The final map is the one that the model's own classifier pools: after its last norm or
    convolution, but before a norm that timm applies to the pooled vector. Class and register tokens are dropped.

    Args:
        name: A name of timm's, with or without a tag of weights (``"resnet50.a1_in1k"``), or an offline model
            (``"offline:efficientnet_lite0"``), whose weights come with the extra ``offline`` and need no hub.
        pretrained: Whether to load the weights that the name stands for.
        frozen: Whether to stop gradients and stay in eval mode, so that batch-norm statistics stay, too.
        stages: Which maps to give, rising; None gives all.
        weights: A ``.safetensors`` file or a state dict saved by torch, instead of the name's own weights.
        image_size: The size to build a model for that timm binds to one; for others it only changes `input_spec`.

    Attributes:
        channels: Channels per map.
        strides: Pixels per cell, per map.
        input_spec: How the model wants its pictures.

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
        name: str,
        *,
        pretrained: bool = True,
        frozen: bool = False,
        stages: Sequence[int] | None = None,
        weights: str | Path | None = None,
        image_size: int | None = None,
    ) -> None:
        super().__init__()
        if image_size is not None and image_size < 1:
            raise ConfigError(f"image_size must be at least 1 pixel, got {image_size}")
        self.name = name
        self.pretrained = pretrained
        self.frozen = frozen
        self.weights = None if weights is None else str(weights)
        self.image_size = image_size
        self.keeps_statistics = False
        self._blueprint = examine(timm_name(name), image_size)
        self.select(stages)
        self.model = build_model(name, self._blueprint.options, pretrained=pretrained, weights=weights)
        self.input_spec = _input_spec(self.model, self._blueprint.size)
        self.freeze(frozen)

    def freeze(self, frozen: bool = True) -> None:
        """Stop the backbone from learning, or let it learn again.

        Args:
            frozen: Whether to stop gradients and stay in eval mode.

        Examples:
            >>> backbone = Backbone("resnet10t", pretrained=False, frozen=True)
            >>> backbone.freeze(False)
            >>> all(parameter.requires_grad for parameter in backbone.parameters()), backbone.training
            (True, True)
        """
        self.frozen = frozen
        for key, parameter in self.model.named_parameters():
            # a parameter without gradient stops distributed training, unless it says so
            parameter.requires_grad_(not frozen and key not in self._blueprint.unused)
        self.train()

    def keep_statistics(self, keep: bool = True) -> None:
        """Let batch-norms use the means and variances they have, also in training, or those of each batch again.

        Args:
            keep: Whether to keep them.

        Examples:
            >>> backbone = Backbone("resnet10t", pretrained=False)
            >>> backbone.keep_statistics()
            >>> backbone.training, backbone.model.bn1.training
            (True, False)
        """
        self.keeps_statistics = keep
        self.train(self.training)

    def select(self, stages: Sequence[int] | None) -> None:
        """Choose which maps to give from now on.

        Args:
            stages: Numbers of stages, rising; None chooses all.

        Raises:
            ConfigError: There is no such stage, or they do not rise.

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
        """How many stages there are to choose from."""
        return len(self._blueprint.channels)

    @property
    def takes_any_size(self) -> bool:
        """Whether pictures may have any height and width, not just multiples of some number or one size."""
        return self._blueprint.size_step == 1

    def forward(self, images: Tensor) -> list[Tensor]:
        """Return the maps of the chosen stages, finest first.

        Args:
            images: ``[B, 3, H, W]``, normalised as `input_spec` says.

        Returns:
            One map ``[B, C, H, W]`` per stage.

        Raises:
            ConfigError: The model does not take pictures of this size.
        """
        self._check_size(images.shape[-2], images.shape[-1])
        entries = [self._blueprint.entries[stage] for stage in self.stages]
        return stage_maps(self.model, images, entries, layout=self._blueprint.layout)

    def train(self, mode: bool = True) -> Self:
        """Change between training and inference; what is frozen stays in inference."""
        super().train(mode and not self.frozen)
        for module in self.modules():
            if self.keeps_statistics and isinstance(module, _BatchNorm):
                module.eval()
        return self

    def fuse(self, *, channels_last: bool = False) -> Backbone:
        """Return a frozen copy for inference, with every batch-norm folded into the convolution before it.

        Args:
            channels_last: Whether to lay the weights out channels-last, which convolutions on CPUs and newer GPUs like.

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

    def __repr__(self) -> str:
        settings = f"pretrained={self.pretrained}, frozen={self.frozen}, stages={self.stages}"
        return f"Backbone({self.name!r}, {settings}, channels={self.channels}, strides={self.strides})"

    def _check_size(self, height: int, width: int) -> None:
        blueprint, step = self._blueprint, self._blueprint.size_step
        if step == 0 and (height, width) != blueprint.size:
            own = " x ".join(map(str, blueprint.size))
            raise ConfigError(
                f"{self.name} is built for {own} pixels, got {height} x {width}; "
                f"resize the pictures or build it with image_size={height}"
            )
        if step > 1 and (height % step or width % step):
            raise ConfigError(f"{self.name} wants multiples of {step} pixels each way, got {height} x {width}")


def _absolute(stages: Sequence[int] | None, *, count: int, name: str) -> tuple[int, ...]:
    """Count stages from the front, and check them."""
    if stages is None:
        return tuple(range(count))
    wrong = [stage for stage in stages if not -count <= stage < count]
    if wrong or not len(stages):
        raise ConfigError(f"{name} has the stages 0 to {count - 1}, or -{count} to -1, got {list(stages)}")
    absolute = tuple(stage % count for stage in stages)
    if list(absolute) != sorted(set(absolute)):
        raise ConfigError(f"stages must rise, the finest first, got {list(stages)} of {count}")
    return absolute


def _input_spec(model: nn.Module, size: tuple[int, int]) -> InputSpec:
    """Translate timm's data config."""
    config = resolve_data_config(model=model)  # type: ignore[no-untyped-call]  # timm leaves it untyped
    interpolation: Literal["bilinear", "bicubic"] = "bilinear" if config["interpolation"] == "bilinear" else "bicubic"
    spec = InputSpec(size=size, mean=config["mean"], std=config["std"], interpolation=interpolation)
    if config["crop_mode"] == "squash":
        return spec
    return replace(spec, resize="crop", crop_fraction=min(1.0, config["crop_pct"]))
