"""Lines that begin with a slash -> what they do to the conversation."""

from __future__ import annotations

from onechip.chat.conversation import Conversation, ReadResult
from onechip.chat.screen import Screen
from onechip.errors import UsageError

HELP = """\
/new                 begin a new conversation
/again               ask the last question anew
/system TEXT         the system prompt; without TEXT there is none
/set NAME VALUE      temperature, top_p, top_k, min_p, max_tokens, seed;
                     thinking: default, none, low, medium, high; thoughts: shown, hidden
                     without VALUE: back to the default; alone: show what is set
/tools FILE          functions that the model may call, as JSON; without FILE there are none
/help                this
/exit                leave, as Ctrl-D does
\"\"\"                  begins and ends a message of several lines; // begins one with a slash
Ctrl-C               ends an answer"""


def run(line: str, conversation: Conversation, screen: Screen, read_result: ReadResult) -> bool:
    """Do what a command says; False: leave.

    Raises:
        UsageError: there is no such command, or it is given something wrong.
        EngineError: the server does not answer /again.
    """
    name, _, rest = line[1:].strip().partition(" ")
    rest = rest.strip()
    settings = conversation.settings
    match name:
        case "exit" | "quit" | "bye":
            return False
        case "help" | "?":
            screen.say(HELP)
        case "new":
            conversation.new()
            screen.say("A new conversation.")
        case "again":
            if not conversation.again(read_result):
                raise UsageError("Nothing was asked yet.")
        case "system":
            settings.system = rest
            screen.say("The system prompt is set." if rest else "There is no system prompt.")
        case "set":
            setting, _, value = rest.partition(" ")
            if setting:
                settings.set(setting, value.strip())
            screen.say(settings.describe())
        case "tools":
            if rest:
                settings.load_tools(rest)
            else:
                settings.tools = []
            screen.say(f"{len(settings.tools)} tools.")
        case _:
            raise UsageError(f"There is no command /{name}: /help lists them.")
    return True
