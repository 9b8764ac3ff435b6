"""The texts of `/docs` and `/openapi.json`. This module makes the page from the schema: it loads nothing from other hosts."""

from __future__ import annotations

import html
import json
from typing import Any

from app.serve import schemas
from app.serve.uploads import ENCODED, MANY, PLANES, RGB

BYTES = {"type": "string", "format": "binary"}


def _response(description: str, model: type | None = schemas.Failure) -> dict[str, Any]:
    return {"description": description} | ({"model": model} if model is not None else {})


PROTECTED: dict[int | str, dict[str, Any]] = {401: _response("The token is missing or wrong")}
LIVE: dict[int | str, dict[str, Any]] = {200: {"content": {"application/json": {"example": {"live": True}}}}}
READY: dict[int | str, dict[str, Any]] = {
    503: _response("Not ready: starting, stopping, failed, or with fewer workers than asked for", schemas.State)
}
METRICS: dict[int | str, dict[str, Any]] = PROTECTED | {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}


def _header(name: str, description: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"name": name, "in": "header", "required": False, "description": description, "schema": schema}


SIZE = {"type": "integer", "minimum": 1}
MILLISECONDS = {"type": "number", "exclusiveMinimum": 0}
CLASSIFY: dict[str, Any] = {
    "response_model": schemas.Answer | schemas.Answers,
    "description": (
        "One picture as the body, or many as `multipart/form-data` with any field names. The data decides the kind of a "
        "picture, not its name. Rotation tags are applied, transparent parts are white, of an animation the first picture "
        "counts. A bad picture of a form has its own failure in its place; if all are bad, the status is that of the first. "
        f"Samples go as `{RGB}` (rows of R, G, B bytes) or `{PLANES}` (the planes Y, U, V), with X-Width and X-Height."
    ),
    "responses": {
        **PROTECTED,
        400: _response("Empty, undecodable or cut off"),
        413: _response("Too many bytes, pixels or pictures"),
        415: _response("The service does not accept this type of body"),
        422: _response("topk, X-Deadline-Ms or the size of samples is wrong"),
        500: _response("The model could not answer"),
        503: _response("Full, or the deadline cannot be met, or no worker is ready: try again after Retry-After seconds"),
        504: _response("The deadline has passed"),
    },
    "openapi_extra": {
        "parameters": [
            {
                "name": "topk",
                "in": "query",
                "required": False,
                "description": "Labels of each picture",
                "schema": {"type": "integer", "minimum": 1, "default": 5},
            },
            _header("X-Deadline-Ms", "Deadline: milliseconds from the headers of the request to its answer", MILLISECONDS),
            _header("X-Width", f"For {RGB} and {PLANES}", SIZE),
            _header("X-Height", f"For {RGB} and {PLANES}", SIZE),
        ],
        "requestBody": {
            "required": True,
            "content": {
                **{kind: {"schema": BYTES} for kind in (*ENCODED, RGB, PLANES)},
                MANY: {"schema": {"type": "object", "additionalProperties": {"type": "array", "items": BYTES}}},
            },
        },
    },
}

STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em}"
    "pre{background:#8881;padding:.8em;overflow:auto}code,pre{font-size:14px}td,th{text-align:left;padding:.1em 1em .1em 0}"
)


def page(schema: dict[str, Any]) -> str:
    """The schema as one page of HTML, without a script."""
    info = schema["info"]
    parts = [_route(path, method, route, schema) for path, ways in schema["paths"].items() for method, route in ways.items()]
    example = (
        "curl --data-binary @photo.jpg -H 'Content-Type: image/jpeg' URL/v1/classify?topk=3\n"
        "curl -F picture=@a.jpg -F picture=@b.png URL/v1/classify"
    )
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>{html.escape(info['title'])}</title><style>{STYLE}</style>"
        f"<h1>{html.escape(info['title'])}</h1><p>{html.escape(info['description'])}</p>"
        f"<pre>{html.escape(example)}</pre><p>For programs: <a href=openapi.json>openapi.json</a></p>{''.join(parts)}</html>"
    )


def _route(path: str, method: str, route: dict[str, Any], schema: dict[str, Any]) -> str:
    lines = [f"<h2><code>{method.upper()} {html.escape(path)}</code></h2><p>{html.escape(route.get('summary', ''))}. "]
    lines.append(html.escape(route.get("description", "")))
    for title, rows in (("Asked with", _asked(route)), ("Answered with", _answered(route))):
        if rows:
            cells = "".join(f"<tr><td><code>{html.escape(a)}</code><td>{html.escape(b)}" for a, b in rows)
            lines.append(f"<table><tr><th>{title}<th>{cells}</table>")
    example = _example(route["responses"].get("200", {}), schema)
    if example is not None:
        lines.append(f"<pre>{html.escape(json.dumps(example, indent=1))}</pre>")
    return "".join(lines)


def _asked(route: dict[str, Any]) -> list[tuple[str, str]]:
    rows = [(p["name"], f"{p['in']}: {p['description']}") for p in route.get("parameters", [])]
    return rows + [(kind, "body") for kind in route.get("requestBody", {}).get("content", {})]


def _answered(route: dict[str, Any]) -> list[tuple[str, str]]:
    return [(status, response["description"]) for status, response in sorted(route["responses"].items())]


def _example(response: dict[str, Any], schema: dict[str, Any]) -> Any:
    """The first example of an answer; None without one."""
    content = response.get("content", {}).get("application/json", {})
    if "example" in content:
        return content["example"]
    kind = content.get("schema", {})
    kind = kind.get("anyOf", [kind])[0]
    name = kind.get("$ref", "").rpartition("/")[2]
    found = schema.get("components", {}).get("schemas", {}).get(name, {}).get("examples")
    return found[0] if found else None
