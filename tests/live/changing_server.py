"""An MCP server of one tool that makes a file. JSON-RPC by hand, a line each."""

import json
import sys
from pathlib import Path

TOOL = {
    "name": "change",
    "description": "makes a file",
    "inputSchema": {"type": "object", "properties": {"path": {"type": "string"}}},
}


def result_of(method: str, params: dict[str, object]) -> dict[str, object]:
    match method:
        case "initialize":
            about = {"name": "changing", "version": "1"}
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": about,
            }
        case "tools/list":
            return {"tools": [TOOL]}
        case "tools/call":
            given = params["arguments"]
            assert isinstance(given, dict)
            Path(given["path"]).touch()
            return {"content": [{"type": "text", "text": "made it"}]}
    return {}


def main() -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            result = result_of(message["method"], message.get("params", {}))
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": result}), flush=True)


main()
