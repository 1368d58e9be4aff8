"""Zero-shot: train with labels as text queries, to predict labels unseen in training.

    manylabel train voc:VOCdevkit/VOC2012 --recipe zero_shot --unseen random:5 --out runs/zero_shot

Ridnik et al., "ML-Decoder", WACV 2023, Section 2.3.3: text queries, shared output weights, query augmentation.
Deviations: features of a frozen backbone instead of fine-tuning, all-MiniLM-L6-v2 instead of word vectors, centred text
vectors, AdamW, binary cross-entropy. ``--head.num_groups 20`` enables group decoding; ``--head text_map`` and ``--head
conse`` are baselines. Targets of unseen labels are never used in training; images with unseen labels only are excluded
(``--images``). Validation during training uses the seen labels; the unseen ones are evaluated once, at the end.
"""

import json
from collections.abc import Mapping
from typing import Any, cast

from msgspec.structs import replace
from torch import nn

from manylabel.classifier import Classifier
from manylabel.data import ImageDataset
from manylabel.errors import ConfigError
from manylabel.evaluation.scores import ScoredImages
from manylabel.evaluation.zero_shot import ZeroShotEvaluation, evaluate_zero_shot
from manylabel.features import CachedFeatures
from manylabel.heads import MLDecoder
from manylabel.recipes.loaders import cache_sets, make_loaders
from manylabel.recipes.models import Parts, Setup, build_classifier, build_loss
from manylabel.recipes.recipe import Recipe
from manylabel.recipes.reporter import Reporter
from manylabel.recipes.sets import TrainAndVal
from manylabel.recipes.unseen import choose_bias, choose_unseen, logits_of, seen_part
from manylabel.settings import ZeroShot
from manylabel.storage import write_text
from manylabel.text import TextVocabulary, check_templates, encode_labels, open_encoder, text_centre
from manylabel.training import AugmentedQueries, ClassificationTask, RunFolder, ZeroShotTask, fit, is_first_process
from manylabel.types import LabelSpace

__all__ = ["evaluate_unseen", "seen_sets", "zero_shot"]

# The head size of `probe`: larger heads overfit frozen features.
OPEN_DECODER: Mapping[str, Any] = {"queries": "text", "shared_projection": True, **MLDecoder.probe_defaults.settings}


def seen_sets(settings: ZeroShot, data: TrainAndVal) -> TrainAndVal:
    """Return the selected training images and all validation images, with seen labels only.

    Args:
        settings: Settings of the recipe.
        data: Training and validation set, with all labels.
    """
    unseen = _unseen(settings, data.train.labels)
    return TrainAndVal(seen_part(data.train, unseen, images=settings.images), data.val)


def _prepare(settings: ZeroShot, data: TrainAndVal, parts: Parts) -> Setup[ZeroShot]:
    sets = seen_sets(settings, data)
    labels, text = sets.train.labels, _vocabulary(settings, sets.train.labels)
    vectors = encode_labels(open_encoder(settings.encoder), labels, templates=text.templates, centre=text.centre)
    own = OPEN_DECODER if settings.head == "ml_decoder" else {}
    arguments = {**own, **settings.head_settings, "text_vectors": vectors}
    model = build_classifier(settings, sets.train, frozen=True, parts=parts, head_arguments=arguments)
    model.text = text
    loss = build_loss(settings, single_label=False, parts=parts)
    return Setup(settings, data, sets, model, loss, model.head, model.backbone, parts)


def _train(setup: Setup[ZeroShot], run: RunFolder, reporter: Reporter) -> None:
    """Train a head with text queries on a frozen backbone."""
    settings, model, sets = setup.settings, setup.model, setup.sets
    cached = cache_sets(setup, reporter)
    task = _make_task(settings, model.head, setup.loss)
    fit(task, make_loaders(cached, settings, model=model), run=run, callbacks=reporter.callbacks)

    unseen = _unseen(settings, setup.data.train.labels)
    frequency = float(sets.train.targets.positives.mean() / len(sets.train))
    bias = choose_bias(model, cached.val, unseen=unseen, fraction=frequency)
    model.text = None if model.text is None else replace(model.text, new_label_bias=bias)
    if unseen and is_first_process():
        try:
            result = evaluate_unseen(model, cached.val, setup.data.val, unseen=unseen)
        except ConfigError as error:  # still save the model
            reporter.say(f"unseen labels are not evaluated: {error}")
        else:
            write_text(run.path / "zero_shot.json", json.dumps(result.to_dict(), indent=2) + "\n", overwrite=True)
            reporter.say(result.to_text())
    run.save(model)


zero_shot = Recipe(ZeroShot, _train, _prepare, files=frozenset({"zero_shot.json"}))


def evaluate_unseen(
    model: Classifier, cached: CachedFeatures, dataset: ImageDataset, *, unseen: tuple[str, ...], draws: int = 1000
) -> ZeroShotEvaluation:
    """Evaluate a model on seen and unseen labels.

    Args:
        model: Trained classifier.
        cached: Features of the validation images.
        dataset: Validation set with all labels.
        unseen: Unseen labels.
        draws: Number of bootstrap samples for the confidence intervals.
    """
    queried = model.with_labels(dataset.labels)
    names = {cached.dataset.images.name(row): row for row in range(len(cached))}
    order = [row for row in range(len(dataset)) if dataset.images.name(row) in names]  # without unreadable images
    whole = dataset.subset(order)
    rows = cached.subset([names[whole.images.name(row)] for row in range(len(whole))])
    targets, known = whole.targets.dense()
    plain = logits_of(queried, rows) - (0 if queried.label_bias is None else queried.label_bias.cpu())
    scored = ScoredImages.from_arrays(plain.sigmoid(), targets, labels=whole.labels, known=known)
    bias = 0.0 if model.text is None else model.text.new_label_bias
    return evaluate_zero_shot(scored, unseen=unseen, bias=bias, draws=draws)


def _make_task(settings: ZeroShot, head: nn.Module, loss: nn.Module) -> ClassificationTask:
    """Return a task with query augmentation if the head has queries, else a plain one."""
    if not hasattr(head, "decode"):
        return ClassificationTask(head, loss, settings=settings)
    augmented = AugmentedQueries(
        cast("MLDecoder", head), num_random=settings.random_queries, noise=settings.query_noise
    )
    return ZeroShotTask(augmented, loss, settings=settings)


def _unseen(settings: ZeroShot, labels: LabelSpace) -> tuple[str, ...]:
    """Return the unseen labels."""
    return choose_unseen(settings.unseen, labels, data=settings.data, seed=settings.split_seed)


def _vocabulary(settings: ZeroShot, labels: LabelSpace) -> TextVocabulary:
    """Return the text encoder settings for the seen labels."""
    encoder = open_encoder(settings.encoder)
    own = encoder.templates if settings.templates is None else settings.templates.split("|")
    centre = text_centre(encoder, labels, templates=own)
    return TextVocabulary(settings.encoder, check_templates(own), trained=labels.names, centre=centre)
