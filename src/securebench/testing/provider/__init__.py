"""A scripted provider: the Responses, Messages, Chat Completions and Gemini APIs, for real agent programs.

::

    with ScriptedProvider((Shell("echo 42 > candidate.txt"), Say("Done."))) as provider:
        run_an_agent(base_url=provider.url)
    assert provider.keys_seen == {"the expected key"}

It keeps no conversations: each request contains its conversation so far. Any number of clients can use one provider.
``python -m securebench.testing.provider`` runs one from the command line.
"""

from __future__ import annotations

from securebench.testing.provider.answering import Received, ScriptBook, TextBook
from securebench.testing.provider.conversation import ModelConversation
from securebench.testing.provider.faults import FaultPlan, ModelRequest, always, at_first, numbered
from securebench.testing.provider.server import ScriptedProvider, Tls
from securebench.testing.provider.steps import (
    AnswerUsage,
    Cut,
    Fail,
    Fault,
    Garble,
    Hang,
    Redirect,
    Say,
    Script,
    Shell,
    Slow,
    Step,
)

__all__ = [
    "AnswerUsage",
    "Cut",
    "Fail",
    "Fault",
    "FaultPlan",
    "Garble",
    "Hang",
    "ModelConversation",
    "ModelRequest",
    "Received",
    "Redirect",
    "Say",
    "Script",
    "ScriptBook",
    "ScriptedProvider",
    "Shell",
    "Slow",
    "Step",
    "TextBook",
    "Tls",
    "always",
    "at_first",
    "numbered",
]
