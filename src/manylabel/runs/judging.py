"""A finished run judged again on its held-out pictures; its scores are kept, so that this is slow only once."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from manylabel.classifier import MODEL_FILES, Classifier
from manylabel.cost import Cost, count_cost
from manylabel.data import ImageDataset
from manylabel.errors import ConfigError, ManyLabelError
from manylabel.evaluation import Evaluation, ScoredImages, evaluate, read_scores, save_scores, score
from manylabel.evaluation.scores import Progress
from manylabel.inference import open_engine
from manylabel.runs.run import Run

__all__ = ["JudgedRun", "judge_run"]

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class JudgedRun:
    """A run with its model, and what the model is worth.

    Args:
        run: The run.
        model: Its model.
        train: The pictures it trained on.
        held_out: The pictures it is judged by.
        scored: The scores of these, beside the truth.
        evaluation: How good they are, with intervals.
        cost: MACs for one picture, and parameters.
    """

    run: Run
    model: Classifier
    train: ImageDataset
    held_out: ImageDataset
    scored: ScoredImages
    evaluation: Evaluation
    cost: Cost


def judge_run(
    run: Run,
    *,
    draws: int = 1000,
    seed: int = 0,
    batch_size: int = 32,
    num_workers: int | None = None,
    device: str | None = None,
    progress: Progress | None = None,
) -> JudgedRun:
    """Judge the model of a finished run on the pictures that the run held out.

    Args:
        run: The run.
        draws: How often the bootstrap draws for the intervals; no intervals when 0.
        seed: Fixes the draws.
        batch_size: How many pictures go through the model at once.
        num_workers: Processes that decode images beside the main one (default: half of the cores).
        device: Where the model runs.
        progress: Called after each batch with the number of pictures done, and of all.

    Raises:
        ConfigError: The run is not finished.
        ManyLabelError: Its data cannot be opened, or its model cannot be read.
    """
    if not run.is_finished:
        raise ConfigError(f"the run {run.name} is not finished, so it has no model; go on with it (--resume)")
    model = Classifier.load(run.model)
    held_out = run.sets.val
    scored = _kept_scores(run, held_out)
    if scored is None:
        engine = open_engine(run.model, device=device, num_images=len(held_out))
        scored = score(engine, held_out, batch_size=batch_size, num_workers=num_workers, progress=progress)
        _keep_scores(scored, run)
    scored = replace(scored, model=run.name, single_label=model.single_label)
    image = torch.zeros(1, 3, *model.input_spec.size)
    return JudgedRun(
        run=run,
        model=model,
        train=run.sets.train,
        held_out=held_out,
        scored=scored,
        evaluation=evaluate(scored, draws=draws, seed=seed),
        cost=count_cost(model, image),
    )


def _kept(run: Run) -> Path:
    return run.path / "scores.npz"


def _kept_scores(run: Run, dataset: ImageDataset) -> ScoredImages | None:
    """Return the scores of an earlier report, unless the model or the pictures are others by now."""
    kept = _kept(run)
    changed = max((run.model / name).stat().st_mtime for name in MODEL_FILES)  # tune changes the config alone
    if not kept.is_file() or kept.stat().st_mtime < changed:
        return None
    try:
        found = read_scores(kept, dataset, name=run.name)
    except ManyLabelError:
        return None
    return found


def _keep_scores(scored: ScoredImages, run: Run) -> None:
    try:
        save_scores(scored, _kept(run), overwrite=True)
    except OSError as error:
        logger.warning("the scores could not be kept in %s (%s); the next report computes them again", run.path, error)
