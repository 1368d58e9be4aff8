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


def run(*arguments):
    return CliRunner().invoke(app, ["cache", *arguments], catch_exceptions=False)


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Three stores, last used today, 10 and 20 days ago."""
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path))
    root = tmp_path / "features"
    for view in range(3):
        spec = make_spec(stages=(3,), shapes=((8, 7, 7),), view=view)
        with StoreWriter(root / spec.key, spec) as writer:
            writer.append([np.zeros((5, 8, 7, 7), np.float16)], ids=np.arange(5, dtype=np.uint64))
        for path in (root / spec.key).iterdir():
            os.utime(path, (time.time() - 10 * 86400 * view,) * 2)
    return root


def test_list_shows_what_there_is(root):
    lines = run("list").stdout.splitlines()
    assert len(lines) == 5
    for store, line in zip(list_stores(root), lines[1:], strict=False):
        assert store.key[:8] in line
        assert "pets" in line
        assert "8x7x7" in line
    assert "20 days" in lines[3]
    assert lines[-1] == f"3 feature sets, 0.00 GB, in {root}"


def test_list_shows_names_in_brackets(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path))
    spec = make_spec(dataset="pets[a]", backbone="my[/b]net", stages=(3,), shapes=((8, 7, 7),))
    with StoreWriter(tmp_path / "features" / spec.key, spec) as writer:
        writer.append([np.zeros((5, 8, 7, 7), np.float16)], ids=np.arange(5, dtype=np.uint64))
    shown = run("list").stdout
    assert "pets[a]" in shown
    assert "my[/b]net" in shown


@pytest.mark.slow
def test_list_of_nothing_says_where_it_looked(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path))
    assert run("list").stdout == f"0 feature sets, 0.00 GB, in {tmp_path / 'features'}\n"


def test_list_prints_json_for_programs(root):
    stores = json.loads(run("list", "--json").stdout)
    assert [store["spec"]["view"] for store in stores] == [0, 1, 2]
    assert stores[0]["num_images"] == 5
    assert stores[0]["spec"]["shapes"] == [[8, 7, 7]]


def test_remove_removes_one_by_the_start_of_its_key(root):
    key = list_stores(root)[1].key
    assert run("remove", key[:8]).stdout.startswith("Removed 1 feature sets")
    assert key not in {store.key for store in list_stores(root)}
    with pytest.raises(CacheError, match="no cached features"):
        run("remove", key)


def test_remove_removes_what_was_not_used_for_long(root):
    run("remove", "--older-than", "15")
    assert [store.spec.view for store in list_stores(root)] == [0, 1]


def test_exported_models_are_listed_and_age_too(root):
    exports = root.parent / "models"
    exports.mkdir()
    for name, seconds in (("old.onnx", 10**9), ("new.onnx", 2**31)):
        (exports / name).write_bytes(b"0" * 1000)
        os.utime(exports / name, (seconds, seconds))
    assert "2 exported models" in run("list").stdout
    assert "1 exported models" in run("remove", "--older-than", "1").stdout
    assert [file.name for file in exports.iterdir()] == ["new.onnx"]


def test_remove_all_leaves_nothing(root):
    (root / "of an older version").mkdir()
    (root / "of an older version" / "kind.json").write_text("{}")
    run("remove", "--all")
    assert not root.exists()


@pytest.mark.parametrize("arguments", [[], ["abc", "--all"], ["--all", "--older-than", "3"]])
def test_remove_wants_to_know_what(root, arguments):
    with pytest.raises(ConfigError, match="nothing to remove; pass a KEY"):
        run("remove", *arguments)
    assert len(list_stores(root)) == 3
