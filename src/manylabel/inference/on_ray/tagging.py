"""Tagging on a cluster: Ray Data hands pictures to actors, each of which holds a model, decodes and tags.

The names of the pictures and their tags travel, never the pictures: every machine must see them under the same paths.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from manylabel.builtin import DEFAULT_MODEL
from manylabel.cluster import connected_to_ray
from manylabel.errors import ClusterError, ConfigError
from manylabel.inference.engine import EngineName
from manylabel.inference.on_ray.actors import TaggingActor, join_names, table_to_pictures
from manylabel.inference.on_ray.placed_model import PlacedModel
from manylabel.predictions import Prediction, TagChoice
from manylabel.system import require

__all__ = ["tag_with_ray"]

BATCHES_PER_TASK = 4  # of an actor: while one goes through the model, the next is decoded
ADVICE = "try again when the machine is less busy, or leave out --executor ray"


def tag_with_ray(
    names: Iterable[str],
    *,
    model: str | Path = DEFAULT_MODEL,
    choice: TagChoice | None = None,
    engine: EngineName = "auto",
    labels: Sequence[str] | None = None,
    device: str | None = None,
    batch_size: int = 32,
    replicas: int | None = None,
    address: str | None = None,
) -> Iterator[list[Prediction]]:
    """Tag pictures on a cluster, or in several processes of this machine, in their order.

    The tags are those of `Predictor.stream`. Names are listed before the first is tagged, and are all that is held of
    pictures that wait; tags are given as they come.

    Args:
        names: Paths and addresses.
        model: As `open_engine` takes it; a folder must be there on every machine.
        choice: Which scores become tags; by the model's own thresholds when left out.
        engine: What to run the model with.
        labels: Other labels than its own, for models that can tell labels they have not seen.
        device: Where torch runs the model; ``"cuda"`` sets a GPU aside for each replica.
        batch_size: Pictures that go through a model at once.
        replicas: How many models work at the same time; when left out, as many as there are GPUs for a model that runs
            on them, else as many as there are CPUs.
        address: That of a Ray cluster, such as ``"auto"``; Ray is started on this machine when left out.

    Returns:
        The tagged pictures, some at a time; those that cannot be read say why.

    Raises:
        MissingExtraError: Ray is not installed.
        ConfigError: A setting is wrong.
        ModelFormatError: There is no such model.
        ClusterError: Ray cannot be had, or its actors fail; raised when tags are taken.

    Examples:
        >>> tag_with_ray(["a.jpg"], replicas=0)
        Traceback (most recent call last):
        manylabel.errors.ConfigError: replicas must be at least 1, got 0
    """
    if batch_size < 1:
        raise ConfigError(f"batch_size must be at least 1, got {batch_size}")
    placed = PlacedModel(model, engine=engine, labels=labels, device=device)
    placed.fit(replicas)
    require("ray", extra="ray")
    choice = choice or TagChoice()
    choice.limits(placed.check())
    return _tag(names, placed, choice, batch_size, replicas, address)


def _tag(
    names: Iterable[str],
    placed: PlacedModel,
    choice: TagChoice,
    batch_size: int,
    replicas: int | None,
    address: str | None,
) -> Iterator[list[Prediction]]:
    """Do it, once all is known to be right."""
    with connected_to_ray(address, advice=ADVICE) as ray, _quiet():
        data = require("ray.data", extra="ray")
        room = placed.fit(replicas, None if address and replicas else ray.cluster_resources())
        # A row is the work of one task, so that batches are those of a single machine.
        waiting = [{"names": join_names(part)} for part in _parts(iter(names), BATCHES_PER_TASK * batch_size)]
        if not waiting:
            return
        dataset = data.from_items(waiting, override_num_blocks=len(waiting))
        dataset.context.execution_options.preserve_order = True
        dataset.context.enable_progress_bars = False
        tagged = dataset.map_batches(
            TaggingActor,
            fn_constructor_args=(placed, choice, batch_size, str(Path.cwd())),
            batch_size=1,
            batch_format="pyarrow",
            num_cpus=1,
            num_gpus=placed.num_gpus,
            compute=data.ActorPoolStrategy(size=min(len(waiting), room)),
        )
        try:
            for table in tagged.iter_batches(batch_size=None, batch_format="pyarrow"):
                yield table_to_pictures(table)
        except ray.exceptions.RayError as error:
            reason = str(error).strip().splitlines()[-1]
            raise ClusterError(f"tagging on Ray failed: {reason}; --resume goes on with the file of tags") from error


def _parts(names: Iterator[str], size: int) -> Iterator[list[str]]:
    while part := list(islice(names, size)):
        yield part


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep Ray Data's account of itself off the standard error, where ours goes."""
    logger = logging.getLogger("ray.data")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
