"""The table of zero-shot results: its variants run, and a finished table reads as one."""

import json
import sys

import numpy as np
import pytest
from benchmarks.results_zero_shot import main

from manylabel.data import load
from manylabel.recipes.unseen import EVERYDAY

pytestmark = pytest.mark.slow


def test_groups_train_and_stand_in_the_table(tmp_path, monkeypatch, capsys):
    names = list(dict.fromkeys([*load("scenes:2").labels, *EVERYDAY]))
    np.savez(tmp_path / "text.npz", labels=names, vectors=np.random.default_rng(0).normal(size=(len(names), 8)))
    arguments = ["--data", "scenes:24,size=64", "--unseen", "random:6", "--variants", "full", "group", "--group-size"]
    arguments += ["6", "--epochs", "1", "--width", "16", "--feedforward", "16", "--image-size", "64", "--encoder"]
    arguments += [f"npz:{tmp_path / 'text.npz'}", "--runs", str(tmp_path / "runs")]
    monkeypatch.setattr(sys, "argv", ["results_zero_shot", *arguments])
    main()
    results = json.loads((tmp_path / "runs" / "results.json").read_text())
    assert [run["variant"] for run in results["runs"]] == ["full", "group"]
    settings = [json.loads(file.read_text()) for file in sorted(tmp_path.glob("runs/*/model/config.json"))]
    assert [each["head"]["settings"].get("num_groups") for each in settings] == [None, 3]
    assert "| ML-Decoder, groups | ZSL | " in capsys.readouterr().out
