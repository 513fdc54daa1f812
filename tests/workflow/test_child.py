"""The author's code has a process of its own: it sees nothing of the desk, and what it does there costs its own run."""

from __future__ import annotations

import asyncio
import json
import os
import py_compile
import re
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest

from handraise.errors import WorkflowBroken, WorkflowNotTrusted
from handraise.workflow.author import AuthorProcesses, allow_all
from handraise.workflow.flow import DoesNotFit, StepFailed
from handraise.workflow.loading import listed
from tests.helpers.nursery import is_running
from tests.helpers.serving import DeskProcess, told
from tests.helpers.trusting import trust_project

Json = dict[str, Any]

PATIENCE = 60.0
TOKEN = "hr_0123456789abcdefghijklmnopqrstuvwxyzABCDEFG"
SECRETS = {
    "HANDRAISE_TOKEN": TOKEN,
    "LINEAR_TOKEN": "lin_api_made_up",
    "CHAT_KEY": "key-of-a-channel",
    "COPY_OF_IT": f"Bearer {TOKEN}",
}

LOOK = """
import json, os
from pathlib import Path
from handraise.workflow import *

def look():
    seen = {"pid": os.getpid(), "environ": dict(os.environ), "fds": {}}
    for number in os.listdir("/proc/self/fd"):
        try:
            seen["fds"][number] = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            pass
    seen["parent"] = Path(f"/proc/{os.getppid()}/environ").read_text()
    seen["argv"] = Path("/proc/self/cmdline").read_text() + Path(f"/proc/{os.getppid()}/cmdline").read_text()
    return seen

def note(what):
    seen = json.dumps({"at": what, **look()})
    with open(MARKER, "a") as file:
        file.write(seen + "\\n")

note("import")

def step(review: int) -> int:
    note("step")
    return review

spy = Workflow("spy", checkpoint("review", output=int), step)
"""
GOOD = 'from handraise.workflow import *\ndef two() -> int:\n    return 2\ngood = Workflow("good", two)\n'

# What a hostile file does, and the reason that is told.
BEHAVIOURS = {
    "hangs": ("import time; time.sleep(3600)", "took longer than"),
    "leaves": ("os._exit(0)", "ended with exit code 0"),
    "is_killed": ("os.kill(os.getpid(), 9)", "killed by signal 9"),
    "allocates": ("x = bytearray(8 << 30); x[::4096] = b'x' * len(x[::4096])", "MemoryError"),
    "allocates_in_parts": (
        "parts = []\n    while True: parts.append(bytearray(b'x') * (64 << 20))",
        "MemoryError|GiB of memory|took longer than",
    ),
    "shares_memory": (
        "import mmap; parts, block = [], b'x' * (128 << 20)\n"
        "    for _ in range(24): parts.append(mmap.mmap(-1, len(block))); parts[-1].write(block)\n"
        "    time.sleep(3600)",
        "GiB of memory|took longer than",  # on a machine whose memory is slow
    ),
    "forks": ("while True:\n        if os.fork() == 0: time.sleep(3600)", "processes"),
    "closes_its_pipe": ("os.closerange(3, 64); time.sleep(3600)", "closed its pipe"),
    "writes_garbage": ("[spill(b'\\xff garbage {\\n') for _ in range(9)]; time.sleep(3600)", "made no sense"),
    "writes_a_long_line": ("[spill(b'x' * (1 << 20)) for _ in range(100)]; time.sleep(3600)", "a line of more than"),
    "replies_to_another": ('spill(b\'{"id": 77, "gave": 1}\\n\'); time.sleep(3600)', "made no sense"),
}
HOSTILE = """
import os, sys, time
from handraise.workflow import *

def spill(data):
    for number in range(3, 64):
        try:
            if "pipe:" in os.readlink(f"/proc/self/fd/{number}"):
                while data:
                    data = data[os.write(number, data):]
        except OSError:
            pass

def act() -> int:
    print("a word on stdout", flush=True)
    os.write(1, b"and more of them\\n")
    BEHAVIOUR
    return 1

AT_IMPORT
hostile = Workflow("hostile", act)
"""


def project(folder: Path, **files: str) -> str:
    place = folder / ".handraise" / "workflows"
    place.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (place / f"{name}.py").write_text(text)
    return str(folder)


def trusted(tmp_path: Path, **files: str) -> str:
    """A project that somebody trusts at the desk of the test."""
    folder = tmp_path / "clone"
    project(folder, **files)
    trust_project(folder, home=tmp_path / "home", config=tmp_path / "config")
    return str(folder)


def hostile(behaviour: str, *, at_import: bool) -> str:
    return HOSTILE.replace("BEHAVIOUR", BEHAVIOURS[behaviour][0]).replace("AT_IMPORT", "act()" if at_import else "")


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[DeskProcess]:
    config = tmp_path / "config" / "handraise"
    config.mkdir(parents=True)
    (config / "config.toml").write_text('[channels.chat]\nkind = "ntfy"\ntoken_env = "CHAT_KEY"\n')
    database = f"sqlite:///{tmp_path / 'desk.db'}"
    environ: dict[str, Any] = {"XDG_CONFIG_HOME": str(config.parent), "HANDRAISE_DATABASE": database, **SECRETS}
    async with DeskProcess(tmp_path / "home", **environ) as desk:
        yield desk


async def ended(http: httpx2.AsyncClient, run: str) -> Json:
    async with asyncio.timeout(PATIENCE):
        while True:
            found = await told(http.get(f"/v1/runs/{run}?wait=20"), 200)
            if found["state"] not in ("running", "waiting"):
                return found


async def told_of(http: httpx2.AsyncClient, cwd: str) -> dict[str, Json]:
    found = await told(http.get(f"/v1/workflows?cwd={cwd}", timeout=PATIENCE), 200)
    return {each["name"]: each for each in found["workflows"]}


def is_clean(seen: Json, *, desk: DeskProcess) -> None:
    """That nothing of the desk is to be found in what a file saw."""
    assert seen["pid"] != desk.pid
    assert [name for name in seen["environ"] if name.startswith("HANDRAISE_")] == [
        "HANDRAISE_AGENT"
    ]  # it descends from us
    everything = json.dumps([seen["environ"], seen["parent"], seen["argv"]]).replace("HANDRAISE_AGENT", "")
    for secret in (*SECRETS.values(), *SECRETS, desk.token, "HANDRAISE_", "desk.db"):
        assert secret not in everything, f"{secret} is in what {seen['at']} saw"
    assert "PATH" in seen["environ"]
    links = [link for number, link in seen["fds"].items() if not link.startswith(("pipe:", "/dev/null", "/proc/"))]
    assert not links, links


async def test_no_code_of_a_project_runs_in_the_desk_or_sees_its_secrets(desk: DeskProcess, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    cwd = trusted(tmp_path, spy=LOOK.replace("MARKER", repr(str(marker))))
    async with desk.client() as http:
        assert (await told_of(http, cwd))["spy"]["steps"][0] == {"id": "review", "kind": "checkpoint"}
        run = (await told(http.post("/v1/runs", json={"workflow": "spy", "cwd": cwd}), 201))["id"]
        async with asyncio.timeout(PATIENCE):
            while (await told(http.get(f"/v1/runs/{run}?wait=20"), 200))["state"] != "waiting":
                pass
        await told(http.get(f"/v1/checkpoints/{run}.review"), 200)
        await told(http.post(f"/v1/checkpoints/{run}.review", json={"output": 3}), 200)
        assert (await ended(http, run))["output"] == 3
    seen = [json.loads(line) for line in marker.read_text().splitlines()]
    assert {each["at"] for each in seen} == {"import", "step"}
    for each in seen:
        is_clean(each, desk=desk)


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
async def test_a_file_that_misbehaves_when_it_is_loaded_costs_its_own_line(
    desk: DeskProcess, tmp_path: Path, behaviour: str
) -> None:
    cwd = trusted(tmp_path, hostile=hostile(behaviour, at_import=True), good=GOOD)
    async with desk.client() as http:
        found = await told_of(http, cwd)
        assert found["good"]["steps"] == [{"id": "two", "kind": "function"}]
        assert found["hostile"]["problem"].startswith("hostile.py:")
        assert re.search(BEHAVIOURS[behaviour][1], found["hostile"]["problem"])
        await told(http.get("/healthz"), 200)


@pytest.mark.parametrize("behaviour", BEHAVIOURS)
async def test_a_function_that_misbehaves_costs_its_own_run(desk: DeskProcess, tmp_path: Path, behaviour: str) -> None:
    text = hostile(behaviour, at_import=False)
    if behaviour == "hangs":
        text = text.replace('("hostile", act)', '("hostile", function(act, timeout=2))')
    cwd = trusted(tmp_path, hostile=text, good=GOOD)
    async with desk.client() as http:
        first = (await told(http.post("/v1/runs", json={"workflow": "hostile", "cwd": cwd}), 201))["id"]
        second = (await told(http.post("/v1/runs", json={"workflow": "good", "cwd": cwd}), 201))["id"]
        good, bad = await ended(http, second), await ended(http, first)
        assert (good["state"], good["output"]) == ("done", 2)
        assert bad["state"] == "failed"
        assert bad["error"].startswith("act: ")
        assert re.search(BEHAVIOURS[behaviour][1], bad["error"])
        again = (await told(http.post("/v1/runs", json={"workflow": "good", "cwd": cwd}), 201))["id"]
        assert (await ended(http, again))["state"] == "done"
        await told(http.get("/healthz"), 200)


async def test_what_the_code_runs_ends_with_the_desk(desk: DeskProcess, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    text = (
        "import os, subprocess, time\nfrom handraise.workflow import *\n"
        "def hold() -> int:\n"
        "    other = subprocess.Popen(['sleep', '3600'], start_new_session=True)\n"
        f"    open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{other.pid}}\\n')\n"
        "    time.sleep(3600)\n"
        'held = Workflow("held", hold)\n'
    )
    cwd = trusted(tmp_path, held=text)
    async with desk.client() as http:
        await told(http.post("/v1/runs", json={"workflow": "held", "cwd": cwd}), 201)
        async with asyncio.timeout(PATIENCE):
            while not (pids.exists() and pids.read_text().endswith("\n")):
                await asyncio.sleep(0.02)
    await desk.kill()
    async with asyncio.timeout(PATIENCE):
        while any(is_running(int(pid)) for pid in pids.read_text().split()):
            await asyncio.sleep(0.02)


# One door, without a desk -------------------------------------------------------------------------------------------


def written(folder: Path, text: str, **others: str) -> Path:
    project(folder, flow=f"from handraise.workflow import *\n{text}", **others)
    return folder / ".handraise" / "workflows" / "flow.py"


FUNCTION = 'def act() -> str:\n    {}\nflow = Workflow("flow", act)\n'


async def called(authors: AuthorProcesses, file: Path) -> Any:
    return await (await authors.open(file, "flow")).call("act", {})


async def test_a_file_imports_what_lies_beside_it(tmp_path: Path) -> None:
    text = "import near\nfrom inside.deep import word\n" + FUNCTION.format("return near.word + word")
    file = written(tmp_path, text, near='word = "a"\n')
    (file.parent / "inside").mkdir()
    (file.parent / "inside" / "deep.py").write_text('word = "b"\n')
    async with AuthorProcesses(may_load=allow_all) as authors:
        assert await called(authors, file) == "ab"
        (file.parent / "near.py").write_text('word = "c"\n')  # the file itself is as it was
        assert await called(authors, file) == "cb"


@pytest.mark.parametrize(
    "way",
    [
        "import importlib; importlib.import_module('hid' + 'den')",
        "__import__('hid' + 'den')",
        "import sys; sys.path.insert(0, 'ROOT'); __import__('root' + 'ed')",
        "import sys; sys.path.insert(0, 'LINK'); __import__('root' + 'ed')",
        "__import__('compi' + 'led')",
    ],
)
async def test_what_nobody_looked_at_is_not_imported(tmp_path: Path, way: str) -> None:
    root, link = tmp_path / "clone", tmp_path / "link"
    file = written(
        root,
        way.replace("LINK", str(link)).replace("ROOT", str(root)) + '\nflow = Workflow("flow", shell("a", "true"))\n',
    )
    link.symlink_to(root)
    bad = f"open({str(tmp_path / 'marker')!r}, 'w')\n"
    (file.parent / "hidden.py").write_text(bad)
    (root / "rooted.py").write_text(bad)
    (tmp_path / "compiled.py").write_text(bad)
    py_compile.compile(str(tmp_path / "compiled.py"), cfile=str(file.parent / "compiled.pyc"), doraise=True)
    async with AuthorProcesses(may_load=allow_all) as authors:
        with pytest.raises(WorkflowBroken, match=r"^flow.py:\d+: ImportError: .*not among the files .*handraise trust"):
            await authors.flows(file)
    assert not (tmp_path / "marker").exists()


async def test_what_was_compiled_before_is_not_used(tmp_path: Path) -> None:
    file = written(tmp_path, "import near\n" + FUNCTION.format("return near.word"), near='word = "evil"\n')
    near = file.parent / "near.py"
    py_compile.compile(str(near), doraise=True)
    before = near.stat()
    near.write_text('word = "good"\n')
    os.utime(near, ns=(before.st_atime_ns, before.st_mtime_ns))
    async with AuthorProcesses(may_load=allow_all) as authors:
        assert await called(authors, file) == "good"


async def test_a_file_that_changes_after_it_was_looked_at_is_not_run(tmp_path: Path) -> None:
    file = written(tmp_path, "import near\n" + FUNCTION.format("return near.word"), near='word = "a"\n')

    def look(file: Path, sources: Mapping[Path, bytes]) -> None:
        assert sorted(path.name for path in sources) == ["flow.py", "near.py"]
        (file.parent / "near.py").write_text('word = "b"\n')

    async with AuthorProcesses(may_load=look) as authors:
        with pytest.raises(WorkflowBroken, match=r"near\.py was changed just now; try again"):
            await called(authors, file)


async def test_a_file_that_is_not_trusted_is_listed_and_not_run(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    bad = f"open({str(marker)!r}, 'w')\n" + 'flow = Workflow("flow", shell("a", "true"))\n'
    file = written(tmp_path / "clone", bad)
    own = tmp_path / "config" / "workflows" / "mine.py"
    own.parent.mkdir(parents=True)
    own.write_text('from handraise.workflow import *\nw = Workflow("mine", shell("a", "true"))\n')

    def refuse(file: Path, sources: Mapping[Path, bytes]) -> None:
        raise WorkflowNotTrusted(f"{file} is not trusted here; `handraise trust` shows what it would do")

    async with AuthorProcesses(config=tmp_path / "config", may_load=refuse) as authors:
        with pytest.raises(WorkflowNotTrusted) as refused:
            await authors.open(file, "flow")
        assert refused.value.status == 403
        found = await listed([file.parent, own.parent], authors)
    assert [(each["name"], "handraise trust" in each.get("problem", "")) for each in found] == [
        ("flow", True),
        ("mine", False),
    ]
    assert not marker.exists()


async def test_a_process_is_shared_until_its_code_leaves_something_behind(tmp_path: Path) -> None:
    text = (
        "import os, threading, time, subprocess\n"
        "def pid() -> int:\n    return os.getpid()\n"
        "def thread() -> int:\n    threading.Thread(target=time.sleep, args=(3600,), daemon=True).start()\n"
        "    return os.getpid()\n"
        "def program() -> int:\n    subprocess.Popen(['sleep', '3600'])\n    return os.getpid()\n"
        "def forked() -> int:\n    os.fork()\n    return os.getpid()\n"
        "def orphan() -> int:\n"
        "    if os.fork() == 0:\n        os.setsid()\n"
        "        if os.fork() == 0: time.sleep(3600)\n        os._exit(0)\n"
        "    os.wait()\n    return os.getpid()\n"
        'flow = Workflow("flow", pid, thread, program, forked, orphan)\n'
    )
    async with AuthorProcesses(may_load=allow_all) as authors:
        author = await authors.open(written(tmp_path, text), "flow")
        first = await author.call("pid", {})
        assert await author.call("pid", {}) == first
        for leaves in ("thread", "program", "forked", "orphan"):
            left = await author.call(leaves, {})
            assert left == first
            first = await author.call("pid", {})
            assert first != left


async def test_a_call_that_nobody_waits_for_any_more_is_ended(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    body = f"import os, time; open({str(pid)!r}, 'w').write(str(os.getpid())); time.sleep(3600)"
    async with AuthorProcesses(may_load=allow_all) as authors:
        calling = asyncio.create_task(called(authors, written(tmp_path, FUNCTION.format(body))))
        async with asyncio.timeout(PATIENCE):
            while not (pid.exists() and pid.read_text()):
                await asyncio.sleep(0.01)
            calling.cancel()
            while is_running(int(pid.read_text())):
                await asyncio.sleep(0.01)
        with pytest.raises(asyncio.CancelledError):
            await calling


async def test_a_type_that_hangs_or_leaves_costs_its_own_value(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        "import os, time\nfrom typing import Annotated\nfrom pydantic import AfterValidator\n"
        "def check(value: int) -> int:\n"
        "    if value == 1: time.sleep(3600)\n    if value == 2: os._exit(3)\n    if value == 3: raise KeyError('x')\n"
        "    if value == 4: raise ValueError('four')\n    return value\n"
        'flow = Workflow("flow", checkpoint("a", output=Annotated[int, AfterValidator(check)]))\n'
    )
    monkeypatch.setattr("handraise.workflow.author.CHECK", 1.0)
    async with AuthorProcesses(may_load=allow_all) as authors:
        author = await authors.open(written(tmp_path, text), "flow")
        with pytest.raises(WorkflowBroken, match="took longer than 1 s"):
            await author.fit("a", 1)
        with pytest.raises(WorkflowBroken, match="ended with exit code 3"):
            await author.fit("a", 2)
        for value, problem in ((3, "KeyError: 'x'"), (4, "Value error, four")):
            with pytest.raises(DoesNotFit) as unfit:
                await author.fit("a", value)
            assert unfit.value.problems == [{"at": "", "problem": problem}]
        assert [await author.fit("a", 5) for _ in range(2)] == [5, 5]


async def test_what_a_file_says_of_itself_is_checked_again(tmp_path: Path) -> None:
    """Names of steps become names of folders."""
    text = (
        "import handraise.workflow.flow as flow, handraise.workflow.steps as steps\n"
        "steps.is_name = lambda name: True\n"
        'w = Workflow("flow", agent("../../x", "go", worktree=True))\n'
    )
    async with AuthorProcesses(may_load=allow_all) as authors:
        with pytest.raises(WorkflowBroken, match="what it says of its workflows made no sense"):
            await authors.flows(written(tmp_path, text))


async def test_a_result_that_is_too_large_or_cannot_be_read_again_fails_its_step(tmp_path: Path) -> None:
    for body, why in (
        ("return 'x' * (5 << 20)", "more than 4 MiB"),
        ("return object()", "does not fit its output"),
        ("raise SystemExit(4)", "SystemExit: 4"),
    ):
        async with AuthorProcesses(may_load=allow_all) as authors:
            with pytest.raises(StepFailed, match=why):
                await called(authors, written(tmp_path, FUNCTION.format(body)))


async def test_a_result_of_too_many_values_fails_its_step_before_it_is_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = 'def act() -> list[int]:\n    return [0] * {}\nflow = Workflow("flow", act)\n'
    async with AuthorProcesses(may_load=allow_all) as authors:
        assert len(await called(authors, written(tmp_path / "few", text.format(20_000)))) == 20_000
        parsed: list[int] = []
        loads = json.loads
        monkeypatch.setattr(json, "loads", lambda text: parsed.append(len(text)) or loads(text))
        with pytest.raises(StepFailed, match="more than 25,000 values"):
            await called(authors, written(tmp_path / "many", text.format(1_000_000)))
        assert not [size for size in parsed if size > 1_000_000]
