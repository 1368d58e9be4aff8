"""Zero-shot: train with labels as text queries, to predict labels unseen in training.

    manylabel train voc:VOCdevkit/VOC2012 --recipe zero_shot --unseen random:5 --out runs/zero_shot

Ridnik et al., "ML-Decoder", WACV 2023, Section 2.3.3: text queries, shared output weights, query augmentation.
Deviations: features of a frozen backbone instead of fine-tuning, all-MiniLM-L6-v2 instead of word vectors, centred text
vectors, AdamW, binary cross-entropy. ``--head.num_groups 20`` enables group decoding; ``--head text_map`` and ``--head
conse`` are baselines. Targets of unseen labels are never used in training; images with unseen labels only are excluded
(``--images``). Validation during training uses the seen labels; the unseen ones are evaluated once, at the end.

Pseudo-labels (``pseudo_labels: 256`` in a settings file, or from Python) train the queries on a large vocabulary: the
names of the classes that the backbone was pretrained on and of their WordNet groups, with the backbone's own
probabilities as targets, a random part of them in each batch. Not in the paper, which has 925 annotated labels.

Query augmentation adds random queries to those of the labels, with a positive target "random", and noise to the
queries. The paper leaves open how the target is realised; see `AugmentedQueries`.

Letters in shape comments: B images, N training images, L labels, K queries of labels, R random queries, D width, E text
dimensions, C classes of the backbone, V their names, Q names in a batch.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch
from msgspec.structs import replace
from torch import Tensor, nn

from manylabel.backbone import Backbone, load_classes
from manylabel.classifier.class_match import group_names
from manylabel.classifier.typed_labels import original_top
from manylabel.errors import ConfigError
from manylabel.features import CachedFeatures, FeatureLoader
from manylabel.heads import MLDecoder
from manylabel.heads.typed_labels import BIAS, SCALE, SMALLEST
from manylabel.recipes.loaders import cache_sets, make_loaders
from manylabel.recipes.recipe import Recipe
from manylabel.recipes.reporter import Reporter
from manylabel.recipes.setup import Parts, Setup, TrainAndVal, build_classifier, build_loss
from manylabel.recipes.unseen import choose_bias, choose_unseen, evaluate_unseen, seen_part
from manylabel.settings import ZeroShot
from manylabel.storage import write_text
from manylabel.text import TextVocabulary, check_templates, encode_labels, open_encoder, text_centre
from manylabel.training import ClassificationTask, RunFolder, fit, is_first_process
from manylabel.types import Batch, FeatureBatch, LabelSpace

# The head size of `probe`: larger heads overfit frozen features.
OPEN_DECODER: Mapping[str, Any] = {
    **MLDecoder.probe_defaults.settings,
    "queries": "text",
    "shared_projection": True,
    "add_csra": False,
}


def seen_sets(settings: ZeroShot, data: TrainAndVal) -> TrainAndVal:
    """Return the selected training images and all validation images, with seen labels only.

    Args:
        settings: Settings of the recipe.
        data: Training and validation set, with all labels.
    """
    unseen = _unseen(settings, data.train.labels)
    return TrainAndVal(seen_part(data.train, unseen, images=settings.training_images), data.val)


def _prepare(settings: ZeroShot, data: TrainAndVal, parts: Parts) -> Setup[ZeroShot]:
    sets = seen_sets(settings, data)
    labels, encoder = sets.train.labels, open_encoder(settings.encoder)
    own = encoder.templates if settings.templates is None else settings.templates.split("|")
    centre = text_centre(encoder, labels, templates=own)
    text = TextVocabulary(settings.encoder, check_templates(own), trained=labels.names, centre=centre)
    vectors = encode_labels(encoder, labels, templates=text.templates, centre=centre)
    defaults = OPEN_DECODER if settings.head == "ml_decoder" else {}
    arguments = {**defaults, **settings.head_settings, "text_vectors": vectors}
    model = build_classifier(settings, sets.train, frozen=True, parts=parts, head_arguments=arguments)
    model.text = text
    loss = build_loss(settings, single_label=False, incomplete=sets.train.incomplete, parts=parts)
    return Setup(settings, data, sets, model, loss, model.head, model.backbone, parts)


def _train(setup: Setup[ZeroShot], run: RunFolder, reporter: Reporter) -> None:
    """Train a head with text queries on a frozen backbone."""
    settings, model, sets = setup.settings, setup.model, setup.sets
    cached = cache_sets(setup, reporter)
    pseudo = None
    if settings.pseudo_labels and model.text is not None:
        pseudo = PseudoLabels.of_backbone(model.backbone, model.text, cached.train, size=model.input_spec.size)
    task = _make_task(settings, model.head, setup.loss, pseudo)
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


def _make_task(
    settings: ZeroShot, head: nn.Module, loss: nn.Module, pseudo: "PseudoLabels | None" = None
) -> ClassificationTask:
    """Return a task with query augmentation and pseudo-labels if the head can score other labels in training."""
    if not hasattr(head, "decode"):
        if pseudo is not None:
            raise ConfigError(f"pseudo_labels needs the head ml_decoder or text_map, got {settings.head}")
        return ClassificationTask(head, loss, settings=settings)
    num_random = settings.random_queries if hasattr(head, "width") else 0
    augmented = AugmentedQueries(cast("MLDecoder", head), num_random=num_random, noise=settings.query_noise)
    task = ZeroShotTask(augmented, loss, settings=settings)
    task.pseudo, task.num_pseudo = pseudo, settings.pseudo_labels
    return task


MOST_MEMBERS = 120
"""Classes of a WordNet group that is still a pseudo-label: "entity" and "animal" would say little."""


class PseudoLabels:
    """Names of the classes that a backbone knows, and its probabilities of them in each training image.

    Args:
        vectors: ``[V, E]``, a text vector per name.
        members: ``[V, C]``, 1 for the classes of each name.
        probabilities: ``[N, 2, C]``, those of the pooled map and of the best position of each class.
    """

    def __init__(self, vectors: Tensor, members: Tensor, probabilities: Tensor) -> None:
        self.vectors, self.members, self.probabilities = vectors, members, probabilities

    @classmethod
    def of_backbone(
        cls, backbone: Backbone, text: TextVocabulary, cached: CachedFeatures, *, size: tuple[int, int]
    ) -> "PseudoLabels":
        """Return the pseudo-labels of cached training images.

        Raises:
            ConfigError: The backbone's classes are not known, or training has changed the layers below them.
        """
        classes, encoder = load_classes(backbone.name), open_encoder(text.encoder)
        if original_top(backbone, size=size) != (None, None):
            raise ConfigError(
                f"pseudo_labels needs a backbone as it was pretrained, got {backbone.name}; use, for example, "
                "offline:efficientnet_lite0"
            )
        found = group_names(classes.synsets)
        for number, names in enumerate(classes.names):
            for name in names.split(", "):
                found.setdefault(name, set()).add(number)
        named = {name: list(rows) for name, rows in found.items() if len(rows) <= MOST_MEMBERS and encoder.reads(name)}
        vectors = encode_labels(encoder, LabelSpace(list(named)), templates=text.templates, centre=text.centre)
        members = torch.zeros(len(named), len(classes.names))
        for row, columns in enumerate(named.values()):
            members[row, columns] = 1
        parts = []
        for batch in FeatureLoader(cached, batch_size=64, view=0):
            pooled, local = classes(batch.features[-1])  # its weights are frozen: no graph
            parts.append(torch.stack([pooled.softmax(1), local.softmax(1).flatten(2).amax(2)], 1).half())
        return cls(vectors, members, torch.cat(parts))

    def sample(self, indices: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Return text vectors ``[Q, E]`` of random names, and their soft targets ``[B, Q]`` in some images.

        Scores are calibrated as those of typed labels.

        Args:
            indices: ``[B]``, positions of the training images.
            count: Number of names, Q.
        """
        chosen = torch.randperm(len(self.vectors))[:count]
        sums = self.probabilities[indices.cpu()].float() @ self.members[chosen].t()  # [B, 2, Q]
        targets = (SCALE * sums.clamp(SMALLEST, 1).log().mean(1) + BIAS).sigmoid()
        return self.vectors[chosen].to(indices.device), targets.to(indices.device)


def _unseen(settings: ZeroShot, labels: LabelSpace) -> tuple[str, ...]:
    """Return the unseen labels."""
    return choose_unseen(settings.unseen, labels, data=settings.data, seed=settings.split_seed)


class AugmentedQueries(nn.Module):
    """Head with query augmentation in training.

    Random queries are sampled for each batch from N(0, 1) in text space, about the scale of the label vectors. The
    target "random" has an output of its own, shared by all queries and discarded after training: 1 for random queries,
    0 for those of labels. The logit "present" of a random query is not trained. Noise from N(0, noise^2) is added to
    the text vectors, one sample per batch.

    Args:
        head: ML-Decoder with text queries and shared output weights; trained in place.
        num_random: Number of random queries per batch.
        noise: Standard deviation of the noise.

    Examples:
        >>> text = {"queries": "text", "shared_projection": True, "text_vectors": torch.randn(3, 8)}
        >>> model = AugmentedQueries(MLDecoder(8, 3, width=16, num_heads=2, **text), num_random=2, noise=0.1)
        >>> logits, random = model.augmented([torch.randn(4, 8, 2, 2)])
        >>> logits.shape, random.shape
        (torch.Size([4, 3]), torch.Size([4, 5]))
    """

    def __init__(self, head: MLDecoder, *, num_random: int = 0, noise: float = 0.0) -> None:
        super().__init__()
        self.head = head
        self.num_random, self.noise = num_random, noise
        self.is_random = nn.Linear(head.width, 1) if num_random else None

    def forward(self, features: Sequence[Tensor]) -> Tensor:
        """Return the logits ``[B, L]`` without augmentation."""
        logits: Tensor = self.head(features)
        return logits

    def augmented(self, features: Sequence[Tensor], more: Tensor | None = None) -> tuple[Tensor, Tensor | None]:
        """Return logits ``[B, L]`` with augmented queries and, for random queries, logits "random" ``[B, K + R]``.

        Args:
            features: Feature maps.
            more: ``[Q, E]``, text vectors of further labels; then the logits are ``[B, L + Q]``.
        """
        vectors = self.head.text_vectors
        if vectors is None:
            raise ConfigError("query augmentation needs text queries; set queries='text'")
        if more is not None:
            vectors = torch.cat([vectors, more])
        if self.noise:
            vectors = vectors + self.noise * torch.randn_like(vectors)
        extra = vectors.new_empty(self.num_random, vectors.shape[1]).normal_()  # [R, E]
        logits, hidden = self.head.decode(features, vectors, extra)
        return logits, None if self.is_random is None else self.is_random(hidden).squeeze(2)


class ZeroShotTask(ClassificationTask):
    """Task that trains a head with query augmentation; one loss covers the labels and the target "random"."""

    model: AugmentedQueries
    pseudo: PseudoLabels | None = None
    num_pseudo = 0

    def objective(self, batch: Batch | FeatureBatch) -> Tensor:
        """Return the loss of a batch of features."""
        if not isinstance(batch, FeatureBatch):
            raise ConfigError("query augmentation trains on cached features; pass batches of features")
        targets, known, more = batch.targets, batch.known, None
        if self.pseudo is not None:
            more, soft = self.pseudo.sample(batch.indices, self.num_pseudo)
            targets, known = (
                torch.cat([targets, soft], 1),
                torch.cat([known, torch.ones_like(soft, dtype=torch.bool)], 1),
            )
        logits, random = self.model.augmented(batch.features, more)
        if random is not None:
            is_random = torch.zeros_like(random)
            is_random[:, -self.model.num_random :] = 1
            logits, targets = torch.cat([logits, random], 1), torch.cat([targets, is_random], 1)
            known = torch.cat([known, torch.ones_like(is_random, dtype=torch.bool)], 1)
        loss: Tensor = self.loss(logits, targets, known)
        return loss
