import pytest
import torch

from manylabel.errors import ConfigError, LabelError
from manylabel.types import Batch, InputSpec, LabelSpace


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("cat", "list of names"),
        (None, "list of names, such as .*, got None"),
        (5, "list of names, such as .*, got 5"),
        (["cat", "cat"], "occur twice: cat"),
        (["cat", "  "], "needs a name"),
        (["cat", "x" * 50_000], "got one of 50,000: 'xxx.*check the quotes"),
    ],
)
def test_rejects_bad_label_names(names, message):
    with pytest.raises(LabelError, match=message):
        LabelSpace(names)


def test_an_unknown_label_suggests_the_nearest():
    with pytest.raises(LabelError, match="did you mean 'zebra'"):
        LabelSpace(["zebra", "cow"]).index("zebar")


def test_display_names_must_belong_to_a_label():
    with pytest.raises(LabelError, match="display_names has no such label"):
        LabelSpace(["cat"], display_names={"dog": "Dog"})


def test_labels_survive_the_way_through_json():
    labels = LabelSpace(["/m/1", "/m/2"], display_names={"/m/1": "cat"}, descriptions={"/m/2": "a loyal animal"})
    again = LabelSpace.from_dict(labels.to_dict())
    assert again == labels
    assert (again.display("/m/1"), again.display("/m/2")) == ("cat", "/m/2")
    assert labels.subset(["/m/2"]).descriptions == {"/m/2": "a loyal animal"}


def test_a_batch_moves_as_a_whole():
    batch = Batch(torch.zeros(2, 3, 4, 4), torch.zeros(2, 5), torch.ones(2, 5, dtype=torch.bool), torch.arange(2))
    moved = batch.to("meta")
    assert len(moved) == 2
    assert {tensor.device.type for tensor in (moved.images, moved.targets, moved.known, moved.indices)} == {"meta"}


@pytest.mark.parametrize("settings", [{"size": (0, 4)}, {"std": (1.0, 0.0, 1.0)}, {"crop_fraction": 1.5}])
def test_input_spec_checks_its_settings(settings):
    with pytest.raises(ConfigError):
        InputSpec(**settings)
