"""Evaluation of a finished run on its validation set; scores are cached in the run folder."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import torch

from manylabel.builtin import MODEL_FILES
from manylabel.classifier import Classifier
from manylabel.cost import Cost, count_cost
from manylabel.data import ImageDataset
from manylabel.errors import ConfigError, ManyLabelError
from manylabel.evaluation import Evaluation, ScoredImages, evaluate, read_scores, save_scores, score
from manylabel.evaluation.scores import Progress
from manylabel.inference import open_engine
from manylabel.runs.run import Run

__all__ = ["EvaluatedRun", "evaluate_run"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class EvaluatedRun:
    """A run with its model and evaluation.

    Args:
        run: The run.
        model: Its model.
        train: The training set.
        val: The validation set.
        scored: Scores and targets of the validation set.
        evaluation: Evaluation of these scores.
        cost: MACs per image, and parameters.
    """

    run: Run
    model: Classifier
    train: ImageDataset
    val: ImageDataset
    scored: ScoredImages
    evaluation: Evaluation
    cost: Cost


def evaluate_run(
    run: Run,
    *,
    draws: int = 1000,
    seed: int = 0,
    batch_size: int = 32,
    num_workers: int | None = None,
    device: str = "auto",
    progress: Progress | None = None,
) -> EvaluatedRun:
    """Evaluate the model of a finished run on its validation set.

    Args:
        run: The run.
        draws: Number of bootstrap draws for the intervals; 0 for none.
        seed: Seed of the draws.
        batch_size: Images per batch.
        num_workers: Worker processes that decode images (default: half of the cores).
        device: Torch device; ``"auto"`` is a GPU if available.
        progress: Called after each batch with the number of images done and the total.

    Raises:
        ConfigError: The run is not finished.
        ManyLabelError: Its data cannot be opened, or its model cannot be read.
    """
    if not run.is_finished:
        raise ConfigError(f"the run {run.name} is not finished and has no model; resume it with --resume")
    model = Classifier.load(run.model)
    val = run.sets.val
    scored = _saved_scores(run, val)
    if scored is None:
        engine = open_engine(run.model, device=device, num_images=len(val))
        scored = score(engine, val, batch_size=batch_size, num_workers=num_workers, progress=progress)
        _save_scores(scored, run)
    scored = replace(scored, model=run.name, single_label=model.single_label)
    image = torch.zeros(1, 3, *model.input_spec.size)
    return EvaluatedRun(
        run=run,
        model=model,
        train=run.sets.train,
        val=val,
        scored=scored,
        evaluation=evaluate(scored, draws=draws, seed=seed),
        cost=count_cost(model, image),
    )


def _saved_scores(run: Run, dataset: ImageDataset) -> ScoredImages | None:
    """Return cached scores, unless the model or the images have changed."""
    saved = run.path / "scores.npz"
    changed = max((run.model / name).stat().st_mtime for name in MODEL_FILES)  # tune changes only the config
    if not saved.is_file() or saved.stat().st_mtime < changed:
        return None
    try:
        return read_scores(saved, dataset, name=run.name)
    except ManyLabelError:
        return None


def _save_scores(scored: ScoredImages, run: Run) -> None:
    try:
        save_scores(scored, run.path / "scores.npz", overwrite=True)
    except OSError as error:
        logger.warning("cannot cache scores in %s (%s); the next report will recompute them", run.path, error)
