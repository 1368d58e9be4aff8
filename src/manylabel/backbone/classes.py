"""The classes that a pretrained model was trained on: their names, and its own classifier for any feature map.

Letters in shape comments: B images, C channels, H and W positions of a map, K classes.
"""

from functools import lru_cache

import timm
import torch
import torch.nn.functional as F
from timm.data.imagenet_info import ImageNetInfo, infer_imagenet_subset
from torch import Tensor, nn

from manylabel.backbone.blueprint import Layout, TimmModel, examine, from_nchw
from manylabel.backbone.extractor import TORCHVISION
from manylabel.backbone.weights import OFFLINE_MODELS, PRETRAINED, offline_tensors, timm_name
from manylabel.errors import ConfigError


class PretrainedClasses(nn.Module):
    """Classifier of a pretrained model: its final map in, logits of its own classes out.

    Args:
        model: A timm model with its classifier. Parts before the classifier are dropped from it.
        layout: Layout of its final features.

    Attributes:
        names: Names of each class: its synonyms, separated by commas.
        synsets: WordNet identifier of each class.

    Raises:
        ConfigError: The names of its classes are not known, or it classifies a token that is not in the map.

    Examples:
        >>> classes = PretrainedClasses(timm.create_model("resnet10t"), layout="NCHW")
        >>> classes.names[1], classes.synsets[1]
        ('goldfish, Carassius auratus', 'n01443537')
        >>> pooled, local = classes(torch.rand(2, 512, 7, 7))
        >>> pooled.shape, local.shape
        (torch.Size([2, 1000]), torch.Size([2, 1000, 7, 7]))
    """

    def __init__(self, model: TimmModel, *, layout: Layout) -> None:
        super().__init__()
        subset, title = infer_imagenet_subset(model), type(model).__name__
        if subset is None:
            raise ConfigError(
                f"the names of the {model.num_classes} classes of {title} are not known; use an ImageNet model"
            )
        if layout == "tokens" and getattr(model, "global_pool", "avg") != "avg":
            raise ConfigError(f"{title} classifies its class token, which is not in the feature map; use another model")
        info = ImageNetInfo(subset)
        self.synsets: tuple[str, ...] = tuple(info.label_names())  # type: ignore[no-untyped-call]  # timm leaves it untyped
        self.names = tuple(info.index_to_description(number) for number in range(len(self.synsets)))
        self.layout, self.num_prefix = layout, getattr(model, "num_prefix_tokens", 0)
        self.model = model.eval().requires_grad_(False)
        self._drop_body()

    def forward(self, final: Tensor, *, parts: int | None = None) -> tuple[Tensor, Tensor]:
        """Return the logits of the pooled map ``[B, K]``, and those of each position ``[B, K, H, W]``.

        Args:
            final: Final map of the model, ``[B, C, H, W]``.
            parts: Number of equal parts per side to classify instead of positions (default: each position).
        """
        local_map = final if parts is None else F.adaptive_avg_pool2d(final, parts)
        batch, channels, height, width = local_map.shape
        positions = local_map.permute(0, 2, 3, 1).reshape(-1, channels, 1, 1)  # a map of one position each
        local = self._logits(positions).view(batch, height, width, -1).permute(0, 3, 1, 2)
        return self._logits(final), local

    def _logits(self, maps: Tensor) -> Tensor:
        if self.layout == "tokens":
            tokens = from_nchw(maps.flatten(2).unsqueeze(3), "tokens")
            maps = F.pad(tokens, (0, 0, self.num_prefix, 0))  # the average leaves prefix tokens out
        else:
            maps = from_nchw(maps, self.layout)
        logits: Tensor = self.model.forward_head(maps)
        return logits

    @torch.no_grad()
    def _drop_body(self) -> None:
        """Drop the modules that the classifier does not use."""
        used: set[nn.Module] = set()
        children = dict(self.model.named_children())
        handles = [child.register_forward_hook(lambda module, *_: used.add(module)) for child in children.values()]
        self._logits(next(self.model.parameters()).new_zeros(1, self.model.num_features, 1, 1))
        for handle in handles:
            handle.remove()
        for name, child in children.items():
            if child not in used:
                setattr(self.model, name, nn.Identity())


@lru_cache(maxsize=2)
def load_classes(name: str) -> PretrainedClasses:
    """Load the classes of a pretrained model.

    Args:
        name: Name in timm, or of an offline model.

    Raises:
        ConfigError: It has no pretrained weights or no known classes, or the hub cannot be reached.

    Examples:
        >>> load_classes("torchvision:resnet18")
        Traceback (most recent call last):
        manylabel.errors.ConfigError: the classes of torchvision:resnet18 are not known; use a model of timm's ...
    """
    if name.startswith(TORCHVISION):
        raise ConfigError(f"the classes of {name} are not known; use a model of timm's with ImageNet weights")
    name = PRETRAINED.get(name, name)
    own = timm_name(name)
    if name not in OFFLINE_MODELS and not timm.is_model_pretrained(own):
        raise ConfigError(f"timm has no pretrained weights for {name}, so it knows no classes; use another model")
    try:
        model = timm.create_model(own, pretrained=name not in OFFLINE_MODELS)
    except OSError as error:  # every failure of the hub's downloads is one
        raise ConfigError(
            f"the weights of {name} are not on this machine and the hub cannot be reached; connect, or use one of "
            f"{', '.join(OFFLINE_MODELS)}"
        ) from error
    if name in OFFLINE_MODELS:
        model.load_state_dict(offline_tensors(name))
    return PretrainedClasses(model, layout=examine(own).layout)
