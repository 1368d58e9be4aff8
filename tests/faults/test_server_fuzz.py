"""Whatever the OpenAPI document allows or forbids is asked of the server; no answer may be a 5xx or undocumented."""

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from PIL import Image

from sample_files import bad_files, encode, photo
from server_apps import listening, slow_app

pytestmark = pytest.mark.slow

IMAGES = [
    encode(photo(), "JPEG"),
    encode(Image.new("L", (3, 2)), "PNG"),
    *(content for content, _ in bad_files().values()),
]
files = st.sampled_from(IMAGES) | st.binary(max_size=200)
schemathesis.openapi.format("binary", files)

schema = schemathesis.openapi.from_dict(slow_app(api_key="secret")[1].openapi())


@pytest.fixture(scope="module")
def address():
    _, app = slow_app(api_key="secret")
    with listening(app) as (address, _):
        yield address


@schema.parametrize()
@settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck))
def test_no_question_breaks_the_server(case, address):
    # Bytes that are no image fit the document and are refused all the same.
    refusals = [schemathesis.checks.positive_data_acceptance]
    key = {"Authorization": "Bearer secret"}
    case.call_and_validate(base_url=address, headers=key, excluded_checks=refusals)
