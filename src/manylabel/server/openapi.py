"""How OpenAPI describes requests, which come as JSON or as a form."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from manylabel.server.questions import (
    MOST_PICTURES,
    EncodedImage,
    ExplainOptions,
    ExplainQuestion,
    PredictOptions,
    PredictQuestion,
)

__all__ = ["explain_body", "predict_body"]


def predict_body() -> dict[str, Any]:
    """Return what /v1/predict takes.

    Examples:
        >>> sorted(predict_body()["requestBody"]["content"])
        ['application/json', 'multipart/form-data']
    """
    picture = EncodedImage.model_json_schema()["properties"]["data"]["examples"][0]
    examples = {
        "one": {"summary": "One picture", "value": {"pictures": [{"name": "dot.png", "data": picture}]}},
        "several": {
            "summary": "Several pictures, the three surest tags of each",
            "value": {"pictures": [{"name": "a.png", "data": picture}, {"name": "b.png", "data": picture}], "top": 3},
        },
        "threshold": {
            "summary": "Tags that are quite sure",
            "value": {"pictures": [{"data": picture}], "threshold": 0.8},
        },
    }
    files = {"type": "array", "items": _file(), "minItems": 1, "maxItems": MOST_PICTURES}
    return _body(PredictQuestion, examples, _form(PredictOptions, "pictures", files))


def explain_body() -> dict[str, Any]:
    """Return what /v1/explain takes.

    Examples:
        >>> explain_body()["requestBody"]["content"]["multipart/form-data"]["schema"]["required"]
        ['picture']
    """
    picture = EncodedImage.model_json_schema()["properties"]["data"]["examples"][0]
    examples = {"found": {"summary": "Labels that are found", "value": {"picture": {"name": "a.png", "data": picture}}}}
    return _body(ExplainQuestion, examples, _form(ExplainOptions, "picture", _file()))


def _body(question: type[BaseModel], examples: dict[str, Any], form: dict[str, Any]) -> dict[str, Any]:
    content = {
        "application/json": {"schema": _inlined(question), "examples": examples},
        "multipart/form-data": {"schema": form},
    }
    return {"requestBody": {"required": True, "content": content}}


def _file() -> dict[str, Any]:
    return {"type": "string", "format": "binary"}


def _form(options: type[BaseModel], field: str, files: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of a form: files, and options, which a form cannot send as null."""
    fields = options.model_json_schema()["properties"]
    plain = {name: {**shape["anyOf"][0], "description": shape["description"]} for name, shape in fields.items()}
    return {
        "type": "object",
        "properties": {field: files, **plain},
        "required": [field],
        "additionalProperties": False,
    }


def _inlined(question: type[BaseModel]) -> dict[str, Any]:
    """Return a model's schema with the picture inside it: references would point outside of the document."""
    schema = question.model_json_schema()
    schema.pop("$defs")
    picture = EncodedImage.model_json_schema()
    fields = schema["properties"]
    if "pictures" in fields:
        fields["pictures"]["items"] = picture
    else:
        fields["picture"] = picture
    return schema
