"""Clients of tiny models."""

import pytest
from fastapi.testclient import TestClient

from manylabel.server import ServedModel, create_app


@pytest.fixture(scope="session")
def colours(colour_file):
    """A client of an exported model."""
    with TestClient(create_app(ServedModel.open(colour_file)), "http://localhost") as client:
        yield client


@pytest.fixture(scope="session")
def tiny(tiny_model):
    """A client of a model that can be explained."""
    with TestClient(create_app(ServedModel.open(tiny_model, engine="torch")), "http://localhost") as client:
        yield client
