"""What a person reads when the model is ready can be tried as it stands."""

from __future__ import annotations

import json
import re

import msgspec
import pytest

from onechip.config import ServeConfig
from onechip.server.schemas import ChatBody, CompletionBody
from onechip.server.terminal import Terminal


@pytest.mark.parametrize("chats", [True, False])
def test_the_advice_fits_the_model(capsys: pytest.CaptureFixture[str], chats: bool) -> None:
    Terminal(ServeConfig()).ready("http://127.0.0.1:1", "a description", chats)
    captured = capsys.readouterr()
    said = captured.out + captured.err
    assert "a description" in said
    assert ("a page to chat at http://127.0.0.1:1/ " in said) == chats
    body = re.search(r"-d '(.*)'", said)
    assert body is not None
    msgspec.json.decode(body[1], type=ChatBody if chats else CompletionBody)
    assert f"/v1/{'chat/' if chats else ''}completions" in said
    assert json.loads(body[1])["temperature"] == 0
