import pytest

from manylabel.errors import ConfigError
from manylabel.server import ServerSettings


@pytest.mark.parametrize("name", ["max_body_bytes", "max_pixels", "max_waiting", "seconds", "workers"])
def test_rejects_a_limit_that_lets_nothing_in(name):
    with pytest.raises(ConfigError, match=f"{name} must be above 0, got 0"):
        ServerSettings(**{name: 0})


@pytest.mark.parametrize("key", ["", " ", "two words", "schlüssel", "new\nline"])
def test_rejects_a_key_that_no_header_can_hold(key):
    with pytest.raises(ConfigError, match="without spaces"):
        ServerSettings(api_key=key)
