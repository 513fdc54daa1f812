"""An MCP server of one tool that wants a form filled in and says what came back. JSON-RPC by hand, a line each."""

import json
import sys
from itertools import count

FORM = {
    "type": "object",
    "properties": {
        "colour": {"type": "string", "title": "Colour", "enum": ["red", "green"]},
        "count": {"type": "integer", "title": "How many", "minimum": 1},
        "sure": {"type": "boolean"},
    },
    "required": ["colour"],
}
TOOL = {"name": "ask", "description": "asks the person", "inputSchema": {"type": "object", "properties": {}}}
numbers = count(1)


def send(**message: object) -> None:
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def main() -> None:
    waiting: dict[str, object] = {}  # the id of the call that each form belongs to
    for line in sys.stdin:
        message = json.loads(line)
        id = message.get("id")
        match message.get("method"):
            case "initialize":
                version = message["params"]["protocolVersion"]
                about = {"name": "forms", "version": "1"}
                send(id=id, result={"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about})
            case "tools/list":
                send(id=id, result={"tools": [TOOL]})
            case "tools/call":
                form = f"form-{next(numbers)}"
                waiting[form] = id
                send(id=form, method="elicitation/create", params={"message": "Which colour?", "requestedSchema": FORM})
            case None if id in waiting:
                said = json.dumps(message.get("result"))
                send(id=waiting.pop(id), result={"content": [{"type": "text", "text": said}]})
            case _ if id is not None:
                send(id=id, result={})


main()
