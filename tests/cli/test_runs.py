import json
import os
import time

import numpy as np
import pytest
from typer.testing import CliRunner

from manylabel.cli.main import app
from manylabel.errors import CacheError, ConfigError
from manylabel.features import StoreWriter, list_stores
from tiny_features import make_spec
from tiny_runs import make_run


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    make_run(root / "a", head="linear", finished=False, epochs=2)
    make_run(root / "b", head="ml_decoder", finished=False, epochs=3)
    return root


def run(*arguments):
    arguments = ["runs", *map(str, arguments)]
    return CliRunner().invoke(app, arguments, env={"COLUMNS": "300"}, catch_exceptions=False).stdout


def test_ls_lists_every_run_with_what_it_reached(root):
    lines = run("list", root).splitlines()
    assert lines[0].split()[:3] == ["run", "recipe", "head"]
    assert {line.split()[2] for line in lines[1:]} == {"linear", "ml_decoder"}
    assert any("3/3" in line and "30.00" in line and "not finished" in line for line in lines)


def test_ls_says_how_to_make_a_run_where_there_is_none(tmp_path):
    assert "No runs in" in run("list", tmp_path)


def test_ls_prints_json_for_programs(root):
    found = {entry["name"]: entry for entry in json.loads(run("list", root, "--json"))}
    assert found["b"]["mAP"] == 0.3
    assert found["b"]["num_epochs"] == 3
    assert not found["b"]["is_finished"]


def test_show_prints_epochs_and_settings(root):
    text = run("show", root / "a")
    assert "manylabel train DATA --head linear" in text
    assert "train_loss" in text
    assert any(line.split() == ["backbone", "test_resnet"] for line in text.splitlines())
    assert json.loads(run("show", root / "a", "--json"))["epochs"][1]["val_mAP"] == 0.2


def test_diff_shows_only_what_differs(root):
    rows = {line.split()[0]: line.split()[1:] for line in run("diff", root / "a", root / "b").splitlines()[1:]}
    assert rows["head"] == ["linear", "ml_decoder"]
    assert rows["mAP"] == ["20.00", "30.00"]
    assert "seed" not in rows
    assert json.loads(run("diff", root / "a", root / "b", "--json"))["settings"]["head"] == ["linear", "ml_decoder"]


def test_diff_of_one_run_is_refused(root):
    with pytest.raises(ConfigError, match="at least two runs, got 1"):
        run("diff", root / "a")


def run_cache(*arguments):
    return CliRunner().invoke(app, ["cache", *arguments], catch_exceptions=False)


@pytest.fixture
def cache_root(tmp_path, monkeypatch):
    """Three stores, last used today, 10 and 20 days ago."""
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path))
    cache_root = tmp_path / "features"
    for view in range(3):
        spec = make_spec(stages=(3,), shapes=((8, 7, 7),), view=view)
        with StoreWriter(cache_root / spec.key, spec) as writer:
            writer.append([np.zeros((5, 8, 7, 7), np.float16)], ids=np.arange(5, dtype=np.uint64))
        for path in (cache_root / spec.key).iterdir():
            os.utime(path, (time.time() - 10 * 86400 * view,) * 2)
    return cache_root


def test_list_shows_what_there_is(cache_root):
    lines = run_cache("list").stdout.splitlines()
    assert len(lines) == 5
    for store, line in zip(list_stores(cache_root), lines[1:], strict=False):
        assert store.key[:8] in line
        assert "pets" in line
        assert "8x7x7" in line
    assert "20 days" in lines[3]
    assert lines[-1] == f"3 feature sets, 0.00 GB, in {cache_root}"


def test_list_shows_names_in_brackets(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path))
    spec = make_spec(dataset="pets[a]", backbone="my[/b]net", stages=(3,), shapes=((8, 7, 7),))
    with StoreWriter(tmp_path / "features" / spec.key, spec) as writer:
        writer.append([np.zeros((5, 8, 7, 7), np.float16)], ids=np.arange(5, dtype=np.uint64))
    shown = run_cache("list").stdout
    assert "pets[a]" in shown
    assert "my[/b]net" in shown


@pytest.mark.slow
def test_list_of_nothing_says_where_it_looked(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path))
    assert run_cache("list").stdout == f"0 feature sets, 0.00 GB, in {tmp_path / 'features'}\n"


def test_list_prints_json_for_programs(cache_root):
    stores = json.loads(run_cache("list", "--json").stdout)
    assert [store["spec"]["view"] for store in stores] == [0, 1, 2]
    assert stores[0]["num_images"] == 5
    assert stores[0]["spec"]["shapes"] == [[8, 7, 7]]


def test_remove_removes_one_by_the_start_of_its_key(cache_root):
    key = list_stores(cache_root)[1].key
    assert run_cache("remove", key[:8]).stdout.startswith("Removed 1 feature sets")
    assert key not in {store.key for store in list_stores(cache_root)}
    with pytest.raises(CacheError, match="no cached features"):
        run_cache("remove", key)


def test_remove_removes_what_was_not_used_for_long(cache_root):
    run_cache("remove", "--older-than", "15")
    assert [store.spec.view for store in list_stores(cache_root)] == [0, 1]


def test_exported_models_are_listed_and_age_too(cache_root):
    exports = cache_root.parent / "models"
    exports.mkdir()
    for name, seconds in (("old.onnx", 10**9), ("new.onnx", 2**31)):
        (exports / name).write_bytes(b"0" * 1000)
        os.utime(exports / name, (seconds, seconds))
    assert "2 exported models" in run_cache("list").stdout
    assert "1 exported models" in run_cache("remove", "--older-than", "1").stdout
    assert [file.name for file in exports.iterdir()] == ["new.onnx"]


def test_remove_all_leaves_nothing(cache_root):
    (cache_root / "of an older version").mkdir()
    (cache_root / "of an older version" / "kind.json").write_text("{}")
    run_cache("remove", "--all")
    assert not cache_root.exists()


@pytest.mark.parametrize("arguments", [[], ["abc", "--all"], ["--all", "--older-than", "3"]])
def test_remove_wants_to_know_what(cache_root, arguments):
    with pytest.raises(ConfigError, match="nothing to remove; pass a KEY"):
        run_cache("remove", *arguments)
    assert len(list_stores(cache_root)) == 3
