import pytest

from manylabel.errors import DataError
from manylabel.recipes import Finetune, Probe, finetune, probe
from manylabel.recipes.plan import plan


@pytest.mark.slow
def test_a_plan_counts_and_estimates_without_leaving_anything(quick, sets, tmp_path, monkeypatch):
    monkeypatch.setenv("MANYLABEL_CACHE", str(tmp_path / "cache"))  # an empty one: other tests leave features
    settings = Probe(**quick, out=tmp_path / "run", head="linear", views=2)
    found = plan(probe.setup(settings, sets=sets))
    assert "24 for training, 6 for validation, 24 labels" in found.to_text()
    assert f"{512 * 24 + 24:,} of them in the head; {512 * 24 + 24:,} trained" in found.to_text()
    assert found.feature_seconds > 0
    assert found.total_seconds == found.feature_seconds + 2 * found.epoch_seconds
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_what_is_cached_takes_no_time(quick, sets, tmp_path):
    settings = Probe(**quick, out=tmp_path / "run", head="linear")
    probe(settings, sets=sets)
    assert plan(probe.setup(settings, sets=sets)).feature_seconds == 0


@pytest.mark.parametrize(("kind", "says_features"), [(Probe, True), (Finetune, False)])
@pytest.mark.slow
def test_a_plan_is_told_in_words(quick, sets, kind, says_features):
    recipe = probe if kind is Probe else finetune
    text = plan(recipe.setup(kind(**quick, head="linear"), sets=sets)).to_text()
    assert "epochs: 2\n" in text
    assert "\nimages      24 for training, 6 for validation, 24 labels\n" in text
    assert "GMACs per image" in text
    assert ("\nfeatures    about " in text) == says_features
    assert "\ntotal       about " in text


def test_a_plan_needs_a_image_that_can_be_read(quick, tmp_path):
    for name in ("cat/a.jpg", "cat/b.jpg", "dog/c.jpg", "dog/d.jpg"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    with pytest.raises(DataError, match=r"none of the first 2 images of .* can be read; run: manylabel data check"):
        plan(probe.setup(Probe(**{**quick, "data": f"folder:{tmp_path}", "val_fraction": 0.5})))


@pytest.mark.slow
def test_a_step_of_a_head_with_two_parts_is_timed(quick, sets, tmp_path):
    small = {"width": 16, "num_heads": 2, "feedforward": 16, "add_csra": True}
    found = finetune.setup(
        Finetune(**quick, head="ml_decoder", head_settings=small, train_from="2", out=tmp_path / "run"), sets=sets
    )
    found.trained.train()
    assert plan(found).epoch_seconds > 0
