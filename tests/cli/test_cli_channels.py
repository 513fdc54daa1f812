"""`handraise channels` and what `handraise doctor` says of channels, as people run them: with a real desk."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from handraise.config import ChannelTable, Settings, load
from handraise.people import Person as Somebody
from tests.cli.test_cli_sessions import Place
from tests.helpers import pager
from tests.helpers.commands import Person
from tests.helpers.pager import ANA, PAGERS, Pager
from tests.helpers.quick import quick_handraise
from tests.helpers.serving import PATIENCE, START, Served, serving, told

HOSTILE = "\x1b[31mred\u202e"
PEOPLE = {"ana": Somebody(name="ana", known_as={"pager": ANA})}


@pytest.fixture(scope="module", autouse=True)
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """`handraise` on the PATH, and the channels of the tests among those that are installed."""
    installed = tmp_path_factory.mktemp("installed")
    pager.install(installed)
    with quick_handraise() as folder, pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(installed)
        patch.setenv("PATH", str(folder), prepend=os.pathsep)
        yield


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(tmp_path)
    yield made
    await made.clear()


@asynccontextmanager
async def a_desk(place: Place, **tables: dict[str, Any]) -> AsyncIterator[Served]:
    """A desk with these channels."""
    channels = {name: ChannelTable(kind=table.pop("kind", "pager"), table=table) for name, table in tables.items()}
    async with serving(place.home, channels=channels, people=PEOPLE) as desk:
        yield desk


@pytest.fixture
async def desk(place: Place) -> AsyncIterator[Served]:
    async with a_desk(place, pager={}) as served:
        yield served


async def next_post(channel: Pager) -> Any:
    async with asyncio.timeout(PATIENCE):
        return await channel.posted.get()


# The list ---------------------------------------------------------------------------------------------------


async def test_channels_are_listed_with_what_they_can_and_what_is_wrong(place: Place) -> None:
    async with a_desk(place, pager={}, other={"colour": HOSTILE}, lost={"kind": "nowhere"}):
        shown = await place.run("channels")
        listed = [json.loads(line) for line in (await place.run("channels", "--json")).lines]
    assert shown.code == 0, shown.err
    assert shown.lines[0].split() == ["NAME", "KIND", "STATE", "CAN"]
    assert shown.lines[1].split(maxsplit=3) == [
        *("pager", "pager", "running"),
        "4 choices, own words, says how it ended, not sure who answers",
    ]
    assert shown.lines[2].split() == ["other", "pager", "broken"]
    assert "other: [channels.other] does not know 'colour'" in shown.lines
    assert any(line.startswith("lost: channels: no 'nowhere'; there are ") for line in shown.lines)
    assert [(told["name"], told["state"]) for told in listed] == [
        *(("pager", "running"), ("other", "broken"), ("lost", "broken")),
    ]
    assert listed[0]["reach"]["options"] == 4


async def test_without_channels_it_says_how_to_have_one(place: Place) -> None:
    async with a_desk(place):
        shown = await place.run("channels")
        assert shown.code == 0
        assert f"{place.env['XDG_CONFIG_HOME']}/handraise/config.toml" in shown.out and "[channels." in shown.out
        assert (await place.run("channels", "--json")).out == ""


async def test_without_a_desk_it_says_so(place: Place) -> None:
    for words in (("channels",), ("channels", "test", "pager")):
        done = await place.run(*words, "--url", "http://127.0.0.1:1")
        assert (done.code, done.out) == (5, "")
        assert done.err.startswith("handraise: no desk answers at http://127.0.0.1:1")


# The test ---------------------------------------------------------------------------------------------------


async def test_a_test_tells_how_it_went_out_and_came_back(desk: Served, place: Place) -> None:
    testing = await place.begin("handraise", "channels", "test", "pager")
    assert testing.stdout is not None
    asked = (await asyncio.wait_for(testing.stdout.readline(), PATIENCE)).decode()
    ask = await next_post(PAGERS["pager"])
    assert asked == f"asked as {ask.id}; waiting for pager to send it\n"
    sent = (await asyncio.wait_for(testing.stdout.readline(), PATIENCE)).decode()
    assert sent.startswith("sent after ") and sent.endswith(" s\n")
    await PAGERS["pager"].answer(ask, "Yes", by=ANA)
    done = await place.end(testing)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith("answered by ana in pager after ") and done.out.endswith(" s: Yes\n")


async def test_a_test_in_json_is_one_line_with_all_of_it(desk: Served, place: Place) -> None:
    testing = await place.begin("handraise", "channels", "test", "pager", "--json")
    ask = await next_post(PAGERS["pager"])
    await PAGERS["pager"].answer(ask, "No", by=ANA)
    done = await place.end(testing)
    assert (done.code, done.err) == (0, "")
    [line] = [json.loads(line) for line in done.lines]
    assert (line["channel"], line["showing"]["state"]) == ("pager", "sent")
    assert (line["ask"]["id"], line["ask"]["answer"]["by"]) == (ask.id, "ana")


async def test_what_could_not_be_sent_is_told_with_the_reason_and_withdrawn(place: Place) -> None:
    async with a_desk(place, pager={"refuses": f"HTTP 500 {HOSTILE}"}) as desk:
        done = await place.run("channels", "test", "pager")
        [ask] = (await told(desk.http.get("/v1/asks"), 200))["asks"]
    assert done.code == 1
    assert "handraise: pager could not send it: HTTP 500 " in done.err and HOSTILE not in done.err
    assert (ask["state"], ask["withdrawn_reason"]) == ("withdrawn", "the test is over")


async def test_when_nobody_answers_it_withdraws_the_question(desk: Served, place: Place) -> None:
    done = await place.run("channels", "test", "pager", "--timeout", "1")
    assert (done.code, done.err) == (3, "handraise: nobody answered within 1 s\n")
    ask = await next_post(PAGERS["pager"])
    assert (await desk.get(ask.id))["state"] == "withdrawn"


async def test_a_channel_that_says_nothing_of_it_has_failed(desk: Served, place: Place) -> None:
    PAGERS["pager"].hangs = True
    done = await place.run("channels", "test", "pager", "--timeout", "1")
    assert (done.code, done.err) == (1, "handraise: pager did not send it within 1 s\n")


async def test_ctrl_c_withdraws_the_question(desk: Served, place: Place) -> None:
    testing = await place.begin(sys.executable, "-m", "handraise", "channels", "test", "pager")
    assert testing.stdout is not None
    await asyncio.wait_for(testing.stdout.readuntil(b"sent after"), START)
    ask = await next_post(PAGERS["pager"])
    testing.send_signal(signal.SIGINT)
    assert (await place.end(testing)).code == 130
    told_of = await desk.get(ask.id)
    assert (told_of["state"], told_of["withdrawn_reason"]) == ("withdrawn", "the test was interrupted")


async def test_what_is_rejected_or_answered_elsewhere_is_told_as_that(desk: Served, place: Place) -> None:
    testing = await place.begin("handraise", "channels", "test", "pager")
    ask = await next_post(PAGERS["pager"])
    await told(desk.http.post(f"/v1/asks/{ask.id}/reject", json={"reason": "not now"}), 200)
    done = await place.end(testing)
    assert done.code == 4 and f"rejected by {desk.admin} in http after " in done.err and "not now" in done.err
    testing = await place.begin("handraise", "channels", "test", "pager")
    ask = await next_post(PAGERS["pager"])
    assert testing.stdout is not None
    async with asyncio.timeout(PATIENCE):
        while not (await testing.stdout.readline()).startswith(b"sent"):
            pass
    await desk.answer(ask.id, "Yes")
    done = await place.end(testing)
    assert done.code == 0 and f"answered by {desk.admin} in http" in done.out
    assert "not in pager" in done.err


async def test_a_channel_that_needs_a_place_is_told_where(place: Place) -> None:
    async with a_desk(place, pager={"kind": "rooms"}):
        nowhere = await place.run("channels", "test", "pager")
        assert (nowhere.code, nowhere.err) == (2, "handraise: '' is no room; say which one, as in ROOM-1\n")
        testing = await place.begin("handraise", "channels", "test", "pager", "ROOM-7")
        ask = await next_post(PAGERS["pager"])
        assert ask.origin.session == "pager:ROOM-7"
        await PAGERS["pager"].answer(ask, "Yes", by=ANA)
        assert (await place.end(testing)).code == 0


async def test_a_channel_that_is_not_there_or_broken_is_told(place: Place) -> None:
    async with a_desk(place, other={"colour": "red"}):
        nobody = await place.run("channels", "test", "nobody")
        broken = await place.run("channels", "test", "other")
    assert (nobody.code, nobody.out) == (1, "")
    assert nobody.err == "handraise: there is no channel 'nobody' here; `handraise channels` lists them\n"
    assert broken.code == 2 and "the channel other cannot be used: [channels.other] does not know" in broken.err


# doctor -----------------------------------------------------------------------------------------------------


def configure(env: dict[str, str], text: str) -> Settings:
    """Write the person's own settings; as the desk reads them."""
    file = Path(env["XDG_CONFIG_HOME"], "handraise", "config.toml")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return load(env, cwd=Path(env["HANDRAISE_HOME"]).parent)


async def doctor(place: Place | Person, *names: str) -> list[tuple[str, str, str]]:
    """What it says of these."""
    done = await place.run("doctor", "--json")
    checks = [json.loads(line) for line in done.lines]
    assert done.code == any(check["status"] == "fail" for check in checks), done.err
    assert all(check["fix"] for check in checks if check["status"] in ("warn", "fail"))
    return [(check["name"], check["status"], check["said"]) for check in checks if check["name"] in names]


OF_CHANNELS = ("channel", "people", "address")
WRONG = """
[channels.pager]
problems = ["the key ends tomorrow"]
[channels.quiet]
kind = "pager"
options = 2
[channels.secret]
kind = "pager"
key_env = "PAGER_KEY"
[channels.lost]
kind = "nowhere"
[people.ana]
pager = "+49 170 2"
slack = "U1"
[people.lin]
[people.kim]
notify = ["json://127.0.0.1:1"]
"""


async def test_doctor_lets_the_desk_look_at_its_channels(place: Place) -> None:
    settings = configure(place.env, WRONG)
    async with serving(place.home, channels=settings.channels, people=settings.people):
        found = await doctor(place, *OF_CHANNELS)
    lost = found.pop(3)
    assert lost[:2] == ("channel", "fail") and lost[2].startswith("lost: channels: no 'nowhere'; there are ")
    assert found == [
        ("channel", "fail", "pager: the key ends tomorrow"),
        ("channel", "ok", "quiet (pager) is running"),
        ("channel", "fail", "secret: PAGER_KEY is not in the environment of the desk"),
        ("people", "warn", "ana is known in slack, and there is no such channel"),
        ("people", "warn", "lin is known in no channel"),
        ("people", "warn", "kim has addresses to notify, and no channel does that"),
        ("people", "warn", "nobody may answer in quiet, since nobody is known there"),
    ]


async def test_doctor_looks_itself_where_no_desk_runs_and_makes_nothing(tmp_path: Path) -> None:
    env = {**pager.install(tmp_path / "installed"), "XDG_CONFIG_HOME": str(tmp_path / "config")}
    person = Person(tmp_path, **env)
    configure(person.env, WRONG)
    found = await doctor(person, *OF_CHANNELS)
    assert [(status, said.partition(":")[0]) for name, status, said in found if name == "channel"] == [
        *(("warn", "pager"), ("ok", "quiet (pager)"), ("warn", "secret"), ("warn", "lost")),
    ]
    assert ("people", "warn", "nobody may answer in quiet, since nobody is known there") in found
    assert not person.home.exists()


async def test_doctor_knows_when_the_desk_must_be_started_again(place: Place) -> None:
    async with a_desk(place):
        configure(place.env, "[channels.pager]\n")
        assert await doctor(place, "channel") == [
            ("channel", "warn", "pager: the desk that runs does not know it yet"),
        ]


async def test_doctor_looks_at_the_address(place: Place) -> None:
    table = '[channels.pager]\nneeds_address = true\n[people.ana]\npager = "1"\n'
    settings = configure(place.env, table)
    async with serving(place.home, channels=settings.channels, people=settings.people) as desk:
        port = desk.url.rpartition(":")[2]
        assert await doctor(place, "address") == [
            ("address", "fail", "pager has to call the desk, and nothing says where that is"),
        ]
        other = f"http://127.1:{port}"  # the same machine, under a name that the desk was not told
        configure(place.env, f'{table}[desk]\naddress = "{other}"\n')
        assert await doctor(place, "address") == [
            ("address", "warn", f"{other} is not https, so what is sent there can be read on the way"),
            ("address", "fail", f"the desk refuses the host name of {other}"),
        ]
        ours = f"http://localhost:{port}"
        configure(place.env, f'{table}[desk]\naddress = "{ours}"\n')
        assert await doctor(place, "address") == [
            ("address", "warn", f"pager has to call the desk, and {ours} is this machine alone"),
            ("address", "ok", f"the desk answers at {ours}"),
        ]
        configure(place.env, f'{table}[desk]\naddress = "https://127.0.0.1:1"\n')
        (_, away) = await doctor(place, "address")
        assert away[1] == "warn" and away[2].startswith("nothing answers at https://127.0.0.1:1 from here (")
