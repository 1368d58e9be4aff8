import pickle

import pytest

import manylabel.errors as errors
from manylabel.errors import ImageError, ManyLabelError, list_choices


@pytest.mark.parametrize("name", [name for name in vars(errors) if name.endswith("Error")])
def test_every_error_is_a_manylabel_error_and_is_drawn_in_the_tree(name):
    assert issubclass(getattr(errors, name), ManyLabelError)
    assert name in errors.__doc__


def test_a_image_error_survives_the_way_from_a_worker_process():
    error = pickle.loads(pickle.dumps(ImageError("a b.jpg", "it is empty")))
    assert (error.name, error.reason) == ("a b.jpg", "it is empty")
    assert str(error) == "cannot read image 'a b.jpg': it is empty"


def test_choices_name_the_nearest_first_and_cut_long_lists():
    assert list_choices("trian", ["val", "train"]).startswith("did you mean 'train'?")
    assert list_choices("zzz", [f"label{i:03d}" for i in range(100)]).endswith("and 88 more")
