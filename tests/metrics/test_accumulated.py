"""Accumulated metrics: batches and processes change nothing."""

import os
import socket

import pytest
import torch
import torch.distributed
import torch.multiprocessing
from torchmetrics import MetricCollection

from manylabel.errors import ConfigError
from manylabel.metrics import (
    AccumulatedMetric,
    calibration_error,
    coverage,
    hamming_loss,
    mean_average_precision,
    one_error,
    precision_recall,
    ranking_loss,
    subset_accuracy,
    top_one_accuracy,
)

CASES = {
    "map": (mean_average_precision, {"interpolation": "all_points"}),
    "calibration": (calibration_error, {"num_bins": 10}),
    "coverage": (coverage, {}),
    "hamming": (hamming_loss, {"threshold": 0.3}),
    "one_error": (one_error, {}),
    "ranking": (ranking_loss, {}),
    "subset": (subset_accuracy, {"threshold": 0.7}),
}


def _metrics():
    cases = CASES | {"f1": (precision_recall, {})}
    return MetricCollection({name: AccumulatedMetric(function, **given) for name, (function, given) in cases.items()})


def _work(rank, port, case, results):
    torch.set_num_threads(1)  # the threads of the parent are not in its fork
    torch.distributed.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    metrics = _metrics()
    part = slice(0, 23) if rank == 0 else slice(23, None)  # unequal parts
    metrics.update(*(matrix[part] for matrix in case))
    results.put({name: value.item() for name, value in metrics.compute().items()})
    torch.distributed.destroy_process_group()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="new processes would import torch again, for many seconds")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_two_processes_are_one(random_case):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    results = torch.multiprocessing.get_context("fork").SimpleQueue()
    torch.multiprocessing.start_processes(_work, args=(port, random_case, results), nprocs=2, start_method="fork")
    alone = _metrics()
    alone.update(*random_case)
    expected = {name: value.item() for name, value in alone.compute().items()}
    assert [results.get(), results.get()] == [pytest.approx(expected), pytest.approx(expected)]


@pytest.mark.parametrize("name", CASES)
def test_batches_are_the_whole(name, random_case):
    function, settings = CASES[name]
    metric = AccumulatedMetric(function, **settings)
    for start in range(0, 60, 17):
        metric.update(*(matrix[start : start + 17] for matrix in random_case))
    assert metric.compute().item() == pytest.approx(function(*random_case, **settings).item(), abs=1e-6)


def test_some_batches_may_know_everything(random_case):
    scores, targets, known = random_case
    metric = AccumulatedMetric(mean_average_precision)
    metric.update(scores[:30], targets[:30])
    metric.update(scores[30:], targets[30:], known[30:])
    together = torch.cat([torch.ones_like(known[:30]), known[30:]])
    assert metric.compute().item() == pytest.approx(mean_average_precision(scores, targets, together).item())


def test_precision_and_recall_come_under_the_names_of_the_papers(random_case):
    metric = AccumulatedMetric(precision_recall, threshold=0.4)
    metric.update(*random_case)
    result = precision_recall(*random_case, threshold=0.4)
    values = {name: value.item() for name, value in metric.compute().items()}
    assert list(values) == ["CP", "CR", "CF1", "OP", "OR", "OF1"]
    assert values["CF1"] == pytest.approx(result.class_f1.item())
    assert values["OR"] == pytest.approx(result.overall_recall.item())


def test_top_one_over_batches():
    metric = AccumulatedMetric(top_one_accuracy)
    scores, targets = torch.eye(4), torch.eye(4).flip(0)
    metric.update(scores[:2], targets[:2])
    metric.update(scores[2:], scores[2:])
    assert metric.compute().item() == 0.5
    assert top_one_accuracy(scores, scores).item() == 1


def test_a_collection_keeps_what_it_collects_once(random_case):
    metrics = _metrics()
    metrics.update(*random_case)
    assert len(metrics.compute_groups) == 1


def test_reset_forgets(random_case):
    metric = AccumulatedMetric(mean_average_precision)
    metric.update(*random_case)
    metric.reset()
    with pytest.warns(UserWarning, match="called before"), pytest.raises(ConfigError, match="call update"):
        metric.compute()
