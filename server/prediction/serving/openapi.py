"""The HTTP service as an OpenAPI 3.1 document. It is the same for every federation, so it reveals nothing of one."""

from __future__ import annotations

from typing import Any

from colonnade.common.contracts.prediction import ROWS

LONGEST = 256  # most characters of an id

_ABOUT = (
    "Predictions of a model that a federation has trained. Every prediction asks all parties. Errors are "
    '{"error": TEXT}, also for an unknown path (404) and a wrong method (405).'
)

Json = dict[str, Any]


def document() -> Json:
    """The document, as JSON values. `info.version` is the version of the paths, not of the software."""
    return {
        "openapi": "3.1.0",
        "info": {"title": "Colonnade predictions", "version": "1", "description": _ABOUT},
        "paths": {
            "/v1/predict": {"post": _predict()},
            "/v1/model": {"get": _model()},
            "/healthz": {"get": _health()},
            "/openapi.json": {"get": _this()},
        },
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "schemas": _schemas(),
            "responses": _responses(),
        },
    }


def _predict() -> Json:
    return {
        "operationId": "predict",
        "summary": "Predictions for ids, in the order of the request",
        "security": [{"token": []}],
        "requestBody": {"required": True, "content": _json("Question")},
        "responses": {
            "200": {"description": "the predictions", "content": _json("Predictions")},
            **_errors(400, 401, 408, 413, 429, 503),
        },
    }


def _model() -> Json:
    return {
        "operationId": "model",
        "summary": "The model, and the latency of its newest responses",
        "security": [{"token": []}],
        "responses": {"200": {"description": "the model", "content": _json("Model")}, **_errors(401, 429, 503)},
    }


def _health() -> Json:
    return {
        "operationId": "health",
        "summary": "Presence of the parties; needs no token",
        "responses": {
            "200": {"description": "all parties are present", "content": _json("Health")},
            "503": {"description": "a party is awaited", "content": _json("Health")},
        },
    }


def _this() -> Json:
    described = {"description": "an OpenAPI document", "content": {"application/json": {"schema": {"type": "object"}}}}
    return {
        "operationId": "openapi",
        "summary": "This document; needs no token",
        "responses": {"200": described, **_errors(503)},
    }


def _schemas() -> Json:
    id = {"type": "string", "minLength": 1, "maxLength": LONGEST}
    names = {"type": "array", "items": {"type": "string"}, "minItems": 1}
    answered = {"id": {"type": "string"}, "known": {"const": True}}
    share = {"type": "number", "minimum": 0, "maximum": 1}
    decision = {"$ref": "#/components/schemas/Decision"}
    return {
        "Question": {
            "type": "object",
            "required": ["ids"],
            "properties": {
                "ids": {
                    "type": "array",
                    "items": {"anyOf": [id, {"type": "integer"}]},
                    "minItems": 1,
                    "maxItems": ROWS,
                    "description": "keys of rows; a whole number stands for its text",
                }
            },
        },
        "Class": _object(answered | {"class": {"type": "string"}, "probabilities": {"type": "array", "items": share}}),
        "Values": _object(answered | {"values": {"type": "array", "items": {"type": "number"}}}),
        "Unknown": _object({"id": {"type": "string"}, "known": {"const": False}}),
        "Predictions": {
            "oneOf": [
                _object({"classes": names, "predictions": _list_of("Class", "Unknown")}, decision=decision),
                _object({"targets": names, "predictions": _list_of("Values", "Unknown")}),
            ]
        },
        "Model": {
            "type": "object",
            "required": ["federation", "protocol", "run", "seconds"],
            "properties": {
                **{key: {"type": "string"} for key in ("federation", "protocol", "run")},
                "classes": names,
                "targets": names,
                "decision": decision,
                "seconds": {
                    "type": "object",
                    "properties": {key: {"type": "number", "minimum": 0} for key in ("p50", "p95")},
                    "additionalProperties": False,
                    "description": "median and 95th percentile of the newest responses; empty before the first",
                },
            },
            "oneOf": [{"required": ["classes"]}, {"required": ["targets"]}],
            "unevaluatedProperties": False,
        },
        "Decision": {
            **_object(
                {
                    "class": {"type": "string", "description": "the positive class, the second of two"},
                    "threshold": {"type": "number", "minimum": 0, "description": "above 1 where no row is of it"},
                    "by": {
                        "enum": ["f1", "youden", "cost", "at", ""],
                        "description": "what chose it; at: it was given",
                    },
                    "calibration": {"enum": ["platt", "isotonic", None]},
                }
            ),
            "description": "a row is of this class if its probability is at least the threshold; left out where a row "
            "is of its likeliest class",
        },
        "Health": _object({"status": {"enum": ["ok", "waiting for parties"]}}),
        "Error": _object({"error": {"type": "string"}}),
    }


def _responses() -> Json:
    told = {
        400: "the request is malformed",
        401: "no token, or an unknown one",
        408: "the body did not arrive in time",
        413: "the body is too large",
        429: "the caller has exceeded its rate",
        503: "the parties do not answer, or there are too many requests",
    }
    found: Json = {str(code): {"description": text, "content": _json("Error")} for code, text in told.items()}
    found["401"]["headers"] = {"WWW-Authenticate": {"required": True, "schema": {"const": "Bearer"}}}
    found["429"]["headers"] = {
        "Retry-After": {"required": True, "description": "seconds", "schema": {"type": "integer", "minimum": 1}}
    }
    return found


def _errors(*codes: int) -> Json:
    return {str(code): {"$ref": f"#/components/responses/{code}"} for code in codes}


def _json(name: str) -> Json:
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}


def _object(properties: Json, **optional: Json) -> Json:
    return {
        "type": "object",
        "required": list(properties),
        "properties": {**properties, **optional},
        "additionalProperties": False,
    }


def _list_of(*names: str) -> Json:
    return {"type": "array", "items": {"oneOf": [{"$ref": f"#/components/schemas/{name}"} for name in names]}}
