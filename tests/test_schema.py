from collections.abc import Mapping
from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml
from msgspec import Meta

from manylabel.errors import ConfigError
from manylabel.losses import LOSSES
from manylabel.schema import Fraction, build, check, read_yaml, setting, settings_fields, to_dict, to_yaml
from manylabel.settings import RECIPE_SETTINGS, LossName, Probe


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of every kind."""

    data: str = setting(MISSING, "Where the images are.")
    count: Annotated[int, Meta(gt=0)] = setting(3, "How many.")
    rate: float = setting(0.5, "How fast.")
    limit: int | None = setting(None, "At most.")
    kind: Literal["slow", "fast"] = setting("slow", "Kind.")
    out: Path = setting(Path("run"), "Folder.", may_change=True)
    switch: bool = setting(False, "Switch.")
    pair: tuple[Fraction, Fraction] = setting((0.1, 0.2), "Two.", is_flag=False)
    extra: Mapping[str, Any] = setting({}, "More.")

    def __post_init__(self):
        check(self)


def test_texts_become_values():
    settings = build(
        Settings,
        {
            "data": "voc:x",
            "count": "5",
            "rate": "1e-3",
            "limit": "7",
            "kind": "fast",
            "out": "~/runs",
            "switch": "true",
            "pair": [0.3, 0.4],
        },
    )
    assert settings == Settings(
        data="voc:x",
        count=5,
        rate=0.001,
        limit=7,
        kind="fast",
        out=Path("~/runs").expanduser(),
        switch=True,
        pair=(0.3, 0.4),
    )
    assert build(Settings, {"data": "none", "limit": "none"}) == Settings(data="none", limit=None)


def test_yaml_and_back_is_the_same(tmp_path):
    settings = Settings(data="csv:a,b", rate=1e-5, extra={"stages": [0, -1], "name": None}, out=Path("a b"))
    file = tmp_path / "config.yaml"
    file.write_text(to_yaml(settings))
    assert build(Settings, read_yaml(file)) == settings
    assert "# How fast.\nrate: 1.0e-05\n" in file.read_text()


@pytest.mark.parametrize("value", ["1", "true", "True", 1, True])
def test_one_is_true_in_flags_and_in_yaml(value):
    assert build(Settings, {"data": "x", "switch": value}).switch is True


@pytest.mark.parametrize("name", RECIPE_SETTINGS)
def test_the_defaults_of_every_recipe_survive_yaml(name, tmp_path):
    settings = RECIPE_SETTINGS[name](data="scenes:10")
    assert build(type(settings), yaml.safe_load(to_yaml(settings))) == settings


@pytest.mark.parametrize("name", RECIPE_SETTINGS)
def test_every_setting_of_every_recipe_is_explained_in_a_group(name):
    fields = settings_fields(RECIPE_SETTINGS[name]).values()
    assert [each.name for each in fields if not each.help.endswith(".")] == []
    assert {each.group for each in fields} <= {"Data and output", "Model", "Training", "Recipe"}


def test_every_loss_has_its_name_in_the_settings():
    assert set(LossName.__args__) == {"auto", *LOSSES}


def test_a_text_that_looks_like_a_number_stays_a_text(tmp_path):
    settings = Probe(data="x", head_settings={"clip": 1e-7, "name": "1e5"}, out=Path("1e3"))
    (tmp_path / "config.yaml").write_text(to_yaml(settings))
    again = build(Probe, read_yaml(tmp_path / "config.yaml"))
    assert (again.head_settings, again.out) == (settings.head_settings, settings.out)


def test_all_mistakes_are_listed_at_once():
    with pytest.raises(ConfigError) as error:
        build(Settings, {"cuont": 1, "count": 0, "rate": "fast", "kind": "fats", "switch": 2, "pair": [0.1, 2]})
    assert str(error.value).splitlines() == [
        "7 invalid settings:",
        "  no setting 'cuont'; did you mean 'count'? Available: count, data, extra, kind, limit, out, pair, rate, "
        "switch",
        "  count must be a whole number above 0, got 0",
        "  rate must be a number, got 'fast'",
        "  kind cannot be 'fats'; did you mean 'fast'? Available: fast, slow",
        "  switch must be true or false, got 2",
        "  pair must be a list of two numbers from 0 to below 1, got [0.1, 2]",
        "  data is missing: Where the images are.",
    ]


def test_one_mistake_is_one_sentence():
    with pytest.raises(ConfigError, match=r"^count must be a whole number above 0, got True$"):
        Settings(data="x", count=True)


def test_plain_values_are_plain():
    assert to_dict(Settings(data="x", extra={"stages": (0, -1)})) == {
        "data": "x",
        "count": 3,
        "rate": 0.5,
        "limit": None,
        "kind": "slow",
        "out": "run",
        "switch": False,
        "pair": [0.1, 0.2],
        "extra": {"stages": [0, -1]},
    }


def test_a_field_knows_its_place():
    fields = settings_fields(Settings)
    assert [name for name, each in fields.items() if each.may_change] == ["out"]
    assert [name for name, each in fields.items() if not each.is_flag] == ["pair"]
    assert [fields[name].metavar for name in ("count", "rate", "kind", "out", "data")] == [
        "INTEGER",
        "FLOAT",
        "fast|slow",
        "PATH",
        "TEXT",
    ]


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("- 1", "must hold settings"), ("a: [", "cannot read the settings"), ("a: &a [1]\nb: *a", "has an alias")],
)
def test_a_file_that_is_no_config_is_told(tmp_path, text, complaint):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        read_yaml(tmp_path / "config.yaml")
    with pytest.raises(ConfigError, match=r"cannot read the settings in .*missing"):
        read_yaml(tmp_path / "missing.yaml")


def test_a_subclass_may_change_a_default_alone():
    @dataclass(frozen=True, kw_only=True)
    class Hurried(Settings):
        rate: float = 2.0

    before, after = settings_fields(Settings)["rate"], settings_fields(Hurried)["rate"]
    assert after == replace(before, default=2.0)
