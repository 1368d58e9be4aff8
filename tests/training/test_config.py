from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import yaml

from manylabel.errors import ConfigError
from manylabel.recipes import RECIPES, LinearProbe
from manylabel.training.config import build, check, field_docs, read_yaml, to_dict, to_yaml
from manylabel.training.fields import OneOf, Rule, describe


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of every kind."""

    data: str
    """Where the pictures are."""
    count: Annotated[int, Rule(lambda value: value > 0, "above 0")] = 3
    """How many."""
    rate: float = 0.5
    """How fast."""
    limit: int | None = None
    """At most."""
    kind: Literal["slow", "fast"] = "slow"
    """Which."""
    head: Annotated[str, OneOf(["linear", "big"], own=True)] = "linear"
    """Whose."""
    out: Path = Path("run")
    """Where to."""
    switch: bool = False
    """Whether."""
    pair: tuple[float, float] = (1.0, 2.0)
    """Two."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """More."""

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
            "switch": "yes",
            "pair": "0.1, 0.2",
            "head": "mine.heads:Mine",
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
        pair=(0.1, 0.2),
        head="mine.heads:Mine",
    )
    assert build(Settings, {"data": "none", "limit": "none"}) == Settings(data="none", limit=None)


def test_yaml_and_back_is_the_same(tmp_path):
    settings = Settings(data="csv:a,b", rate=1e-5, extra={"stages": [0, -1], "name": None}, out=Path("a b"))
    file = tmp_path / "config.yaml"
    file.write_text(to_yaml(settings))
    assert build(Settings, read_yaml(file)) == settings
    assert "# How fast.\nrate: 1.0e-05\n" in file.read_text()


@pytest.mark.parametrize("name", RECIPES)
def test_the_defaults_of_every_recipe_survive_yaml(name, tmp_path):
    settings = RECIPES[name].settings(data="scenes:10")
    assert build(type(settings), yaml.safe_load(to_yaml(settings))) == settings


@pytest.mark.parametrize("name", RECIPES)
def test_every_setting_of_every_recipe_is_explained(name):
    docs = field_docs(RECIPES[name].settings)
    assert [field.name for field in fields(RECIPES[name].settings) if not docs.get(field.name)] == []


def test_a_text_that_looks_like_a_number_stays_a_text(tmp_path):
    settings = LinearProbe(data="x", head_settings={"clip": 1e-7, "name": "1e5"}, out=Path("1e3"))
    (tmp_path / "config.yaml").write_text(to_yaml(settings))
    again = build(LinearProbe, read_yaml(tmp_path / "config.yaml"))
    assert (again.head_settings, again.out) == (settings.head_settings, settings.out)


def test_all_mistakes_are_listed_at_once():
    with pytest.raises(ConfigError) as error:
        build(Settings, {"cuont": 1, "count": 0, "rate": "fast", "kind": "fats", "head": "lineal", "switch": 2})
    assert str(error.value).splitlines() == [
        "7 settings are wrong:",
        "  no setting 'cuont'; did you mean 'count'? There is: count, data, extra, head, kind, limit, out, pair, rate, "
        "switch",
        "  rate must be a number, got 'fast'",
        "  kind cannot be 'fats'; did you mean 'fast'? There is: fast, slow",
        "  switch must be true or false, got 2",
        "  data is missing: Where the pictures are.",
        "  count must be above 0, got 0",
        "  head cannot be 'lineal'; did you mean 'linear'? There is: big, linear",
    ]


def test_one_mistake_is_one_sentence():
    with pytest.raises(ConfigError, match=r"^count must be a whole number, got True$"):
        Settings(data="x", count=True)


def test_plain_values_are_plain():
    assert to_dict(Settings(data="x"))["out"] == "run"
    assert describe(Path | None) == "PATH"


@pytest.mark.parametrize(("text", "complaint"), [("- 1", "must hold settings"), ("a: [", "cannot read the settings")])
def test_a_file_that_is_no_config_is_told(tmp_path, text, complaint):
    (tmp_path / "config.yaml").write_text(text)
    with pytest.raises(ConfigError, match=complaint):
        read_yaml(tmp_path / "config.yaml")
    with pytest.raises(ConfigError, match=r"cannot read the settings in .*missing"):
        read_yaml(tmp_path / "missing.yaml")
