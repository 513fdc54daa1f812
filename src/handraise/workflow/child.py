"""The process of an author's code: has none of the desk's secrets, and does one thing at a time. A script of its own.

    python -I child.py

It takes a line of JSON from its stdin and writes one to its stdout for each. Before it runs anything of the author's it
puts both where nobody writes by accident: what the author prints goes to stderr.

    {"id": 1, "do": "load", "file": …, "root": …, "manifest": {path: sha256}, "paths": […]}   the flows of the file
    {"id": 2, "do": "fit", "flow": …, "step": …, "value": …}
    {"id": 3, "do": "read", "flow": …, "step": …, "value": "what an agent said"}
    {"id": 4, "do": "fill", "flow": …, "step": …, "text": "prompt", "values": {…}}
    {"id": 5, "do": "call", "flow": …, "step": …, "values": {…}}

A reply has the same `id` and one of: `gave`; `broken`, a sentence, where the file cannot be loaded; `unfit`, a list of
problems; `unfilled` and `failed`, a sentence each.
"""

import contextlib
import inspect
import json
import os
import resource
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

LONGEST_LINE = 4 * 1024 * 1024  # bytes, in both directions
MEMORY = 2 * 1024**3  # bytes that one process may allocate for itself
ADDRESSES = 16 * 1024**3  # bytes that it may map in all: libraries map far more than they use


def main() -> None:
    inbox, outbox = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    sys.dont_write_bytecode = True
    sys.stdout.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]
    limit()

    from handraise.workflow import authoring  # noqa: F401 - what takes longest, before anybody waits for it

    own = os.getpid()
    work = Work()
    with os.fdopen(inbox, "rb") as requests:
        say(outbox, {"id": 0, "gave": "ready"})
        for line in requests:
            request = json.loads(line)
            reply = {"id": request["id"], **work.do(request)}
            if os.getpid() != own:
                os._exit(0)  # the author's code forked, and this is the copy
            say(outbox, reply)


def limit() -> None:
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for kind, most in ((resource.RLIMIT_DATA, MEMORY), (resource.RLIMIT_AS, ADDRESSES)):
        hard = resource.getrlimit(kind)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        with contextlib.suppress(OSError, ValueError):  # not every system has them
            resource.setrlimit(kind, (most, most))
    with contextlib.suppress(OSError):  # where memory runs out all the same, this goes first
        Path("/proc/self/oom_score_adj").write_text("1000")


def say(outbox: int, reply: dict[str, Any]) -> None:
    line = json.dumps(reply).encode()
    if len(line) > LONGEST_LINE:
        much = f"what it gave is more than {LONGEST_LINE >> 20} MiB as JSON"
        line = json.dumps({"id": reply["id"], "failed": much}).encode()
    line += b"\n"
    while line:
        line = line[os.write(outbox, line) :]


class Work:
    """What is asked of the author's code."""

    def __init__(self) -> None:
        from handraise.workflow.authoring import Written

        self._written: dict[str, Written] = {}

    def do(self, request: dict[str, Any]) -> dict[str, Any]:
        from handraise.errors import SettingsError, WorkflowBroken
        from handraise.workflow.flow import DoesNotFit, StepFailed

        try:
            return {"gave": self._do(request)}
        except WorkflowBroken as broken:
            return {"broken": broken.message}
        except DoesNotFit as unfit:
            return {"unfit": unfit.problems}
        except SettingsError as unfilled:
            return {"unfilled": unfilled.message}
        except StepFailed as failed:
            return {"failed": str(failed)}
        except MemoryError:
            return {"failed": f"MemoryError: it may use at most {MEMORY >> 30} GiB"}
        except BaseException as problem:  # whatever the author raises is the author's, SystemExit too
            return {"failed": f"{type(problem).__name__}: {problem}"}

    def _do(self, request: dict[str, Any]) -> Any:
        if request["do"] == "load":
            return self._load(request)
        written, step = self._written[request["flow"]], request["step"]
        match request["do"]:
            case "fit":
                return written.fit(step, request["value"])
            case "read":
                return written.read(step, request["value"])
            case "fill":
                return written.fill(step, request["text"], request["values"])
            case "call":
                function = written.workflow.steps[step].function
                assert function is not None
                value = function(**written.arguments(step, request["values"]))
                if inspect.iscoroutine(value):
                    import asyncio  # which takes a while to load, and few functions need it

                    value = asyncio.run(value)
                return written.told(step, value)
        raise ValueError(f"nobody can {request['do']!r} here")

    def _load(self, request: dict[str, Any]) -> list[dict[str, Any]]:
        from handraise.workflow.authoring import Written, guard_imports, load

        file = Path(request["file"])
        sys.path += [path for path in request["paths"] if path not in sys.path]
        loader = guard_imports(request["manifest"], file=file, root=Path(request["root"]))
        for workflow in load(file, loader=loader):
            self._written.setdefault(workflow.name, Written(workflow))
        return [asdict(written.flow) for written in self._written.values()]


if __name__ == "__main__":
    main()
