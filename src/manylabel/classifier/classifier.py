"""`Classifier`: a backbone, a head and the labels, in one module that predicts, saves and loads.

Letters in shape comments: B images, L labels, H and W pixels.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias, cast

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from manylabel.backbone import Backbone, check_tensors, fingerprint_weights
from manylabel.builtin import CLIP, find_model
from manylabel.classifier.engine import ScoreCalibration, TorchEngine
from manylabel.classifier.model_folder import BackboneConfig, ModelConfig, SavedModel, read_model, write_model
from manylabel.classifier.typed_labels import TypedLabel, add_typed_labels
from manylabel.clip import ClipEncoder, ImageTextMatch, ImageTower
from manylabel.engine import Images
from manylabel.errors import ConfigError, MissingExtraError, ModelFormatError
from manylabel.heads.config import build_head, describe_head, restore_head
from manylabel.heads.head import as_open_vocabulary, stages_of
from manylabel.predictions import InferenceSpec, Predictions
from manylabel.storage import write_text
from manylabel.text import TextEncoder, TextVocabulary
from manylabel.types import InputSpec, LabelSpace

logger = logging.getLogger(__name__)

HeadFactory: TypeAlias = Callable[..., nn.Module]

MAX_SCORES = 32_000  # images x text labels in a batch: about a gigabyte


class Classifier(nn.Module):
    """A multi-label image classifier: a backbone, a head, and the labels.

    Args:
        backbone: Maps images to feature maps.
        head: Maps feature maps to logits, one per label; any module with ``head(features) -> [B, L]``.
        labels: The labels, in the order of the logits.
        single_label: Whether every image has exactly one label; scores are then a softmax.
        thresholds: Minimum score of each label to count as present (default: 0.5 for all).
        calibration: Calibration of the scores (default: none).
        input_spec: Size and normalisation of images (default: the backbone's, without its centre crop, which would
            cut off objects at the edge).
        text: Text encoder of the labels, for heads with text queries; required by `with_labels`.

    Attributes:
        run_folder: Folder of the run that trained it, if it was trained or loaded from there.
        typed_labels: What is known about each label, for a classifier of fixed labels that was given others.

    Raises:
        ConfigError: The settings contradict each other.

    Examples:
        >>> import numpy as np
        >>> from manylabel import heads
        >>> model = Classifier.create(
        ...     "resnet10t", head=heads.LinearClassifier, labels=["cat", "dog"], pretrained=False, image_size=64
        ... )
        >>> model.predict(np.zeros((80, 60, 3), dtype=np.uint8)).scores.shape
        (1, 2)
    """

    def __init__(
        self,
        backbone: Backbone,
        head: nn.Module,
        labels: LabelSpace | Sequence[str],
        *,
        single_label: bool = False,
        thresholds: Sequence[float] | None = None,
        calibration: ScoreCalibration | None = None,
        input_spec: InputSpec | None = None,
        text: TextVocabulary | None = None,
    ) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = head
        self.labels = labels if isinstance(labels, LabelSpace) else LabelSpace(labels)
        self.single_label = single_label
        self.thresholds = None if thresholds is None else tuple(map(float, thresholds))
        self.calibration = calibration
        self.input_spec = input_spec or backbone.input_spec.uncropped()
        self.text = text
        self.run_folder: Path | None = None
        self.typed_labels: tuple[TypedLabel, ...] = ()
        self.label_bias: Tensor | None
        self.register_buffer("label_bias", None if text is None else text.bias(self.labels), persistent=False)
        outputs = getattr(head, "num_labels", None)
        if isinstance(outputs, int) and outputs != len(self.labels):
            raise ConfigError(f"the head has {outputs} outputs, but there are {len(self.labels)} labels")
        scales = None if calibration is None else calibration.scale
        for what, values in (("threshold", self.thresholds), ("scale", scales)):
            if values is not None and len(values) != len(self.labels):
                raise ConfigError(f"there must be one {what} for each of {len(self.labels)} labels, got {len(values)}")
        if not all(0 <= threshold <= 1 for threshold in self.thresholds or ()):
            raise ConfigError("thresholds must be in 0..1, as scores are")

    @classmethod
    def create(
        cls,
        backbone: str,
        *,
        head: HeadFactory,
        labels: LabelSpace | Sequence[str],
        head_settings: Mapping[str, Any] | None = None,
        pretrained: bool = True,
        frozen: bool = False,
        image_size: int | None = None,
        single_label: bool = False,
    ) -> Classifier:
        """Create a classifier from a backbone and an untrained head.

        Args:
            backbone: Name of a timm model, or of an offline model such as ``offline:efficientnet_lite0``.
            head: Class of the head; called with ``in_channels``, ``num_labels`` and `head_settings`.
            labels: The labels.
            head_settings: Further arguments of the head.
            pretrained: Whether to initialise the backbone with pretrained weights.
            frozen: Whether to keep the backbone fixed during training.
            image_size: Height and width of images in pixels (default: the backbone's).
            single_label: Whether every image has exactly one label.

        Examples:
            >>> from manylabel import heads
            >>> model = Classifier.create("resnet10t", head=heads.MLDecoder, labels=["cat", "dog"], pretrained=False)
            >>> model.head.in_channels
            512
        """
        labels = labels if isinstance(labels, LabelSpace) else LabelSpace(labels)
        settings = head_settings or {}
        stages = stages_of(head, settings)
        body = Backbone(backbone, pretrained=pretrained, frozen=frozen, stages=stages, image_size=image_size)
        top = build_head(head, body, num_labels=len(labels), settings=settings)
        return cls(body, top, labels, single_label=single_label)

    def forward(self, images: Tensor) -> Tensor:
        """Return logits ``[B, L]`` for normalised images ``[B, 3, H, W]``."""
        return self.classify(self.backbone(images))

    def classify(self, features: Sequence[Tensor]) -> Tensor:
        """Return logits ``[B, L]`` for the feature maps of the backbone, with the bias of labels unseen in training."""
        logits: Tensor = self.head(features)
        return logits if self.label_bias is None else logits + self.label_bias

    def scores(self, logits: Tensor) -> Tensor:
        """Return probabilities for logits: calibrated, then softmax for single-label models, else sigmoid."""
        logits = logits if self.calibration is None else self.calibration.apply(logits)
        return logits.softmax(dim=-1) if self.single_label else logits.sigmoid()

    @property
    def spec(self) -> InferenceSpec:
        """Labels, preprocessing and thresholds."""
        return InferenceSpec(self.labels, self.input_spec, self.thresholds, single_label=self.single_label)

    def predict(
        self,
        images: Images,
        *,
        labels: LabelSpace | Sequence[str] | None = None,
        batch_size: int = 32,
    ) -> Predictions:
        """Predict the tags of one or more images.

        Args:
            images: A file, a folder (recursively), encoded bytes, a PIL image, a uint8 array ``[H, W, 3]``, a tensor
                ``[3, H, W]`` (uint8 or 0..1), any mix of these in a list, or a dataset of `manylabel.data`.
            labels: Labels to score instead of the model's own, possibly new ones; see `with_labels`.
            batch_size: Number of images per batch.

        Returns:
            Scores of every image and label, and tags; an unreadable image is recorded at its position.

        Raises:
            ConfigError: Other labels are given, but the model can predict its own only.
        """
        if labels is not None:
            other = self.with_labels(labels)
            few = max(1, min(batch_size, MAX_SCORES // len(other.labels)))
            return other.predict(images, batch_size=few)
        if not len(self.labels):
            raise ConfigError("this model has no labels of its own; give them, such as labels=['zebra', 'sunset']")
        was_training = self.training
        try:
            return TorchEngine(self, fuse=False).predict(images, batch_size=batch_size)
        finally:
            self.train(was_training)

    def with_labels(self, labels: LabelSpace | Sequence[str], *, encoder: TextEncoder | None = None) -> Classifier:
        """Return a classifier for other labels, trained or new, with the same weights.

        A model with text queries encodes new labels with its text encoder. Any other model keeps its trained outputs
        for its own labels and their synonyms, and matches new ones to the classes that its backbone was pretrained on;
        `typed_labels` of the result lists what is known about each. Duplicates are merged.

        Args:
            labels: Names, or a `LabelSpace` with descriptions, which are encoded as well.
            encoder: Text encoder for new labels (default: the model's own, else offline:minilm).

        Returns:
            The classifier, with the same weights. New labels of a model with text queries have a threshold of 0.5; so
            do all labels if its head scores new labels differently, as ConSE does.

        Raises:
            ConfigError: The model has no text queries, and its backbone knows no classes.
            LabelError: The list is empty, or a label is blank.

        Examples:
            >>> import torch
            >>> from manylabel import heads
            >>> from manylabel.text import StoredVectors
            >>> vectors = {"text_vectors": torch.randn(2, 8)}
            >>> trained = TextVocabulary("npz:vectors.npz", ("{label}",), trained=("cat", "dog"))
            >>> model = Classifier.create(
            ...     "resnet10t", head=heads.TextMap, labels=["cat", "dog"], head_settings=vectors, pretrained=False
            ... )
            >>> model.text = trained
            >>> model.with_labels(["tram", "dog"], encoder=StoredVectors(["tram"], torch.randn(1, 8))).labels.names
            ('tram', 'dog')
        """
        wanted = self.labels.resolve(labels)
        head = as_open_vocabulary(self.head)
        known = None if head is None else head.text_vectors
        if head is None:
            return add_typed_labels(self, wanted, encoder)
        if known is None or self.text is None:
            raise ConfigError(
                f"this model ({type(self.head).__name__}) knows only the {len(self.labels)} labels it was trained "
                "on: its text encoder is not recorded; to predict any label, use the recipe zero_shot"
            )
        vectors = self.text.vectors(wanted, known=self.labels, vectors=known, encoder=encoder)
        new_head, limits, calibration = head.with_text(vectors), self.thresholds, self.calibration
        if (limits or calibration) and getattr(new_head, "num_trained", None) != getattr(head, "num_trained", None):
            logger.warning("thresholds and calibration are dropped: this head scores other labels differently")
            limits = calibration = None
        own = None if limits is None else dict(zip(self.labels, limits, strict=True))
        other = self._like(
            self.backbone,
            new_head,
            labels=wanted,
            thresholds=None if own is None else [own.get(name, 0.5) for name in wanted],
            calibration=None if calibration is None else calibration.for_labels(self.labels, wanted),
        )
        return other.train(self.training)

    def fuse(self) -> Classifier:
        """Return a copy for inference, frozen and with batch norm folded into the convolutions.

        Further training of the original does not affect the copy.

        Examples:
            >>> import torch
            >>> from manylabel import heads
            >>> model = Classifier.create("resnet10t", head=heads.LinearClassifier, labels=["cat"], pretrained=False)
            >>> images = torch.rand(1, 3, 64, 64)
            >>> torch.allclose(model.eval()(images), model.fuse()(images), atol=1e-4)
            True
        """
        head = copy.deepcopy(self.head).requires_grad_(False)
        return self._like(self.backbone.fuse(channels_last=True), head).eval()

    def _like(self, backbone: Backbone, head: nn.Module, **changes: Any) -> Classifier:  # noqa: ANN401 (any setting)
        """Return a classifier with other modules, on the same device, with the same settings except `changes`."""
        names = ("labels", "single_label", "thresholds", "calibration", "input_spec", "text")
        settings = {name: getattr(self, name) for name in names} | changes
        return Classifier(backbone, head, **settings).to(next(self.parameters()).device)

    def save_pretrained(
        self, folder: str | Path, *, include_backbone: bool = True, half: bool = False, overwrite: bool = False
    ) -> Path:
        """Save the classifier to a folder of tensors and JSON.

        Args:
            folder: Destination.
            include_backbone: Whether to include the backbone's weights. Without them, loading uses the pretrained
                weights of the same name, from the hub if necessary, and verifies their fingerprint.
            half: Whether to round weights to float16, which halves the size; loading returns float32.
            overwrite: Whether to replace an existing folder.

        Returns:
            The folder.
        """
        backbone = self.backbone
        if self.typed_labels:
            raise ConfigError("typed labels are not saved; save the model itself, and give the labels when predicting")
        backbone.check_name()
        fingerprint = None if include_backbone else fingerprint_weights(backbone)
        config = ModelConfig(
            backbone=BackboneConfig(
                backbone.name, backbone.frozen, tuple(backbone.stages), backbone.image_size, fingerprint
            ),
            head=describe_head(self.head),
            input=self.input_spec,
            single_label=self.single_label,
            thresholds=self.thresholds,
            text=self.text,
            calibration=self.calibration,
        )
        tensors = {
            name: tensor.half() if half and tensor.is_floating_point() else tensor
            for name, tensor in self.state_dict().items()
            if include_backbone or not name.startswith("backbone.")
        }
        return write_model(SavedModel(config, self.labels, tensors), folder, overwrite=overwrite)

    @classmethod
    def from_pretrained(
        cls, name: str | Path, *, revision: str | None = None, head: type[nn.Module] | None = None
    ) -> Classifier:
        """Load a classifier from a folder, this package or the Hugging Face hub, and validate everything in it.

        From a folder, nothing is downloaded, except a backbone that was saved with ``include_backbone=False``.

        Args:
            name: Model or run folder, ``"builtin:everyday"``, a repository such as ``"someone/street-tagger"``, or
                ``"clip:ViT-B-16-SigLIP"``, an image-text model of open_clip, which has no labels of its own.
            revision: Branch, tag or commit of the repository.
            head: Class of a custom head; code is never imported because a file names it.

        Returns:
            The classifier, in eval mode, on the CPU.

        Raises:
            ModelFormatError: The model is missing, damaged, not one of manylabel, or from a newer version.
        """
        if str(name).startswith(CLIP):
            tower = ImageTower(str(name))
            text = TextVocabulary(str(name), ClipEncoder.templates, trained=())
            top = ImageTextMatch.of_model(str(name))
            return cls(cast("Backbone", tower), top, (), input_spec=tower.input_spec, text=text).eval()
        folder = find_model(name, revision=revision)
        saved = read_model(folder)
        try:
            classifier = _restore(cls, saved, head)
        except (MissingExtraError, ModelFormatError):
            raise
        except Exception as error:  # damaged settings can make a constructor fail in any way
            reason = " ".join(str(error).split())[:300] or type(error).__name__
            raise ModelFormatError(f"{folder} cannot be loaded: {reason}") from error
        if (folder.parent / "validation.json").is_file():
            classifier.run_folder = folder.parent
        return classifier

    def push_to_hub(
        self,
        name: str,
        *,
        licence: str | None = None,
        run: str | Path | None = None,
        private: bool = False,
        message: str = "Upload a manylabel model",
    ) -> str:
        """Upload the classifier to the Hugging Face hub, with a model card.

        Args:
            name: Repository, such as ``"someone/street-tagger"``; created if it does not exist.
            licence: Licence of the model, an identifier of the hub such as ``"apache-2.0"`` (default: not stated).
            run: Run folder whose validation metrics the card states (default: `run_folder`).
            private: Whether only you can see it.
            message: Commit message.

        Returns:
            The URL of the commit.

        Raises:
            ConfigError: The run has no validation metrics.
        """
        from huggingface_hub import HfApi  # here: nothing else needs the hub

        from manylabel.classifier.model_card import model_card, read_validation

        run = self.run_folder if run is None else run
        card = model_card(
            name,
            self.spec,
            architecture=f"{type(self.head).__name__} on {self.backbone.name}",
            validation=None if run is None else read_validation(Path(run)),
            licence=licence,
        )
        hub = HfApi()
        with TemporaryDirectory() as folder:
            saved = self.save_pretrained(Path(folder) / "model")
            write_text(saved / "README.md", card)
            hub.create_repo(name, private=private, exist_ok=True)
            return str(hub.upload_folder(folder_path=saved, repo_id=name, commit_message=message).commit_url)


class _Restoration(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch leaves it untyped
    """Build modules without random initialisation and within a memory limit; their weights are loaded next.

    A constructor may not allocate much more than the saved weights: 3 kB on disk must not allocate 100 GB.
    """

    random = (torch.ops.aten.uniform_.default, torch.ops.aten.normal_.default)

    def __init__(self, num_bytes: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch leaves it untyped
        self.bytes_left = num_bytes

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # noqa: ANN401 - as in torch
        if operation in self.random:
            return args[0].zero_()  # `trunc_normal_` draws again until it likes the values
        options = kwargs or {}
        makes_tensor = not any(isinstance(value, Tensor) for value in tree_leaves((args, options)))
        if makes_tensor and str(options.get("device")) != "meta":
            shape = next((value for value in args if isinstance(value, list | tuple)), args)
            numbers = [max(1, value) for value in shape if isinstance(value, int)]
            self.bytes_left -= 10_000 + 4 * math.prod(numbers)  # many small tensors take time, too
        if self.bytes_left < 0:
            raise ModelFormatError("config.json describes a larger model than the weights; it is damaged")
        return operation(*args, **options)


def _restore(kind: type[Classifier], saved: SavedModel, head: type[nn.Module] | None) -> Classifier:
    """Build a saved classifier, load its weights and test it once."""
    config, labels = saved.config, saved.labels
    body = config.backbone
    outputs = config.head.settings.get("num_labels", len(labels))
    if outputs != len(labels):
        raise ModelFormatError(f"labels.json has {len(labels)} labels, but the head has {outputs!r:.50} outputs")
    options: dict[str, Any] = {"frozen": body.frozen, "stages": body.stages, "image_size": body.image_size}
    named = None if saved.includes_backbone else _named_backbone(body, options)
    # torchvision builds classifiers, of up to 500 MB in VGG, which are not used
    slack = 640_000_000 if body.name.startswith("torchvision:") else 64_000_000
    with _Restoration(slack + sum(40_000 + 4 * tensor.nbytes for tensor in saved.tensors.values())):
        backbone = named or Backbone(body.name, pretrained=False, **options)
        top = restore_head(config.head, head)
    model = kind(
        backbone,
        top,
        labels,
        single_label=config.single_label,
        thresholds=config.thresholds,
        calibration=config.calibration,
        input_spec=config.input,
        text=config.text,
    )
    own = model.state_dict()
    expected = {name: own[name] for name in own if named is None or not name.startswith("backbone.")}
    check_tensors(saved.tensors, expected, source="model.safetensors", model="its config.json")
    own.update(saved.tensors)  # it knows the versions of modules, as files do not
    model.load_state_dict(own)
    model.eval()
    shapes = zip(backbone.channels, backbone.strides, strict=True)
    with torch.inference_mode():
        logits = model.classify([torch.zeros(1, channels, *[max(1, 64 // stride)] * 2) for channels, stride in shapes])
    if logits.shape != (1, len(labels)):
        raise ModelFormatError(f"labels.json has {len(labels)} labels, but the head returns {list(logits.shape)}")
    return model


def _named_backbone(config: BackboneConfig, options: Mapping[str, Any]) -> Backbone:
    """Return a backbone with the pretrained weights of its name, which the model folder does not include."""
    logger.info("the model does not include the weights of %s; loading them by name", config.name)
    try:
        backbone = Backbone(config.name, **options)
    except ConfigError as error:
        raise ModelFormatError(f"the model was saved without the weights of its backbone: {error}") from error
    if fingerprint_weights(backbone) != config.fingerprint:
        raise ModelFormatError(
            f"the weights of {config.name} on this machine differ from those the model was trained with; "
            "save the model again with include_backbone=True where it was trained"
        )
    return backbone
