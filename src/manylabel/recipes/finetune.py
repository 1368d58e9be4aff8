"""Fine-tuning: train the top of the backbone and the head on cached maps, or the whole network on augmented images.

    manylabel train coco:coco --recipe finetune --out runs/finetune
    manylabel train coco:coco --recipe finetune --preset ml_decoder --backbone tresnet_m.miil_in21k

The bottom of a pretrained backbone is frozen and runs once; its maps are cached, so an epoch costs only the top and the
head (``--train-from``). Cached maps are mirrored and cropped at random, batch-norm statistics are fixed, and the
learning rate of the top is lower than that of the head. ``--train-from all`` trains the whole network on images.

Presets are the settings of the papers and the authors' code; they train the whole network. Deviation: momentum does not
cycle with the learning rate. HSQ and Query2Label do not specify the warmup; it is that of ML-Decoder's code.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from manylabel.backbone import Backbone
from manylabel.backbone.split import Top
from manylabel.errors import ConfigError
from manylabel.metrics import mean_average_precision
from manylabel.recipes.loaders import cache_sets, make_loaders
from manylabel.recipes.recipe import Recipe, save_model, train_setup
from manylabel.recipes.reporter import Reporter
from manylabel.recipes.setup import Parts, Setup, TrainAndVal, build_classifier, build_loss, load_to_train
from manylabel.settings import Finetune, SelfDistillation
from manylabel.training import FreezeFirst, RunFolder
from manylabel.types import Batch, FeatureBatch

logger = logging.getLogger(__name__)

CACHE_BYTES = 20 * 10**9  # of all images, for an automatic cut
IMAGE_BYTES = 128_000  # of one image: reading more from a disk takes longer than the top
MAX_TOP_MACS = 0.5  # fraction of the multiply-accumulates, which each epoch pays
START_FRACTIONS = (0.0, 0.25, 0.5, 0.75)
TOP_SCALE, WHOLE_SCALE = 0.25, 0.05  # learning rate of the backbone relative to the head


class TopAndHead(nn.Module):
    """The trained part of a classifier: the top of its backbone and its head, which share their weights with it.

    Args:
        top: Top of the backbone, from `Backbone.split`.
        head: Head of the classifier.
        mirror: In training, mirror the maps of each image left to right with probability 0.5.
        crop: In training, cut one random window out of the maps of each batch, which also makes it faster; for
            backbones that take images of any size.
    """

    def __init__(self, top: Top, head: nn.Module, *, mirror: bool = False, crop: bool = False) -> None:
        super().__init__()
        self.backbone = top  # the name that selects its learning rate
        self.head = head
        self.mirror = mirror
        self.crop = crop

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        """Return logits ``[B, L]`` for the output of the bottom."""
        if self.training and self.mirror:
            features = self._mirrored(features)
        if self.training and self.crop:
            features = _cropped(features)
        logits: Tensor = self.head(self.backbone(features))
        return logits

    def _mirrored(self, features: Sequence[Tensor]) -> list[Tensor]:
        chosen = torch.rand(len(features[0]), 1, 1, 1, device=features[0].device) < 0.5
        *below, last = features
        mirrored = [*(maps.flip(3) for maps in below), self.backbone.mirror(last)]
        return [torch.where(chosen, *pair) for pair in zip(mirrored, features, strict=True)]


def _cropped(features: Sequence[Tensor]) -> list[Tensor]:
    """Cut one window, at least three quarters as high and wide, out of all maps; those below the cut are finer."""
    rows, columns = features[-1].shape[2:]
    (top, height), (left, width) = _window(rows), _window(columns)
    scales = [maps.shape[2] // rows for maps in features]
    return [
        maps[:, :, top * scale : (top + height) * scale, left * scale : (left + width) * scale]
        for maps, scale in zip(features, scales, strict=True)
    ]


def _window(length: int) -> tuple[int, int]:
    """Draw the start and the length of a window."""
    size = int(torch.randint(-(-3 * length // 4), length + 1, ()))
    return int(torch.randint(length - size + 1, ())), size


def choose_stage(
    settings: Finetune | SelfDistillation, backbone: Backbone, *, num_images: int, parts: Parts
) -> int | str | None:
    """Return the stage after which the backbone is trained, or None to train all of it.

    ``auto`` is the earliest stage whose maps take at most 20 GB for all images and 128 kB for one, and with at most
    half of the MACs above it. It is the whole network where that is impossible, or where the settings need images in
    every epoch: an untrained backbone, frozen epochs, new batch-norm statistics or a custom transform.

    Args:
        settings: Settings of the recipe.
        backbone: Backbone of the classifier.
        num_images: Number of training and validation images.
        parts: Objects passed from Python.

    Raises:
        ConfigError: A stage is named together with a setting that needs images in every epoch.
    """
    name = settings.train_from
    untrained = not settings.pretrained and getattr(settings, "start_from", None) is None
    needs_images = {
        "freeze_epochs": settings.freeze_epochs > 0,
        "keep_statistics=False": getattr(settings, "keep_statistics", None) is False,
        "transform": parts.transform is not None,
    }
    reasons = [setting for setting, is_set in needs_images.items() if is_set]
    if name == "all" or (name == "auto" and (untrained or reasons)):
        return None
    if reasons:
        raise ConfigError(
            f"train_from={name} trains on cached maps, but {', '.join(reasons)} needs images; set train_from to all"
        )
    if name != "auto":
        return int(name) if name.lstrip("-").isdecimal() else name
    limit, cuts = min(IMAGE_BYTES, CACHE_BYTES // num_images), backbone.cuts()
    for cut in cuts:
        if cut.num_bytes <= limit and cut.top_macs <= MAX_TOP_MACS:
            return cut.stage
    listed = "; ".join(f"{cut.name} ({cut.num_bytes:,} bytes, {cut.top_macs:.0%} of the MACs above)" for cut in cuts)
    logger.info("training the whole backbone: no cut has at most %s bytes per image; %s", f"{limit:,}", listed)
    return None


def _prepare(settings: Finetune, data: TrainAndVal, parts: Parts) -> Setup[Finetune]:
    if settings.start_from is None:
        model = build_classifier(settings, data.train, frozen=False, parts=parts)
    else:
        model = load_to_train(settings.start_from, data.train, image_size=settings.image_size, parts=parts)
    model.backbone.to(memory_format=torch.channels_last)  # 1.2 to 1.6 times as fast on a CPU
    model.backbone.keep_statistics(settings.keeps_statistics)
    setup = Setup(
        settings=settings,
        data=data,
        sets=data,
        model=model,
        loss=build_loss(settings, single_label=model.single_label, incomplete=data.train.incomplete, parts=parts),
        parts=parts,
        trained=model,
        backbone_scale=settings.backbone_scale or WHOLE_SCALE,
        augment=settings.augment,
    )
    stage = choose_stage(settings, model.backbone, num_images=len(data.train) + len(data.val), parts=parts)
    if stage is None:
        return setup
    bottom, top = model.backbone.split(stage, size=model.input_spec.size)
    crop = settings.augment and model.backbone.takes_any_size
    trained = TopAndHead(top, model.head, mirror=settings.augment, crop=crop)
    return replace(setup, cached=bottom, trained=trained, backbone_scale=settings.backbone_scale or TOP_SCALE)


def _train(setup: Setup[Finetune], run: RunFolder, reporter: Reporter) -> None:
    """Train the top of the backbone, or all of it, and the head."""
    settings, model = setup.settings, setup.model
    averages = settings.start_from is not None and settings.start_fraction != 0
    start = _copy_weights(model) if averages else None
    if isinstance(setup.trained, TopAndHead):
        reporter.say(f"training the head and the backbone above {setup.trained.backbone.cut.name}, on cached maps")
    freezing = [FreezeFirst(model.backbone, epochs=settings.freeze_epochs)] if settings.freeze_epochs else []
    train_setup(setup, run, reporter, callbacks=freezing)
    if start is not None:
        _average_with_start(setup, start, reporter)
    save_model(setup, run, reporter)


def _average_with_start(setup: Setup[Finetune], start: Mapping[str, Tensor], reporter: Reporter) -> None:
    """Average the trained weights with those before training, by the best fraction on the validation set."""
    settings, model, trained = setup.settings, setup.model, _copy_weights(setup.model)
    sets = setup.sets if setup.cached is None else cache_sets(setup, reporter)
    loader = make_loaders(sets, replace(settings, devices=1), model=model).val  # all images, in every process
    fractions = START_FRACTIONS if settings.start_fraction is None else (settings.start_fraction,)
    found = {}
    for fraction in fractions:
        model.load_state_dict(trained)
        mix_in(model, start, fraction=fraction)
        scored = _score(setup.trained, loader, single_label=model.single_label)
        found[fraction] = 100 * float(mean_average_precision(*scored)), scored
        reporter.say(f"mAP {found[fraction][0]:.2f} with a weight of {fraction:.0%} for start_from")
    best = max(found, key=lambda fraction: found[fraction][0])
    model.load_state_dict(trained)
    mix_in(model, start, fraction=best)
    reporter.scores.replace(*found[best][1])


@torch.inference_mode()
def _score(part: nn.Module, loader: Iterable[Batch | FeatureBatch], *, single_label: bool) -> tuple[Tensor, ...]:
    """Return the scores of all images, their targets, and which targets are known, ``[N, L]`` each."""
    part.eval()
    device = next(part.parameters()).device
    rows = []
    for batch in loader:
        inputs = batch.to(device)
        logits = part(inputs.features if isinstance(inputs, FeatureBatch) else inputs.images).float().cpu()
        rows.append((logits.softmax(dim=1) if single_label else logits.sigmoid(), batch.targets.bool(), batch.known))
    return tuple(map(torch.cat, zip(*rows, strict=True)))


def _copy_weights(model: nn.Module) -> dict[str, Tensor]:
    return {name: weights.clone() for name, weights in model.state_dict().items()}


def mix_in(model: nn.Module, weights: Mapping[str, Tensor], *, fraction: float) -> None:
    """Interpolate the weights of a model towards others, in place.

    Args:
        model: Model to change.
        weights: Other weights, as returned by `state_dict`.
        fraction: Weight of the other weights.

    Examples:
        >>> model = nn.Linear(1, 1)
        >>> _ = nn.init.constant_(model.weight, 4.0)
        >>> mix_in(model, {**model.state_dict(), "weight": torch.tensor([[2.0]])}, fraction=0.25)
        >>> model.weight.item()
        3.5
    """
    own = model.state_dict()
    mixed = {
        name: torch.lerp(own[name], other.to(own[name]), fraction) if other.is_floating_point() else own[name]
        for name, other in weights.items()
    }
    model.load_state_dict(mixed)


finetune = Recipe(Finetune, _train, _prepare)
