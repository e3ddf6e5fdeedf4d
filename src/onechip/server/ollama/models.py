"""What Ollama's clients ask about the server: which model there is, what it can do, which API this is."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive

from onechip.errors import RequestError
from onechip.server.errors import json_response
from onechip.server.ollama.body import ShowBody
from onechip.server.ollama.endpoint import named_model
from onechip.server.ollama.replies import (
    ListedModel,
    ModelDetails,
    Running,
    RunningModel,
    Shown,
    Tags,
    Version,
    timestamp,
)
from onechip.server.service import Model, Service

API_VERSION = "0.14.0"
"""The version of Ollama whose API this is: the first that has Responses and Messages too. Clients refuse to
talk to one that is too old, Codex to one before 0.13.4.
"""

_NEVER = "2300-01-01T00:00:00Z"
"""As far off as Ollama itself says, from which its clients make "forever"."""


def tags(service: Service, _: Request) -> Response:
    """GET /api/tags: the one model."""
    model, name = service.model(), service.config.model_id
    listed = ListedModel(
        name, name, timestamp(model.facts.modified), model.facts.weight_bytes, _details(model)
    )
    return json_response(Tags([listed]))


def running(service: Service, _: Request) -> Response:
    """GET /api/ps: the one model, which is always loaded."""
    model, name = service.model(), service.config.model_id
    context, size = model.engine.context, model.facts.weight_bytes
    return json_response(Running([RunningModel(name, name, size, _details(model), context, _NEVER)]))


async def show(service: Service, body: ShowBody, _: Receive) -> Response:
    """POST /api/show: the template, and what the model can do."""
    name = body.model or body.name
    if name is None:
        raise RequestError("model is missing.", param="model", code="missing_parameter")
    model = named_model(service, name)
    template = model.template
    abilities = {
        "tools": template and template.reads_tools,
        "thinking": template and model.can_think,
    }
    family = model.facts.family
    info: dict[str, Any] = {
        "general.architecture": family,
        f"{family}.context_length": model.engine.context,
    }
    shown = Shown(
        template.source if template else "",
        _details(model),
        info,
        ["completion", *(ability for ability, has in abilities.items() if has)],
        timestamp(model.facts.modified),
    )
    return json_response(shown)


def version(_: Service, request: Request) -> Response:
    """GET /api/version."""
    return json_response(Version(API_VERSION))


def _details(model: Model) -> ModelDetails:
    family = model.facts.family
    return ModelDetails(model.facts.format, family, [family] if family else [])
