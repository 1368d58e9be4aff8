"""Folders of runs that were never trained, for tests of what comes after training."""

import torch

from manylabel import heads
from manylabel.classifier import Classifier
from manylabel.data import load
from manylabel.recipes import Probe
from manylabel.recipes.setup import resolve
from manylabel.training import RunFolder

SPEC = "scenes:30"


def make_run(folder, *, head="linear", epochs=3, finished=True, data=SPEC, labels=None, **changes):
    """Leave what a run leaves: settings, numbers of its epochs, and a model with random weights."""
    given = Probe(
        data=data,
        head=head,
        out=folder,
        epochs=epochs,
        backbone="test_resnet",
        pretrained=False,
        image_size=64,
        **changes,
    )
    settings = resolve(given)
    run = RunFolder.open(folder)
    run.describe(settings, command=f"manylabel train DATA --head {head}")
    rows = [f"{number},{number},{1 / number},{number / 10},0.001,2.5" for number in range(1, epochs + 1)]
    text = "\n".join(["epoch,step,train_loss,val_mAP,learning_rate,seconds", *rows]) + "\n"
    run.metrics.write_text(text, encoding="utf-8")
    if finished:
        torch.manual_seed(len(head))
        run.save(make_model(head, labels=labels or load(SPEC).labels, settings=dict(settings.head_settings)))
    return run


def make_model(head, *, labels, settings=None, backbone="test_resnet", image_size=64):
    return Classifier.create(
        backbone,
        head=heads.HEADS[head],
        labels=labels,
        head_settings=settings or {},
        pretrained=False,
        frozen=True,
        image_size=image_size,
    ).eval()
