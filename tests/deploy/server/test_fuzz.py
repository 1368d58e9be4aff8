"""Whatever the OpenAPI document allows or forbids is asked of the server; no answer may be a 5xx or undocumented."""

import base64

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from PIL import Image

from picture_files import bad_files, encode, photo
from server_apps import slow_app

PICTURES = [
    encode(photo(), "JPEG"),
    encode(Image.new("L", (3, 2)), "PNG"),
    *(content for content, _ in bad_files().values()),
]
files = st.sampled_from(PICTURES) | st.binary(max_size=200)
schemathesis.openapi.format("binary", files)
schemathesis.openapi.format(
    "byte", files.filter(bool).map(lambda content: base64.b64encode(content).decode()) | st.text(min_size=1)
)


@pytest.fixture(scope="module")
def served():
    """The document of an app, which is asked within this process."""
    from fastapi.testclient import TestClient

    _, app = slow_app(api_key=None)
    with TestClient(app):
        yield schemathesis.openapi.from_asgi("/openapi.json", app)


schema = schemathesis.pytest.from_fixture("served")


@schema.parametrize()
@settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_question_breaks_the_server(case):
    case.call_and_validate(excluded_checks=[schemathesis.checks.positive_data_acceptance])
