"""Clients of tiny models."""

import pytest
from fastapi.testclient import TestClient

from colour_model import write_colour_model
from manylabel.server import ServedModel, create_app


@pytest.fixture(scope="session")
def colours(tmp_path_factory):
    """A client of an exported model."""
    path = write_colour_model(tmp_path_factory.mktemp("served") / "colours.onnx")
    with TestClient(create_app(ServedModel.open(path))) as client:
        yield client


@pytest.fixture(scope="session")
def tiny(tiny_model):
    """A client of a model that can be explained."""
    with TestClient(create_app(ServedModel.open(tiny_model, engine="torch"))) as client:
        yield client
