import json
import os
import time

import numpy as np
import pytest
from typer.testing import CliRunner

from manylabel.cli.main import app
from manylabel.data.feature_store import FeatureKind, StoreWriter, list_stores
from manylabel.errors import CacheError, ConfigError


def run(*arguments):
    return CliRunner().invoke(app, ["cache", *arguments], catch_exceptions=False)


@pytest.fixture
def root(tmp_path, monkeypatch):
    """Three stores, last used today, 10 and 20 days ago, and an exported backbone."""
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path))
    root = tmp_path / "features"
    for view in range(3):
        kind = FeatureKind("pets", "resnet10t", "w", "Resize", (3,), ((8, 7, 7),), "none", view, seed=0)
        with StoreWriter(root / kind.key, kind) as writer:
            writer.append([np.zeros((5, 8, 7, 7), np.float16)], ids=np.arange(5, dtype=np.uint64))
        for path in (root / kind.key).iterdir():
            os.utime(path, (time.time() - 10 * 86400 * view,) * 2)
    (root / "onnx").mkdir()
    (root / "onnx" / "a.onnx").touch()
    return root


def test_ls_shows_what_there_is(root):
    lines = run("ls").stdout.splitlines()
    assert len(lines) == 5
    for store, line in zip(list_stores(root), lines[1:], strict=False):
        assert store.key[:8] in line
        assert "pets" in line
        assert "8x7x7" in line
    assert "20 days" in lines[3]
    assert lines[-1] == f"3 sets of features, 0.00 GB, in {root}"


def test_ls_shows_names_in_brackets(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path))
    kind = FeatureKind("pets[a]", "my[/b]net", "w", "Resize", (3,), ((8, 7, 7),), "none", 0, seed=0)
    with StoreWriter(tmp_path / "features" / kind.key, kind) as writer:
        writer.append([np.zeros((5, 8, 7, 7), np.float16)], ids=np.arange(5, dtype=np.uint64))
    shown = run("ls").stdout
    assert "pets[a]" in shown
    assert "my[/b]net" in shown


def test_ls_of_nothing_says_where_it_looked(tmp_path, monkeypatch):
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path))
    assert run("ls").stdout == f"0 sets of features, 0.00 GB, in {tmp_path / 'features'}\n"


def test_ls_prints_json_for_programs(root):
    stores = json.loads(run("ls", "--json").stdout)
    assert [store["view"] for store in stores] == [0, 1, 2]
    assert stores[0]["pictures"] == 5
    assert stores[0]["shapes"] == [[8, 7, 7]]


def test_rm_removes_one_by_the_start_of_its_key(root):
    key = list_stores(root)[1].key
    assert run("rm", key[:8]).stdout.startswith("Removed 1 sets of features")
    assert key not in {store.key for store in list_stores(root)}
    with pytest.raises(CacheError, match="no cached features"):
        run("rm", key)


def test_rm_removes_what_was_not_used_for_long(root):
    run("rm", "--older-than", "15")
    assert [store.kind.view for store in list_stores(root)] == [0, 1]


def test_exported_models_are_listed_and_age_too(root):
    exports = root.parent / "models"
    exports.mkdir()
    for name, seconds in (("old.onnx", 10**9), ("new.onnx", 2**31)):
        (exports / name).write_bytes(b"0" * 1000)
        os.utime(exports / name, (seconds, seconds))
    assert "2 exported models" in run("ls").stdout
    assert "1 exported models" in run("rm", "--older-than", "1").stdout
    assert [file.name for file in exports.iterdir()] == ["new.onnx"]


def test_rm_all_leaves_nothing(root):
    run("rm", "--all")
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("arguments", [[], ["abc", "--all"], ["--all", "--older-than", "3"]])
def test_rm_wants_to_know_what(root, arguments):
    with pytest.raises(ConfigError, match="say what to remove"):
        run("rm", *arguments)
    assert len(list_stores(root)) == 3
