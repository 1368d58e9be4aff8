"""Prediction for any number of images: batch by batch on this machine, or on a Ray cluster."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from manylabel.builtin import DEFAULT_MODEL
from manylabel.engine import Engine, NamedImage, score_batch
from manylabel.errors import ConfigError
from manylabel.image_files import is_address
from manylabel.inference.engine import EngineName, engine_device, open_engine
from manylabel.inference.pipeline import PreparationPool, batched, prepare_batches
from manylabel.on_ray import map_on_ray
from manylabel.predictions import ImagePrediction, Predictions, TagChoice
from manylabel.system import default_workers, require

__all__ = ["predict_stream", "tag_with_ray"]

BATCHES_PER_TASK = 4  # per Ray replica: the next batch is decoded while one is scored


def predict_stream(
    engine: Engine, names: Iterable[str], *, batch_size: int = 32, num_workers: int | None = 0
) -> Iterator[Predictions]:
    """Predict the tags of many images, batch by batch, in constant memory; decoding and scoring overlap.

    Args:
        engine: Engine of `open_engine`.
        names: Paths and URLs; consumed lazily.
        batch_size: Images per batch.
        num_workers: Worker processes that decode images; 0 decodes in a thread, None takes `default_workers`.

    Yields:
        Predictions of each batch; unreadable images are recorded with an error.

    Examples:
        >>> from manylabel.builtin import sample_photos
        >>> engine = open_engine("builtin:coco80", engine="torch")
        >>> for batch in predict_stream(engine, [*map(str, sample_photos()), "no_such.jpg"], batch_size=3):
        ...     print([image.error for image in batch])
        [None, None, None]
        ['there is no such file']
    """
    images = ((name, name) for name in names)
    num_workers = default_workers(on_gpu=engine.on_gpu) if num_workers is None else num_workers
    for batch in prepare_batches(images, engine.spec.input_spec, batch_size=batch_size, num_workers=num_workers):
        yield score_batch(engine, batch)


def tag_with_ray(
    names: Iterable[str],
    *,
    model: str | Path = DEFAULT_MODEL,
    choice: TagChoice | None = None,
    engine: EngineName = "auto",
    labels: Sequence[str] | None = None,
    device: str = "auto",
    batch_size: int = 32,
    replicas: int | None = None,
    address: str | None = None,
) -> Iterator[list[ImagePrediction]]:
    """Tag images on a Ray cluster or in several local processes; same results as `predict_stream`.

    Only names and tags are transferred: every machine must see images and model under the same paths.

    Args:
        names: Paths and URLs; consumed lazily.
        model: Model, as in `open_engine`.
        choice: Rule that selects tags by their scores (default: the model's own thresholds).
        engine: Inference backend.
        labels: Labels to score instead of its own, for models with text queries.
        device: Torch device; ``"cuda"`` takes one GPU per replica, ``"auto"`` does if this machine has a GPU.
        batch_size: Images per batch.
        replicas: Number of model replicas (default: one per GPU if they run there, else one per CPU).
        address: Address of a Ray cluster, such as ``"auto"`` (default: start Ray on this machine).

    Returns:
        Results in chunks, in the order of the names.

    Raises:
        MissingExtraError: Ray is not installed.
        ConfigError: A setting is invalid.
        ModelFormatError: There is no such model.
        ClusterError: Ray is unavailable or its actors fail; raised during iteration.

    Examples:
        >>> tag_with_ray(["a.jpg"], replicas=0)
        Traceback (most recent call last):
        manylabel.errors.ConfigError: batch_size and replicas must be at least 1, got 32 and 0
    """
    if batch_size < 1 or (replicas is not None and replicas < 1):
        raise ConfigError(f"batch_size and replicas must be at least 1, got {batch_size} and {replicas}")
    require("ray", extra="ray")
    model = str(Path(model).resolve()) if Path(model).exists() else model  # actors run in another folder
    device = engine_device(model, device, engine=engine)
    on_gpu = device.startswith("cuda")
    load = partial(open_engine, model, labels=labels)
    # Opened here first: errors surface before Ray starts, and the model is exported only once on this machine.
    spec = load(engine="torch" if on_gpu else engine, device="cpu").spec
    choice = choice or TagChoice()
    choice.limits(spec)
    here = str(Path.cwd())
    images = ((name, name if is_address(name) else os.path.join(here, name)) for name in names)  # noqa: PTH118 - millions
    return map_on_ray(
        partial(_Replica, partial(load, engine=engine, device=device, num_threads=1), choice, batch_size),
        batched(images, BATCHES_PER_TASK * batch_size),
        replicas=replicas,
        gpus=int(on_gpu),
        address=address,
        advice="try again with --resume, or leave out --executor ray",
    )


class _Replica:
    """A model and its decoding process; an image that kills the process is recorded as unreadable.

    Args:
        load: Opens the model.
        choice: Rule that selects tags by their scores.
        batch_size: Images per batch.
    """

    def __init__(self, load: Callable[[], Engine], choice: TagChoice, batch_size: int) -> None:
        self.engine = load()
        self.choice = choice
        self.batch_size = batch_size
        self.pool = PreparationPool(1)

    def __call__(self, images: Sequence[NamedImage]) -> list[ImagePrediction]:
        """Tag images batch by batch, decoding the next batch meanwhile."""
        spec = self.engine.spec.input_spec
        prepared = [self.pool.submit(batch, spec) for batch in batched(images, self.batch_size)]
        scored = (score_batch(self.engine, batch.result()) for batch in prepared)
        tagged = (image for batch in scored for image in batch.tagged(self.choice))
        return [ImagePrediction(image.name, image.tags, image.error) for image in tagged]  # small: no scores, no labels
