"""Two processes train one model, as torchrun would start them."""

import csv
import multiprocessing
import os
import socket

import pytest
import torch
from sklearn.metrics import average_precision_score

from manylabel.training import Share
from tiny_training import Die, tiny_loaders, tiny_run, tiny_settings, tiny_task

pytestmark = pytest.mark.slow
FORKS = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def train_as(rank, port, folder, settings):
    torch.set_num_threads(1)
    places = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "TORCHELASTIC_RUN_ID": "test", "GROUP_RANK": "0"}
    ranks = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    os.environ.update(places | ranks)
    die = settings.pop("die", None)
    if die is not None:
        with pytest.raises(KeyError, match="killed"):
            tiny_run(folder, devices=2, callbacks=[Die(epoch=die[0], batch=die[1])], **settings)
        return
    task, rows = tiny_run(folder, devices=2, **settings)
    torch.save({"weights": task.state_dict(), "rows": rows}, folder / f"result-{rank}.pt")


def train_in_two_processes(folder, **settings):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=train_as, args=(rank, port, folder, settings)) for rank in (0, 1)]
    for child in children:
        child.start()
    for child in children:
        child.join(100)
    assert [child.exitcode for child in children] == [0, 0]
    if "die" in settings:
        return None
    return [torch.load(folder / f"result-{rank}.pt", weights_only=True) for rank in (0, 1)]


@FORKS
def test_both_end_with_the_same_weights_and_numbers(tmp_path):
    first, second = train_in_two_processes(tmp_path / "run")
    assert all(torch.equal(value, second["weights"][name]) for name, value in first["weights"].items())
    measured = [
        [(row["train_loss"], row["val_loss"], row["val_mAP"]) for row in each["rows"]] for each in (first, second)
    ]
    assert measured[0] == measured[1]
    with (tmp_path / "run/metrics.csv").open() as file:
        assert [int(row["epoch"]) for row in csv.DictReader(file)] == [1, 2, 3]
    assert int(first["rows"][-1]["step"]) == 3 * 3  # 22 images, two processes, batches of 4


@FORKS
def test_map_is_that_of_all_images_not_of_a_share(tmp_path):
    first, _ = train_in_two_processes(tmp_path / "run")
    settings = tiny_settings()
    task = tiny_task(settings)
    task.load_state_dict(first["weights"])
    val = tiny_loaders(settings).val
    with torch.no_grad():
        scores = torch.cat([task.eval()(batch).sigmoid() for batch in val])
    assert first["rows"][-1]["val_mAP"] == pytest.approx(average_precision_score(val.targets, scores), abs=1e-6)


@FORKS
def test_it_resumes_bit_for_bit(tmp_path):
    whole, _ = train_in_two_processes(tmp_path / "whole", checkpoint_minutes=1e-9)
    train_in_two_processes(tmp_path / "run", checkpoint_minutes=1e-9, die=(1, 2))
    assert (tmp_path / "run/checkpoints/last.ckpt").is_file()
    again, _ = train_in_two_processes(tmp_path / "run", checkpoint_minutes=1e-9)
    assert all(torch.equal(value, again["weights"][name]) for name, value in whole["weights"].items())


def test_processes_share_the_images_evenly_in_training_and_without_doubles_in_validation():
    settings = tiny_settings()
    both = [tiny_loaders(settings, Share(rank, 2)) for rank in (0, 1)]
    evaluated = [torch.cat([batch.indices for batch in loaders.val]) for loaders in both]
    assert sorted(torch.cat(evaluated).tolist()) == list(range(9))
    drawn = [torch.cat([batch.indices for batch in loaders.train]) for loaders in both]
    assert len(drawn[0]) == len(drawn[1]) == 11
    assert sorted(torch.cat(drawn).tolist()) == list(range(22))
