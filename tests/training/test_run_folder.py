import json
import os
from pathlib import Path

import pytest
import yaml

from manylabel.errors import ConfigError, OutputExistsError
from manylabel.training import RunFolder
from tiny_training import tiny_run, tiny_settings


def test_a_run_describes_itself(tmp_path):
    run = RunFolder.open(tmp_path / "run")
    run.describe(tiny_settings(epochs=7), command="manylabel train ...")
    assert yaml.safe_load((tmp_path / "run/config.yaml").read_text())["epochs"] == 7
    assert (tmp_path / "run/command.txt").read_text() == "manylabel train ...\n"
    assert json.loads((tmp_path / "run/environment.json").read_text())["packages"]["torch"]


def test_a_run_that_is_there_is_not_overwritten_by_chance(tmp_path):
    RunFolder.open(tmp_path / "run").describe(tiny_settings(), command="")
    with pytest.raises(OutputExistsError, match=r"--resume.*--overwrite.*--out"):
        RunFolder.open(tmp_path / "run")


def test_overwriting_deletes_a_run_but_nothing_else(tmp_path):
    run = RunFolder.open(tmp_path / "run")
    run.describe(tiny_settings(), command="")
    RunFolder.open(tmp_path / "run", overwrite=True)
    assert [path.name for path in run.path.iterdir()] == ["checkpoints"]
    (tmp_path / "run/thesis.tex").write_text("years of work")
    with pytest.raises(ConfigError, match=r"has files that do not belong to a run \(thesis.tex\)"):
        RunFolder.open(tmp_path / "run", overwrite=True)


def test_resuming_with_other_settings_is_refused_and_says_which(tmp_path):
    run = RunFolder.open(tmp_path / "run")
    run.describe(tiny_settings(), command="")
    with pytest.raises(ConfigError, match=r"batch_size was 4, is 8; learning_rate was 0\.01, is 0\.1\. Use the same"):
        run.describe(tiny_settings(batch_size=8, learning_rate=0.1), command="", resume=True)
    run.describe(tiny_settings(workers=3, checkpoint_minutes=1.0), command="", resume=True)


def test_a_run_goes_on_with_the_images_it_began_with(tmp_path):
    run = RunFolder.open(tmp_path / "run")
    run.record_images({"train": 8, "val": 2, "fingerprint": "a"})
    run.record_images({"train": 8, "val": 2, "fingerprint": "a"})
    assert run.images == {"train": 8, "val": 2, "fingerprint": "a"}
    with pytest.raises(ConfigError, match=r"changed since it started: train 8, .* then, train 9, .* now; .*--out"):
        run.record_images({"train": 9, "val": 2, "fingerprint": "b"})
    (run.path / "images.json").write_text("[3")
    with pytest.raises(ConfigError, match=r"images\.json is damaged.*--out"):
        run.record_images({"train": 8, "val": 2, "fingerprint": "a"})


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_to_is_told_at_the_start(tmp_path):
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(ConfigError, match=r"cannot write to .* \(Permission denied\)"):
        RunFolder.open(tmp_path / "locked/run")


def test_a_path_that_cannot_be_a_folder_is_told_at_the_start(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputExistsError, match="is a file"):
        RunFolder.open(tmp_path / "file")
    with pytest.raises(ConfigError, match="cannot write to"):
        RunFolder.open(tmp_path / "file/run")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_a_full_disk_is_told_at_the_start(tmp_path):
    (tmp_path / "run/checkpoints").mkdir(parents=True)
    (tmp_path / "run/checkpoints/.probe").symlink_to("/dev/full")
    with pytest.raises(ConfigError, match=r"No space left on device.*free some space"):
        RunFolder.open(tmp_path / "run", resume=True)


def test_too_little_space_for_the_checkpoints_is_told_before_the_first_step(tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 1000})()
    monkeypatch.setattr("shutil.disk_usage", lambda path: usage)
    with pytest.raises(ConfigError, match="the run needs about"):
        tiny_run(tmp_path / "run")


def test_the_parts_of_a_finished_run(tmp_path):
    tiny_run(tmp_path / "run", keep="best")
    found = sorted(path.relative_to(tmp_path / "run").as_posix() for path in (tmp_path / "run").rglob("*"))
    assert found == ["checkpoints", "checkpoints/best.safetensors", "checkpoints/last.ckpt", "metrics.csv"]


def test_asking_again_for_a_finished_run_leaves_its_record(tmp_path):
    folder = RunFolder.open(tmp_path / "run")
    folder.describe(tiny_settings(), command="first")
    folder.model.mkdir()
    (folder.model / "config.json").touch()
    folder.describe(tiny_settings(), command="second", resume=True)
    assert (folder.path / "command.txt").read_text() == "first\n"
    with pytest.raises(ConfigError):
        folder.describe(tiny_settings(batch_size=8), command="second", resume=True)
