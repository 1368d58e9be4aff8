"""Zero-shot: train on labels as text, so that the model answers for labels that it never saw.

    manylabel train zero_shot --data voc:VOCdevkit/VOC2012 --unseen random:5 --out runs/zero_shot

Ridnik et al., "ML-Decoder", WACV 2023, Section 2.3.3: text queries, shared output weights, augmented queries. Decided
here: features of a frozen backbone instead of fine-tuning, all-MiniLM-L6-v2 instead of word vectors, vectors less their
mean, AdamW, binary cross-entropy. With ``--head.num_groups 20`` it decodes in groups; ``--head text_map`` and ``--head
conse`` are the simple ways to compare with. Nothing of unseen labels is trained on; pictures that show only unseen
labels are left out of training (``--pictures``). The model is judged by its seen labels while it trains, and by the
unseen ones once, in the end.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, cast

from msgspec.structs import replace
from torch import nn

from manylabel.classifier import Classifier
from manylabel.data import ImageDataset
from manylabel.errors import ConfigError
from manylabel.evaluation.scores import ScoredImages
from manylabel.evaluation.zero_shot import ZeroShotEvaluation, evaluate_zero_shot
from manylabel.features import CachedFeatures
from manylabel.heads import MLDecoder
from manylabel.losses import LOSSES
from manylabel.recipes.building import build_classifier, build_loss
from manylabel.recipes.loading import cache_sets, feature_loaders
from manylabel.recipes.new_label_bias import choose_bias, logits_of
from manylabel.recipes.reporting import Reporter
from manylabel.recipes.sets import TrainAndVal, sets_of_run, trained_sets
from manylabel.recipes.settings import RecipeSettings
from manylabel.recipes.unseen import choose_unseen, seen_part
from manylabel.storage import write_text
from manylabel.text import DEFAULT_ENCODER, TextVocabulary, check_templates, encode_labels, open_encoder, text_centre
from manylabel.training.fields import OneOf
from manylabel.training.fit import fit
from manylabel.training.processes import is_first_process
from manylabel.training.query_augmentation import AugmentedQueries, ZeroShotTask
from manylabel.training.run_folder import RunFolder
from manylabel.training.settings import AtLeastOne, NotNegative, Positive, Share
from manylabel.training.task import ClassificationTask
from manylabel.types import LabelSpace

__all__ = ["ZeroShot", "judge_unseen", "zero_shot"]

# The size is that of `linear_probe`: larger heads learn frozen features by heart.
OPEN_DECODER: Mapping[str, Any] = {"queries": "text", "shared_projection": True, "width": 256, "feedforward": 512}


@dataclass(frozen=True, kw_only=True)
class ZeroShot(RecipeSettings):
    """Settings of `zero_shot`.

    Examples:
        >>> ZeroShot(data="scenes:100").encoder
        'offline:minilm'
    """

    out: Path = Path("runs/zero_shot")
    """The run's folder: settings, numbers, state and the finished model."""

    head: Annotated[str, OneOf(["ml_decoder", "text_map", "conse"])] = "ml_decoder"
    """From feature maps to labels: ML-Decoder with text queries, or a baseline: a linear map into text space, ConSE."""

    unseen: str = "none"
    """Labels to keep for the final test: none, random:15, random:0.2, coco_65_15, nus_wide (925/81), a file, or names
    joined by |."""

    split_seed: Annotated[int, NotNegative] = 0
    """Fixes which labels random: draws."""

    pictures: Literal["with_seen", "without_unseen", "all"] = "with_seen"
    """Which pictures to train on: those with a seen label, those with no unseen one, or all. Unseen labels themselves
    are never trained on."""

    encoder: str = DEFAULT_ENCODER
    """What turns labels into vectors: offline:minilm, sentence:MODEL, glove:FILE, word2vec:FILE or npz:FILE."""

    templates: str | None = None
    """Sentences that a label is put into, joined by |, such as a photo of a {label}|a drawing of a {label}; what suits
    the encoder when left out. Their vectors are averaged, with that of the label's description where there is one."""

    random_queries: Annotated[int, NotNegative] = 0
    """Random queries beside those of the labels, for ML-Decoder, which learns to tell them. The paper has them and
    does not say how many; try 10. On our pictures they cost more than they gave, so they are off."""

    query_noise: Annotated[float, NotNegative] = 0.0
    """Noise on the text vectors, whose numbers are about 1, for ML-Decoder. The paper has it, try 0.1; off as above."""

    views: Annotated[int, AtLeastOne] = 1
    """How many views of each training picture to cache; the first is the picture as it is, the others are changed at
    random. Each costs a pass of all pictures through the backbone."""

    single_label: bool | None = False
    """Whether every picture has exactly one label; text queries are trained as if any number were there."""

    loss: Annotated[str, OneOf(("auto", *LOSSES))] = "binary_cross_entropy"
    """What is made small; the asymmetric loss takes many more steps to begin with text queries."""

    epochs: Annotated[int | None, AtLeastOne] = None
    """How often every picture is seen; when left out, 6 times, or more often where that were less than 200 steps."""

    batch_size: Annotated[int, AtLeastOne] = 32
    """Pictures per step, on each device."""

    learning_rate: Annotated[float, Positive] = 1e-3
    """The largest step size of the schedule."""

    ema_decay: Annotated[float, Share] = 0.997
    """Judge and save a moving average of the weights that keeps this share each step, once it had time to; 0 does not
    average."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.single_label:
            raise ConfigError("the recipe zero_shot trains with any number of labels a picture; leave single_label out")

    @property
    def caches_features(self) -> bool:
        """Whether pictures pass through the backbone once, and training works on what is kept of them."""
        return True

    def num_views(self, num_pictures: int) -> int:  # noqa: ARG002 (here it does not matter)
        """Return how many views of each training picture are kept, where there are so many pictures."""
        return self.views

    def unseen_labels(self, labels: LabelSpace) -> tuple[str, ...]:
        """Return the labels of the data that are not trained on."""
        return choose_unseen(self.unseen, labels, data=self.data, seed=self.split_seed)

    def train_part(self, dataset: ImageDataset) -> ImageDataset:
        """Return the seen labels of the pictures that are trained on."""
        return seen_part(dataset, self.unseen_labels(dataset.labels), pictures=self.pictures)

    def vocabulary(self, labels: LabelSpace) -> TextVocabulary:
        """Return how the labels to train on become vectors."""
        own = open_encoder(self.encoder).templates if self.templates is None else self.templates.split("|")
        centre = text_centre(open_encoder(self.encoder), labels, templates=own)
        return TextVocabulary(self.encoder, check_templates(own), trained=labels.names, centre=centre)

    def head_arguments(self, labels: LabelSpace) -> Mapping[str, Any]:
        """Return the arguments of a head with text vectors."""
        text = self.vocabulary(labels)
        vectors = encode_labels(open_encoder(self.encoder), labels, templates=text.templates, centre=text.centre)
        own = OPEN_DECODER if self.head == "ml_decoder" else {}
        return {**own, **self.head_settings, "text_vectors": vectors}


def zero_shot(
    settings: ZeroShot,
    *,
    sets: TrainAndVal | None = None,
    resume: bool = False,
    overwrite: bool = False,
    reporter: Reporter | None = None,
) -> RunFolder:
    """Train a head whose labels are text, on a frozen backbone.

    Args:
        settings: What to train on what.
        sets: The pictures with all labels, instead of those that the settings name.
        resume: Whether to go on with the run in the folder, if there is one.
        overwrite: Whether to throw away a run that is there.
        reporter: Told what happens; nothing is shown when left out.

    Returns:
        The run's folder, with the model in it, and zero_shot.json where some labels were kept unseen.
    """
    reporter = reporter or Reporter()
    run = RunFolder.open(settings.out, resume=resume, overwrite=overwrite)
    run.describe(settings, command=reporter.command, resume=resume)
    if run.is_finished:
        return reporter.finished(run)

    everything = sets_of_run(settings, sets, run)
    sets = trained_sets(settings, everything)
    model = build_classifier(settings, sets, frozen=True)
    model.text = settings.vocabulary(sets.train.labels)
    loss = build_loss(settings, single_label=False)
    reporter.start(model, sets)

    cached = cache_sets(model, sets, settings, progress=reporter.features)
    task = _make_task(settings, model.head, loss)
    fit(task, partial(feature_loaders, cached, settings), run=run, callbacks=reporter.callbacks)

    unseen = settings.unseen_labels(everything.train.labels)
    share = float(sets.train.targets.positives.mean() / len(sets.train))
    bias = choose_bias(model, cached.val, unseen=unseen, share=share)
    model.text = replace(model.text, new_label_bias=bias)
    if unseen and is_first_process():
        try:
            judged = judge_unseen(model, cached.val, everything.val, unseen=unseen)
        except ConfigError as error:  # the model is good all the same
            reporter.say(f"unseen labels are not judged: {error}")
        else:
            write_text(run.path / "zero_shot.json", json.dumps(judged.to_dict(), indent=2) + "\n", overwrite=True)
            reporter.say(judged.to_text())
    run.save(model)
    return reporter.finished(run)


def judge_unseen(
    model: Classifier, cached: CachedFeatures, dataset: ImageDataset, *, unseen: tuple[str, ...], draws: int = 1000
) -> ZeroShotEvaluation:
    """Judge a model by seen and unseen labels.

    Args:
        model: The trained classifier.
        cached: Features of the pictures.
        dataset: The same pictures, with all labels.
        unseen: The labels that it was not trained on.
        draws: How often the bootstrap draws for the intervals.
    """
    asked = model.with_labels(dataset.labels)
    names = {cached.dataset.pictures.name(row): row for row in range(len(cached))}
    order = [row for row in range(len(dataset)) if dataset.pictures.name(row) in names]  # without bad pictures
    whole = dataset.subset(order)
    rows = cached.subset([names[whole.pictures.name(row)] for row in range(len(whole))])
    targets, known = whole.targets.dense()
    plain = logits_of(asked, rows) - (0 if asked.label_bias is None else asked.label_bias.cpu())
    scored = ScoredImages.from_arrays(plain.sigmoid(), targets, labels=whole.labels, known=known)
    bias = 0.0 if model.text is None else model.text.new_label_bias
    return evaluate_zero_shot(scored, unseen=unseen, bias=bias, draws=draws)


def _make_task(settings: ZeroShot, head: nn.Module, loss: nn.Module) -> ClassificationTask:
    """Return a task with augmented queries where the head has queries, else a plain one."""
    if not hasattr(head, "decode"):
        return ClassificationTask(head, loss, settings=settings)
    augmented = AugmentedQueries(
        cast("MLDecoder", head), num_random=settings.random_queries, noise=settings.query_noise
    )
    return ZeroShotTask(augmented, loss, settings=settings)
