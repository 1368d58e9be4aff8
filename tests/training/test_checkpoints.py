"""A run that is killed and resumed ends bit for bit where an uninterrupted one does."""

import multiprocessing
import signal
import time
from contextlib import contextmanager

import pytest
import torch
from lightning import Callback

from manylabel.errors import RunInterruptedError
from tiny_training import Die, tiny_run

OFTEN = 1e-9  # minutes: after every batch


def equal(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def without_seconds(rows):
    return [{name: value for name, value in row.items() if name != "seconds"} for row in rows]


@pytest.mark.parametrize(
    ("settings", "place"),
    [
        ({"checkpoint_minutes": OFTEN}, (0, 0)),
        ({"checkpoint_minutes": OFTEN}, (0, 2)),
        ({"checkpoint_minutes": OFTEN}, (1, 4)),
        ({"checkpoint_minutes": OFTEN}, (1, 0)),
        ({"checkpoint_minutes": OFTEN}, (1, 5)),
        ({"checkpoint_minutes": OFTEN}, (2, 5)),
        ({"checkpoint_minutes": OFTEN, "accumulate": 4}, (1, 4)),
        ({"checkpoint_minutes": OFTEN, "ema_decay": 0.0, "optimizer": "sgd", "schedule": "cosine"}, (1, 3)),
        ({"checkpoint_minutes": OFTEN, "keep": "best", "patience": 2, "clip_gradients": 0.1}, (1, 3)),
    ],
    ids=str,
)
@pytest.mark.slow
def test_a_run_that_died_goes_on_as_if_nothing_had_happened(tmp_path, settings, place):
    expected, expected_rows = tiny_run(tmp_path / "whole", **settings)
    with pytest.raises(KeyError, match="killed"):
        tiny_run(tmp_path / "killed", callbacks=[Die(epoch=place[0], batch=place[1])], **settings)
    resumed, rows = tiny_run(tmp_path / "killed", **settings)
    assert equal(resumed.state_dict(), expected.state_dict())
    assert without_seconds(rows) == without_seconds(expected_rows)


@pytest.mark.slow
def test_it_does_not_look_at_what_was_done_before(tmp_path):
    class Count(Callback):
        seen = 0

        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            self.seen += 1

    with pytest.raises(KeyError):
        tiny_run(tmp_path / "run", callbacks=[Die(epoch=1, batch=3)], checkpoint_minutes=OFTEN)
    count = Count()
    tiny_run(tmp_path / "run", callbacks=[count], checkpoint_minutes=OFTEN)
    assert count.seen == 3 * 6 - 10 + 1  # the checkpoint comes after the callback that died, so one batch is repeated


@pytest.mark.slow
def test_a_state_is_saved_at_the_end_of_every_epoch(tmp_path):
    class First(Callback):
        epoch = None

        def on_train_epoch_start(self, trainer, pl_module):
            self.epoch = trainer.current_epoch if self.epoch is None else self.epoch

    with pytest.raises(KeyError):
        tiny_run(tmp_path / "run", callbacks=[Die(epoch=1, batch=3)])
    first = First()
    tiny_run(tmp_path / "run", callbacks=[first])
    assert first.epoch == 1


@pytest.mark.slow
def test_epochs_are_not_saved_where_saving_takes_longer_than_they_do(tmp_path, monkeypatch):
    saves = []

    def slow(self, path):
        saves.append(self.current_epoch)
        time.sleep(0.3)
        path.touch()

    monkeypatch.setattr("lightning.Trainer.save_checkpoint", slow)
    tiny_run(tmp_path / "run", epochs=6)
    assert saves == [0, 5]  # the first, which shows what it costs, and the last


@pytest.mark.slow
def test_a_run_that_died_after_its_last_epoch_still_gives_the_average(tmp_path):
    expected, _ = tiny_run(tmp_path / "run")
    resumed, _ = tiny_run(tmp_path / "run")  # the checkpoint is there, the model was never saved
    assert equal(resumed.state_dict(), expected.state_dict())


@contextmanager
def process(folder, **settings):
    """Run in a process of its own; a fork, which need not wait for torch, and can be killed all the same."""
    context = multiprocessing.get_context("fork")
    told, tell = context.Pipe(duplex=False)
    child = context.Process(target=tell_and_run, args=(tell, folder, settings))
    child.start()
    tell.close()
    yield child, told
    child.join(60)


def tell_and_run(tell, folder, settings):
    torch.set_num_threads(1)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    tiny_run(folder, callbacks=[Tell(tell)], **settings)


class Tell(Callback):
    """Tells another process how far this one is, and gives it a moment to do something about it."""

    def __init__(self, connection):
        self.connection = connection

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.connection.send((trainer.current_epoch, batch_idx))
        time.sleep(0.05)


FORKS = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@FORKS
@pytest.mark.slow
def test_kill_9_in_the_middle_of_an_epoch(tmp_path):
    expected, _ = tiny_run(tmp_path / "whole", checkpoint_minutes=OFTEN)
    with process(tmp_path / "run", checkpoint_minutes=OFTEN) as (child, told):
        while told.recv() != (1, 4):
            pass
        child.kill()
    assert child.exitcode == -signal.SIGKILL
    state = torch.load(tmp_path / "run/checkpoints/last.ckpt", weights_only=True)
    assert state["callbacks"]["Checkpoints"]["place"] == {"epoch": 1, "batch": 4}
    resumed, _ = tiny_run(tmp_path / "run", checkpoint_minutes=OFTEN)
    assert equal(resumed.state_dict(), expected.state_dict())


@FORKS
@pytest.mark.slow
def test_sigterm_saves_first(tmp_path):
    expected, _ = tiny_run(tmp_path / "whole")
    with process(tmp_path / "run") as (child, told):
        while told.recv() != (1, 3):
            pass
        child.terminate()
    assert child.exitcode == 1
    assert (tmp_path / "run/checkpoints/last.ckpt").is_file()
    resumed, _ = tiny_run(tmp_path / "run")
    assert equal(resumed.state_dict(), expected.state_dict())


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.slow
def test_a_signal_ends_the_run_with_the_code_that_shells_expect(tmp_path, number):
    class Send(Callback):
        def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
            if trainer.current_epoch == 1 and batch_idx == 2:
                signal.raise_signal(number)

    before = signal.getsignal(number)
    with pytest.raises(RunInterruptedError, match="--resume") as stop:
        tiny_run(tmp_path / "run", callbacks=[Send()])
    assert stop.value.exit_code == 128 + number
    assert signal.getsignal(number) == before
    expected, _ = tiny_run(tmp_path / "whole")
    resumed, _ = tiny_run(tmp_path / "run")
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL  # else nobody could end the process afterwards
    assert equal(resumed.state_dict(), expected.state_dict())
