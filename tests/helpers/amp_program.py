"""A stand-in for Amp's program, whose turns cannot run without its server. A script of its own, never imported.

It takes the flags and the JSON lines of `amp -x`, and treats permissions as Amp does: the first rule that fits counts,
and a delegate is started as Amp starts it. What a prompt says is what the model does:

    run COMMAND         a call of shell_command, and what became of it is the reply
    twice COMMAND       the same call two times at once
    say TEXT            the reply
    fail TEXT           the turn ends with that error
    die TEXT            the program ends with that on stderr
    tools               the reply is the names of the MCP servers
"""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

THREAD = "T-11111111-2222-3333-4444-555555555555"


def main() -> int:
    words = sys.argv[1:]
    if words == ["--version"]:
        print("0.0.1790142911-g7618fb (released 2026-09-23T05:55:11.000Z, 1mo ago)")
        return 0
    thread = THREAD
    if words[:2] == ["threads", "continue"]:
        thread, words = words[2], words[3:]
    settings, flags = None, set()
    while words:
        word = words.pop(0)
        if word == "--settings-file":
            settings = json.loads(Path(words.pop(0)).read_text())
        elif word in ("-x", "--stream-json", "--stream-json-input", "--no-archive-after-execute"):
            flags.add(word)
        else:
            print(f"error: unknown option '{word}'", file=sys.stderr)
            return 1
    assert settings is not None and {"-x", "--stream-json", "--stream-json-input"} <= flags
    if not os.environ.get("AMP_API_KEY"):
        print("No API key found. Starting login flow...", flush=True)
        sys.stdin.read()
        return 1
    servers = [{"name": name, "status": "connected"} for name in settings.get("amp.mcpServers", {})]
    tell("system", thread, subtype="init", cwd=str(Path.cwd()), tools=["shell_command"], mcp_servers=servers)
    for line in sys.stdin:
        message = json.loads(line)
        assert message["type"] == "user" and message["message"]["role"] == "user", message
        [block] = message["message"]["content"]
        turn(block["text"], thread=thread, settings=settings)
    return 0


def turn(text: str, *, thread: str, settings: dict[str, Any]) -> None:
    *before, last = text.splitlines()
    if before:  # told after a restart
        reply = "\n".join([*before, last])
        again = next((line for line in [*before, last] if "That is allowed" in line), "")
        if again:
            reply = call(again.partition("for permission: ")[2].partition(". That is")[0], thread, settings)
        end(reply, thread)
        return
    verb, _, rest = text.partition(" ")
    match verb:
        case "run":
            end(call(rest, thread, settings), thread)
        case "twice":
            with ThreadPoolExecutor(2) as pool:
                end(" | ".join(pool.map(lambda _: call(rest, thread, settings), range(2))), thread)
        case "fail":
            tell("result", thread, subtype="error_during_execution", is_error=True, error=rest)
        case "die":
            print(rest, file=sys.stderr, flush=True)
            os._exit(3)
        case "tools":
            end(",".join(sorted(settings.get("amp.mcpServers", {}))), thread)
        case _:
            end(rest, thread)


def call(command: str, thread: str, settings: dict[str, Any]) -> str:
    given = {"command": command}
    block = {"type": "tool_use", "id": "toolu_1", "name": "shell_command", "input": given}
    tell("assistant", thread, parent_tool_use_id=None, message={"role": "assistant", "content": [block]})
    action, said = decided(given, thread, settings)
    if action == "allow":
        done = subprocess.run(command, shell=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
        said = f"ran: {done.stdout.strip()}"
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": said, "is_error": action != "allow"}
    tell("user", thread, message={"role": "user", "content": [result]})
    return said


def decided(given: dict[str, Any], thread: str, settings: dict[str, Any]) -> tuple[str, str]:
    if settings.get("amp.dangerouslyAllowAll"):
        return "allow", ""
    for rule in settings.get("amp.permissions", []):
        matches = rule.get("matches", {})
        if not fnmatch.fnmatch("shell_command", rule["tool"]):
            continue
        if not all(fnmatch.fnmatch(given.get(name, ""), pattern) for name, pattern in matches.items()):
            continue
        if rule["action"] != "delegate":
            return rule["action"], f"refused by a rule: {rule.get('message', '')}"
        env = {**os.environ, "AGENT": "amp", "AGENT_TOOL_NAME": "shell_command", "AMP_THREAD_ID": thread}
        asked = subprocess.run(
            [rule["to"]], input=json.dumps(given).encode(), capture_output=True, env=env, start_new_session=True
        )
        said = asked.stderr.decode().strip()
        return {0: "allow", 1: "ask"}.get(asked.returncode, "reject"), f"refused: {said}"
    return "ask", "nobody to ask"


def end(text: str, thread: str) -> None:
    block = {"type": "text", "text": text}
    tell("assistant", thread, parent_tool_use_id=None, message={"role": "assistant", "content": [block]})
    tell("result", thread, subtype="success", is_error=False, result=text, duration_ms=1, num_turns=1)


def tell(type: str, thread: str, **fields: Any) -> None:
    print(json.dumps({"type": type, "session_id": thread, **fields}), flush=True)


if __name__ == "__main__":
    sys.exit(main())
