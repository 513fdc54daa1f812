"""Trust over HTTP: only a browser that signed in says yes, to what its person saw, and no folder harms a desk."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from handraise.config import load
from handraise.server.gate import SESSION_HEADER, cookie_name
from handraise.server.routes import trust as trust_routes
from handraise.trust import MOST_COMPARED, MOST_TOGETHER, Trust
from tests.helpers.serving import START, Served, refused, serving, told

SETTINGS = """
[policy]
question_policy = "accept-first"

[[rules]]
tool = "shell"
matches = { command = "make*" }
action = "allow"

[agents.claude]
command = ["./bin/agent"]
"""
WORKFLOW = """
from handraise.workflow import Workflow

def step(input: dict) -> str:
    return "done"

nightly = Workflow("nightly", step)
"""


# The parser of TOML takes time and memory by the square of the dots in a name.
DOTS = ".".join("a" * 100_000)
BOMBS = (
    f"{DOTS} = 1\n",
    f"[{DOTS}]\nk = 1\n",
    f'x = {{ y = """\n""", {DOTS} = 1 }}\n',
    '"\u2028".' * 50_000 + "a = 1\n",
    f"[{'a.' * 3_000}a]\nx = '''\n[\n'''\n" + "".join(f"k{number} = 1\n" for number in range(20_000)),
    "".join(f"[agents.a{number}]\n" for number in range(30_000)),
)


@pytest.fixture
async def desk(tmp_path: Path) -> AsyncIterator[Served]:
    async with serving(tmp_path / "home") as desk:
        yield desk


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A project that came from elsewhere."""
    folder = tmp_path / "clone"
    (folder / ".handraise" / "workflows").mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "bin" / "agent").write_text("#!/bin/sh\n")
    (folder / "bin" / "agent").chmod(0o755)
    (folder / "handraise.toml").write_text(SETTINGS)
    (folder / ".handraise" / "workflows" / "nightly.py").write_text(WORKFLOW)
    return folder


@dataclass
class Halves:
    """Of a browser that signed in."""

    cookie: dict[str, str]
    secret: dict[str, str]

    @property
    def both(self) -> dict[str, str]:
        return self.cookie | self.secret


async def sign_in(desk: Served) -> Halves:
    """By the real link, as a browser does."""
    link = (await told(desk.http.post("/v1/signin", json={}), 201))["url"]
    page = await (await desk.client()).post(link)
    [secret] = re.findall(r'data-secret="([\w-]+)"', page.text)
    name = cookie_name(httpx2.URL(desk.url).port or 0)
    return Halves({"Cookie": f"{name}={page.cookies[name]}"}, {SESSION_HEADER.decode(): secret})


@pytest.fixture
async def halves(desk: Served) -> Halves:
    return await sign_in(desk)


@pytest.fixture
async def person(desk: Served, halves: Halves) -> httpx2.AsyncClient:
    """In front of a browser that signed in."""
    return await desk.client(**halves.both)


async def look(person: httpx2.AsyncClient, folder: Path) -> dict[str, Any]:
    return await told(person.get("/v1/trust", params={"cwd": str(folder)}), 200)


def yes_to(seen: dict[str, Any], *names: str) -> dict[str, Any]:
    """What the page sends: all that was shown and can be trusted, or the parts of these names."""
    parts = [part for part in seen["parts"] if part["fingerprint"] is not None and (not names or part["name"] in names)]
    return {
        "cwd": seen["cwd"],
        "parts": [{"name": part["name"], "fingerprint": part["fingerprint"]} for part in parts],
    }


def states(seen: dict[str, Any]) -> dict[str, str]:
    return {part["name"]: part["state"] for part in seen["parts"]}


def kept(desk: Served) -> dict[str, list[str]]:
    return {project: sorted(parts) for project, parts in Trust(desk.settings.trust_file).projects().items()}


# Who may ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scopes", [("ask",), ("answer",), ("admin",), ("ask", "answer", "admin")], ids="+".join)
async def test_no_token_of_any_scope_can_trust(
    desk: Served, person: httpx2.AsyncClient, clone: Path, scopes: tuple[str, ...]
) -> None:
    wanted = yes_to(await look(person, clone))
    secret = (await told(desk.http.post("/v1/tokens", json={"name": "browser-1", "scopes": scopes}), 201))["token"]
    basic = base64.b64encode(f"any:{secret}".encode()).decode()
    nobody = await desk.client()
    for proof in (f"Bearer {secret}", f"Basic {basic}"):
        said = await refused(nobody.post("/v1/trust", json=wanted, headers={"Authorization": proof}), 403, "forbidden")
        assert "`handraise trust` in a terminal" in said["message"]
    assert kept(desk) == {}


async def test_the_admin_token_of_the_home_and_that_of_the_environment_cannot_trust(
    tmp_path: Path, clone: Path
) -> None:
    async with serving(tmp_path / "home", token="from the environment") as desk:
        wanted = yes_to(await look(desk.http, clone))
        for caller in (desk.http, await desk.client("from the environment")):
            await refused(caller.post("/v1/trust", json=wanted), 403, "forbidden")
        assert kept(desk) == {}


async def test_half_a_browser_is_nobody_and_a_token_beside_it_stays_a_token(
    desk: Served, halves: Halves, person: httpx2.AsyncClient, clone: Path
) -> None:
    wanted, nobody = yes_to(await look(person, clone)), await desk.client()
    other = await sign_in(desk)
    for headers in (halves.cookie, halves.secret, halves.cookie | other.secret, {}):
        await refused(nobody.post("/v1/trust", json=wanted, headers=headers), 401, "unauthorized")
    both = halves.both | {"Authorization": f"Bearer {desk.token}"}
    await refused(nobody.post("/v1/trust", json=wanted, headers=both), 403, "forbidden")
    swapped = [{"Authorization": f"Bearer {half}"} for half in [*halves.secret.values(), halves.cookie["Cookie"]]]
    for headers in swapped:
        await refused(nobody.post("/v1/trust", json=wanted, headers=headers), 401, "unauthorized")
    assert kept(desk) == {}


async def test_a_page_of_another_origin_cannot_trust_with_both_halves(
    desk: Served, person: httpx2.AsyncClient, clone: Path
) -> None:
    wanted = yes_to(await look(person, clone))
    for headers in ({"Origin": "http://127.0.0.1:1"}, {"Sec-Fetch-Site": "same-site"}, {"Host": "evil.example"}):
        await refused(person.post("/v1/trust", json=wanted, headers=headers), 403, "forbidden")
    assert kept(desk) == {}


async def test_looking_takes_an_admin_and_forgetting_too(desk: Served, clone: Path) -> None:
    for scope in ("ask", "answer"):
        caller = await desk.caller(f"only-{scope}", scope)
        await refused(caller.get("/v1/trust", params={"cwd": str(clone)}), 403, "forbidden")
        await refused(caller.delete("/v1/trust", params={"cwd": str(clone)}), 403, "forbidden")


async def test_a_browser_that_was_revoked_cannot_trust(desk: Served, person: httpx2.AsyncClient, clone: Path) -> None:
    wanted = yes_to(await look(person, clone))
    [browser] = [
        token["name"]
        for token in (await told(desk.http.get("/v1/tokens"), 200))["tokens"]
        if token["name"].startswith("browser-")
    ]
    assert (await desk.http.delete(f"/v1/tokens/{browser}")).status_code == 204
    await refused(person.post("/v1/trust", json=wanted), 401, "unauthorized")
    assert kept(desk) == {}


# Look, trust, forget ------------------------------------------------------------------------------------------------


async def test_a_person_sees_what_each_part_would_do_and_trusts_it_until_it_changes(
    desk: Served, person: httpx2.AsyncClient, clone: Path
) -> None:
    run = {"workflow": "nightly", "input": {}, "cwd": str(clone)}
    await refused(person.post("/v1/runs", json=run), 403, "workflow_not_trusted")
    seen = await look(person, clone)
    assert states(seen) == dict.fromkeys(("agents", "policy", "rules", "workflow nightly.py"), "new")
    shown = {part["name"]: part for part in seen["parts"]}
    assert shown["agents"]["lines"] == ["would run: ./bin/agent (as claude)"]
    assert {part["project"] for part in seen["parts"]} == {str(clone)}
    assert seen["projects"] == []

    after = await told(person.post("/v1/trust", json=yes_to(seen)), 200)
    assert set(states(after).values()) == {"trusted"}
    assert after["projects"] == [{"project": str(clone), "parts": sorted(shown)}]
    await told(person.post("/v1/runs", json=run), 201)
    assert not load({"HANDRAISE_HOME": str(desk.settings.home), "XDG_CONFIG_HOME": "/nowhere"}, cwd=clone).untrusted

    (clone / "bin" / "agent").write_text("#!/bin/sh\ncurl evil.example\n")
    again = await look(person, clone)
    assert states(again) == {name: "changed" if name == "agents" else "trusted" for name in shown}
    [agents] = [part for part in again["parts"] if part["name"] == "agents"]
    assert "  +curl evil.example" in agents["lines"]


async def test_only_the_parts_that_were_named_are_trusted(
    desk: Served, person: httpx2.AsyncClient, clone: Path
) -> None:
    await told(person.post("/v1/trust", json=yes_to(await look(person, clone), "rules")), 200)
    assert kept(desk) == {str(clone): ["rules"]}


@pytest.mark.parametrize("file", ["handraise.toml", "bin/agent", ".handraise/workflows/nightly.py"])
async def test_what_changed_between_the_look_and_the_yes_is_refused_whole(
    desk: Served, person: httpx2.AsyncClient, clone: Path, file: str
) -> None:
    wanted = yes_to(await look(person, clone))
    text = (clone / file).read_text()
    (clone / file).write_text(text.replace("make*", "*").replace("./bin/agent", "/bin/sh") + "\n# more\n")
    if file == "handraise.toml":
        assert text != (clone / file).read_text()
    await refused(person.post("/v1/trust", json=wanted), 409, "part_changed")
    assert kept(desk) == {}


async def test_a_part_that_is_not_there_or_has_another_fingerprint_is_refused(
    desk: Served, person: httpx2.AsyncClient, clone: Path
) -> None:
    good = yes_to(await look(person, clone), "rules")
    swapped = yes_to(await look(person, clone), "policy")["parts"][0]["fingerprint"]
    for name, fingerprint in (
        ("workflow gone.py", "x"),
        ("policy", good["parts"][0]["fingerprint"]),
        ("rules", swapped),
    ):
        bad = {**good, "parts": [*good["parts"], {"name": name, "fingerprint": fingerprint}]}
        await refused(person.post("/v1/trust", json=bad), 409, "part_changed")
    assert kept(desk) == {}


async def test_what_others_can_change_is_shown_with_what_helps_and_cannot_be_trusted(
    desk: Served, person: httpx2.AsyncClient, clone: Path
) -> None:
    before = yes_to(await look(person, clone))
    (clone / "bin" / "agent").chmod(0o777)
    seen = await look(person, clone)
    [agents] = [part for part in seen["parts"] if part["name"] == "agents"]
    assert "chmod o-w" in agents["problems"][0]
    assert agents["fingerprint"] is None
    await refused(person.post("/v1/trust", json=before), 422, "settings")
    assert kept(desk) == {}
    await told(person.post("/v1/trust", json=yes_to(seen)), 200)
    assert "agents" not in kept(desk)[str(clone)]


async def test_a_program_that_cannot_be_read_cannot_be_trusted(
    desk: Served, person: httpx2.AsyncClient, clone: Path
) -> None:
    """Its content could change, and nobody would notice."""
    (clone / "bin" / "agent").unlink()
    (clone / "bin" / "agent").symlink_to("/proc/self/mem")  # it says that it is ordinary, and every read of it fails
    seen = await look(person, clone)
    body = {
        "cwd": str(clone),
        "parts": [{"name": p["name"], "fingerprint": p["fingerprint"] or ""} for p in seen["parts"]],
    }
    assert (await person.post("/v1/trust", json=body)).status_code in (409, 422)
    assert kept(desk) == {}


async def test_forgetting_a_project_works_by_token_too_and_also_when_the_folder_is_gone(
    desk: Served, person: httpx2.AsyncClient, clone: Path
) -> None:
    await told(person.post("/v1/trust", json=yes_to(await look(person, clone))), 200)
    listed = await told(desk.http.get("/v1/trust"), 200)
    assert [each["project"] for each in listed["projects"]] == [str(clone)]
    clone.rename(clone.with_name("moved"))
    forgotten = await told(desk.http.delete("/v1/trust", params={"cwd": str(clone)}), 200)
    assert forgotten == {"project": str(clone), "parts": ["agents", "policy", "rules", "workflow nightly.py"]}
    assert kept(desk) == {}
    await refused(person.delete("/v1/trust", params={"cwd": str(clone)}), 404, "not_found")
    await refused(person.delete("/v1/trust", params={"cwd": "clone"}), 400, "bad_request")


@pytest.mark.parametrize("cwd", ["clone", "", "/no/such/folder", "/etc/passwd", "/\0", "/" + "x" * 5000])
async def test_a_folder_that_is_none_of_this_machine_is_refused(
    desk: Served, person: httpx2.AsyncClient, cwd: str
) -> None:
    await refused(person.get("/v1/trust", params={"cwd": cwd}), 422, "settings")
    body = {"cwd": cwd, "parts": [{"name": "rules", "fingerprint": "x"}]}
    assert (await person.post("/v1/trust", json=body)).status_code in (400, 422)


# Folders that are made to harm --------------------------------------------------------------------------------------


async def test_pipes_loops_and_devices_in_a_project_hang_nobody(
    desk: Served, person: httpx2.AsyncClient, clone: Path
) -> None:
    flows = clone / ".handraise" / "workflows"
    os.mkfifo(flows / "pipe.py")
    (flows / "loop.py").symlink_to("loop.py")
    (flows / "endless.py").symlink_to("/dev/zero")
    (flows / "folder.py").mkdir()
    (flows / os.fsdecode(b"not-utf8-\xff.py")).write_text(WORKFLOW)
    (flows / "evil\x1b[2J\u202e.py").write_text(WORKFLOW)
    async with asyncio.timeout(START):
        seen = await look(person, clone)
    assert len(seen["problems"]) == 4
    assert {"workflow nightly.py", "workflow not-utf8-\\udcff.py", "workflow evil\\x1b[2J\\u202e.py"} <= states(
        seen
    ).keys()
    await told(person.post("/v1/trust", json=yes_to(seen)), 200)

    (clone / "handraise.toml").unlink()
    os.mkfifo(clone / "handraise.toml")
    async with asyncio.timeout(START):
        assert "rules" not in states(await look(person, clone))


async def test_a_pipe_that_takes_the_place_of_settings_while_they_are_read_hangs_nobody(clone: Path) -> None:
    """Between the look whether it is a file and its opening there is time enough."""
    (clone / "handraise.toml").unlink()
    os.mkfifo(clone / "handraise.toml")
    from handraise.config.files import read_text
    from handraise.transports import files

    reading = [
        lambda: read_text(clone / "handraise.toml"),
        lambda: files.read_settings(clone / "handraise.toml"),
        lambda: files.read_ordinary(clone / "handraise.toml", most=10),
    ]
    for read in reading:
        ended: list[BaseException] = []

        def attempt(read: Any = read, ended: list[BaseException] = ended) -> None:
            try:
                read()
            except Exception as problem:
                ended.append(problem)

        thread = threading.Thread(target=attempt, daemon=True)
        thread.start()
        thread.join(START)
        assert ended and "no ordinary file" in str(ended[0])


async def test_thousands_of_files_are_not_all_read_and_that_is_said(
    desk: Served, person: httpx2.AsyncClient, clone: Path
) -> None:
    for number in range(3000):
        (clone / ".handraise" / "workflows" / f"f{number:04}.py").write_text("import f0000\n")
    async with asyncio.timeout(START):
        seen = await look(person, clone)
    assert len(seen["parts"]) < 210
    assert "too many files" in seen["problems"][0]


async def test_what_does_not_fit_on_a_page_cannot_be_trusted_there(
    desk: Served, person: httpx2.AsyncClient, clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody can hide a line behind a thousand others. A file of settings is too small for that today."""
    monkeypatch.setattr(trust_routes, "MOST_CHARACTERS", 20_000)
    rule = '[[rules]]\ntool = "shell"\nmatches = {{ command = "{}" }}\naction = "allow"\n'
    (clone / "handraise.toml").write_text("".join(rule.format(f"{n} {'x' * 900}") for n in range(60)))
    seen = await look(person, clone)
    [rules] = [part for part in seen["parts"] if part["name"] == "rules"]
    assert rules["fingerprint"] is None and rules["lines"] == [] and "terminal" in rules["problems"][0]
    assert len(json.dumps(seen)) < 1_000_000
    part = load({"HANDRAISE_HOME": str(desk.settings.home), "XDG_CONFIG_HOME": "/nowhere"}, cwd=clone).parts[-1]
    body = {"cwd": str(clone), "parts": [{"name": "rules", "fingerprint": part.fingerprint()}]}
    await refused(person.post("/v1/trust", json=body), 422, "settings")
    assert kept(desk) == {}


async def test_programs_that_are_too_large_together_are_not_read(
    desk: Served, person: httpx2.AsyncClient, clone: Path
) -> None:
    names = [f"./bin/p{number}" for number in range(8)]
    for name in names:
        (clone / name).touch()
        os.truncate(clone / name, MOST_TOGETHER // 6)
    (clone / "handraise.toml").write_text(f"[agents.claude]\ncommand = {json.dumps(names)}\n")
    [agents] = [part for part in (await look(person, clone))["parts"] if part["name"] == "agents"]
    assert "too large" in agents["problems"][0] and agents["fingerprint"] is None


async def test_texts_that_are_made_to_be_slow_to_compare_are_not_compared(
    desk: Served, person: httpx2.AsyncClient, clone: Path
) -> None:
    flow = clone / ".handraise" / "workflows" / "nightly.py"

    def lines(step: int) -> str:
        """No line is so frequent that the comparison would leave it out, and the same ones stand everywhere."""
        return "".join(f"#{number % 103}\n" for number in range(0, step * MOST_COMPARED * 12, step))

    flow.write_text(lines(7))
    await told(person.post("/v1/trust", json=yes_to(await look(person, clone))), 200)
    flow.write_text(lines(11))
    async with asyncio.timeout(START):
        assert states(await look(person, clone))["workflow nightly.py"] == "changed"


async def test_a_broken_file_of_settings_is_said(desk: Served, person: httpx2.AsyncClient, clone: Path) -> None:
    for text in ("[[[", "a = " + "[" * 100_000, "[desk]\nhost = '0.0.0.0'\n", "x" * (2 << 20), *BOMBS):
        (clone / "handraise.toml").write_text(text)
        said = await refused(person.get("/v1/trust", params={"cwd": str(clone)}), 422, "settings")
        assert "handraise.toml" in said["message"]
