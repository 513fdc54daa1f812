"""`handraise chat` as people and scripts run it: real processes, real terminals, and a scripted model on both APIs."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from handraise.asks import Answer
from handraise.chat import ChatSettings
from handraise.cli.chat_following import Conversation, Teller, text_of
from handraise.cli.commands.chat import _with_empty_id
from handraise.client import Client
from handraise.errors import ChatNotFound
from handraise.testing.model import ScriptedModel, call
from handraise.text.words import speak
from tests.cli.test_cli_sessions import Place, Screen, a_screen
from tests.helpers.commands import Done
from tests.helpers.quick import quick_handraise
from tests.helpers.serving import PATIENCE, START, Served, serving, told
from tests.helpers.talking import ASK, STORAGE, Talk, model_settings, texts

HELLO = "SCENARIO:hello"
HOSTILE = "\x1b[31mred\u202e"
BEGUN = "One \U0001f600 "
SELECT = "Select [1-2, or type custom]:"


def weather(city: str) -> str:
    """A tool besides the question."""
    return f"it rains in {city}"


SCENARIOS: dict[str, Any] = {
    "hello": ["Hello! ", "And again.", "Once more."],
    "slow": [[BEGUN, "two"], "Three.", "Four."],
    "ask": [["Let me ask. ", ASK], "Fine.", "Later."],
    "asks": [ASK, call("question", **{**STORAGE, "header": "Backup"}), "All is settled.", "Never mind."],
    "tool": [call("weather", city="Ulm"), "Take an umbrella."],
    "hostile": [HOSTILE],
}


@pytest.fixture(scope="module", autouse=True)
def program() -> Iterator[None]:
    """`handraise` on the PATH. Each call is a process of its own, only quicker to start."""
    with quick_handraise() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(folder), prepend=os.pathsep)
        yield


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    made = Place(tmp_path)
    yield made
    await made.clear()


@pytest.fixture
async def model() -> AsyncIterator[ScriptedModel]:
    async with ScriptedModel(SCENARIOS) as scripted:
        yield scripted


@pytest.fixture
def settings(request: pytest.FixtureRequest, model: ScriptedModel) -> ChatSettings:
    return model_settings(model, api=getattr(request, "param", "openai"), tools=("tests.cli.test_cli_chat:weather",))


@pytest.fixture
async def desk(place: Place, settings: ChatSettings) -> AsyncIterator[Served]:
    async with serving(place.home, chat=settings) as served:
        yield served


def configure(place: Place, text: str) -> Path:
    """Write the person's own settings; where they are."""
    file = Path(place.env["XDG_CONFIG_HOME"], "handraise", "config.toml")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


async def the_chat(desk: Served) -> dict[str, Any]:
    """The one chat there is, with its messages."""
    [chat] = (await told(desk.http.get("/v1/chats"), 200))["chats"]
    return await told(desk.http.get(f"/v1/chats/{chat['id']}"), 200)


# Without a terminal -----------------------------------------------------------------------------------------


async def test_one_message_prints_the_reply_and_leaves(desk: Served, place: Place) -> None:
    assert await place.run("chat", HELLO) == Done(0, "Hello! \n", "")
    assert texts(await the_chat(desk)) == [("user", HELLO), ("assistant", "Hello! ")]


async def test_a_minus_reads_the_message_from_the_input(desk: Served, place: Place) -> None:
    process = await asyncio.create_subprocess_exec(
        *("handraise", "chat", "-"),
        cwd=place.folder,
        env=place.env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(f"two\nlines {HELLO}\n".encode()), START)
    assert (process.returncode, out, err) == (0, b"Hello! \n", b"")
    assert texts(await the_chat(desk))[0] == ("user", f"two\nlines {HELLO}")


async def test_json_is_a_whole_message_a_line_and_no_drafts(desk: Served, place: Place) -> None:
    done = await place.run("chat", "--json", HELLO)
    lines = [json.loads(line) for line in done.lines]
    chat = await the_chat(desk)
    assert (done.code, done.err) == (0, "")
    assert lines == [{"chat": chat["id"], **said} for said in chat["messages"]]
    assert [(line["role"], line["state"]) for line in lines] == [("user", "done"), ("assistant", "done")]
    more = await place.run("chat", "and then?", "--json", "--continue")
    assert [text_of(json.loads(line)) for line in more.lines] == ["and then?", "And again."], "only what is new"
    whole = await place.run("chat", "--json", "--continue", chat["id"])
    assert len(whole.lines) == 4, "without a text, all that was said"


async def test_a_chat_goes_on_by_its_id_by_a_part_of_it_or_as_the_newest(desk: Served, place: Place) -> None:
    await place.run("chat", "SCENARIO:slow")
    older = await the_chat(desk)
    await place.run("chat", "--new", "--model", "scripted", HELLO)
    assert (await place.run("chat", "--continue", older["id"][:12], "on")).out == "Three.\n"
    assert (await place.run("chat", "--continue", older["id"][-8:], "on")).out == "Four.\n"
    await Talk(desk.http, older["id"]).until()
    newest = (await told(desk.http.get("/v1/chats"), 200))["chats"][0]
    assert newest["id"] == older["id"], "the one that changed last"
    assert (await place.run("chat", "on", "--continue")).out == "ok\n"
    unknown = await place.run("chat", "--continue", "nobody", "on")
    assert (unknown.code, unknown.out) == (1, "")
    assert unknown.err == "handraise: there is no chat 'nobody'; `handraise chat --list` lists them\n"
    several = await place.run("chat", "--continue", "chat_", "on")
    assert several.code == 2 and "type more of the id" in several.err


async def test_chats_are_listed_with_their_state_and_title(desk: Served, place: Place) -> None:
    assert (await place.run("chat", "--list")).out == "There are no chats.\n"
    await place.run("chat", f"SCENARIO:ask {HOSTILE}")
    done = await place.run("chat", "--list")
    chat = await the_chat(desk)
    assert done.lines[0].split() == ["ID", "STATE", "MODEL", "AGE", "TITLE"]
    assert done.lines[1].split()[:3] == [chat["id"], "asking", "scripted"]
    assert done.lines[1].endswith("SCENARIO:ask \\x1b[31mred\\u202e")
    [line] = (await place.run("chat", "--list", "--json")).lines
    assert json.loads(line) == {name: value for name, value in chat.items() if name != "messages"}


async def test_a_question_is_printed_with_where_it_waits_and_exit_code_3(desk: Served, place: Place) -> None:
    done = await place.run("chat", "SCENARIO:ask")
    chat = await the_chat(desk)
    assert done.code == 3
    assert done.lines[0] == "Let me ask. "
    assert "  1. SQLite — one file" in done.lines and "Storage" in done.lines
    assert done.lines[-1] == f"waiting: {chat['ask']} · {desk.url}/#/chats/{chat['id']}"
    assert done.err == f"answer it: handraise chat --continue {chat['id']} SQLite\n"
    waiting = await place.run("chat", "--continue", chat["id"], "--json")
    assert waiting.code == 3 and '"pending"' in waiting.out
    assert await place.run("chat", "--continue", chat["id"], "SQLite") == Done(0, "Fine.\n", "")
    [ask] = [ask async for ask in desk.broker.asks()]
    assert ask.answer is not None and ask.answer.values == ("SQLite",) and ask.answer.via == "cli"


async def test_a_reply_goes_on_where_a_question_was_answered_meanwhile(desk: Served, place: Place) -> None:
    talk = await Talk.begin(desk.http, "SCENARIO:ask")
    ask = (await talk.question())["extra"]["askId"]
    assert (await place.run("answer", ask, "2")).code == 0
    assert texts(await talk.until())[-2:] == [("user", "PostgreSQL"), ("assistant", "Fine.")]
    assert (await place.run("chat", "--continue", talk.id, "so?")).out == "Later.\n"


async def test_tools_and_errors_are_told_beside_the_reply(desk: Served, place: Place, model: ScriptedModel) -> None:
    done = await place.run("chat", "SCENARIO:tool")
    assert (done.code, done.out) == (0, "Take an umbrella.\n")
    assert done.err.startswith("· weather {") and "Ulm" in done.err
    model.failing("hello", step=0, status=400, times=9)
    failed = await place.run("chat", HELLO)
    assert (failed.code, failed.out) == (1, "")
    assert failed.err.startswith("! http://127.0.0.1") and "answered with an error (400)" in failed.err


async def test_a_chat_in_which_a_reply_is_written_takes_nothing(
    desk: Served, place: Place, model: ScriptedModel
) -> None:
    held = model.hold("hello", step=0)
    talk = await Talk.begin(desk.http, HELLO)
    await held.reached()
    done = await place.run("chat", "--continue", talk.id, "and?")
    held.release()
    assert (done.code, done.out) == (1, "")
    assert done.err == (
        f"handraise: chat '{talk.id}' takes nothing now: a reply is being written; wait for it, or stop it\n"
    )


async def test_ctrl_c_stops_the_reply_and_keeps_what_was_written(
    desk: Served, place: Place, model: ScriptedModel
) -> None:
    paused = model.pause("slow", step=0, after=1)
    process = await place.begin(sys.executable, "-m", "handraise", "chat", "SCENARIO:slow")
    assert process.stdout is not None
    begun = await asyncio.wait_for(process.stdout.readexactly(len(BEGUN.encode())), START)
    assert begun.decode() == BEGUN, "it is printed as it is written"
    process.send_signal(signal.SIGINT)
    async with asyncio.timeout(PATIENCE):
        await paused.abandoned()
    assert (await place.end(process)).code == 130
    chat = await Talk(desk.http, (await the_chat(desk))["id"]).until()
    assert (chat["messages"][-1]["state"], texts(chat)[-1]) == ("stopped", ("assistant", BEGUN))


async def test_what_is_wrong_is_said_in_a_sentence(desk: Served, place: Place) -> None:
    for words, sentence in (
        (["chat"], "nobody is here to type; give the text, or - to read it from the input"),
        (["chat", " "], "there is nothing in the message; say something"),
        (["chat", "hi", "--continue"], "there is no chat to go on with; leave --continue out"),
        (["chat", "hi", "--model", "gpt"], "there is no model 'gpt'; there are: scripted"),
        (["chat", "hi", "--continue", "--model", "m"], "a chat that goes on keeps what it has; leave --model out"),
        (["chat", "hi", "--continue", "--new"], "a chat that goes on keeps what it has; leave --new out"),
    ):
        assert await place.run(*words) == Done(2, "", f"handraise: {sentence}\n")
    nowhere = await place.run("chat", "hi", "--url", "http://127.0.0.1:1")
    assert nowhere.code == 5 and "no desk answers at" in nowhere.err


async def test_without_a_desk_the_command_is_one_and_says_what_to_configure(place: Place, model: ScriptedModel) -> None:
    file = configure(place, "")
    none = await place.run("chat", HELLO)
    assert (none.code, none.out) == (2, "")
    assert none.err == (
        'handraise: no model is configured; write [models.local] with api = "openai", model = "NAME" and '
        f'url = "http://127.0.0.1:11434/v1" into {file}\n'
    )
    configure(place, f'[models.local]\napi = "anthropic"\nmodel = "scripted"\nurl = "{model.url}"\n')
    asked = await place.run("chat", "SCENARIO:ask")
    assert asked.code == 3
    assert asked.lines[-1].startswith("waiting: chat_") and "http" not in asked.lines[-1], "the desk is gone by then"
    assert await place.run("chat", "SQLite", "--continue") == Done(0, "Fine.\n", "")


async def test_an_extra_that_is_missing_is_named(place: Place, model: ScriptedModel) -> None:
    configure(place, f'[models.local]\napi = "openai"\nmodel = "scripted"\nurl = "{model.url}/v1"\n')
    without = place.folder / "without" / "pydantic_ai.py"
    without.parent.mkdir()
    without.write_text("raise ImportError('as if it were not installed')\n")
    place.env["PYTHONPATH"] = str(without.parent)
    process = await place.begin(sys.executable, "-m", "handraise", "chat", HELLO)
    done = await place.end(process)
    assert done == Done(1, "", "! chats need an extra; install handraise[chat] where the desk runs\n")


@pytest.mark.parametrize(
    ("typed", "parsed"),
    [
        (["--continue"], ["--continue="]),
        (["--continue", "chat_1"], ["--continue", "chat_1"]),
        (["--continue", "--json"], ["--continue=", "--json"]),
        (["--continue", "-"], ["--continue=", "-"]),
        (["--continue", "--", "hi"], ["--continue=", "--", "hi"]),
        (["hi", "--continue"], ["hi", "--continue="]),
        (["--", "--continue"], ["--", "--continue"]),
    ],
)
def test_an_id_may_follow_continue_or_not(typed: list[str], parsed: list[str]) -> None:
    assert _with_empty_id(typed) == parsed


async def test_the_shell_completes_the_ids_of_chats(desk: Served, place: Place) -> None:
    talk = await Talk.begin(desk.http)
    place.env |= {"_HANDRAISE_COMPLETE": "complete_bash", "COMP_CWORD": "3"}
    place.env["COMP_WORDS"] = "handraise chat --continue chat"
    assert (await place.run()).out.split() == [talk.id]


async def test_doctor_looks_at_the_models(place: Place, model: ScriptedModel) -> None:
    configure(
        place,
        f'[models.local]\napi = "openai"\nmodel = "scripted"\nurl = "{model.url}/v1"\n'
        '[models.away]\napi = "openai"\nmodel = "scripted"\nurl = "http://127.0.0.1:1/v1"\n'
        '[models.house]\napi = "anthropic"\nmodel = "big"\n'
        '[models.own]\napi = "anthropic"\nmodel = "big"\nkey_env = "MY_KEY"\n',
    )
    place.env.pop("ANTHROPIC_API_KEY", None)
    place.env["MY_KEY"] = "secret"
    done = await place.run("doctor", "--json")
    checks = [check for line in done.lines if (check := json.loads(line))["name"] == "model"]
    assert [(check["status"], check["said"]) for check in checks] == [
        ("ok", f"local: scripted by the openai API, at {model.url}/v1"),
        ("warn", "away: nothing answers at http://127.0.0.1:1/v1"),
        ("warn", "house: ANTHROPIC_API_KEY is not set here"),
        ("ok", "own: big by the anthropic API, with MY_KEY"),
    ]
    assert all(check["fix"] for check in checks if check["status"] == "warn") and "secret" not in done.out


# What is told, and when -------------------------------------------------------------------------------------


def a_message(*blocks: dict[str, Any], id: str = "1", role: str = "assistant", state: str = "done") -> dict[str, Any]:
    return {"id": id, "role": role, "state": state, "blocks": list(blocks), "version": 1}


def content(text: str) -> dict[str, Any]:
    return {"type": "content", "content": text, "status": "success"}


def told_of(*tellings: list[dict[str, Any]]) -> str:
    """What stands on a screen after all of these were told, one after the other."""
    written: list[str] = []
    teller = Teller(t=speak("en"), write=written.append, beside=None, on_screen=True)
    for messages in tellings:
        teller.tell(messages)
    return "".join(written)


def test_a_text_that_grows_is_told_once_and_inert() -> None:
    whole = "Hé \U0001f600\ufe0f \x1b[2J\u202e\n\tend"
    pieces = [[a_message(content(whole[:length]), state="writing")] for length in range(len(whole) + 1)]
    assert told_of(*pieces, [a_message(content(whole))]) == "Hé \U0001f600\ufe0f \\x1b[2J\\u202e\n\tend\n"


def test_every_kind_of_block_is_told_also_those_that_nobody_knows() -> None:
    tool = {"id": "c1", "name": "weather", "params": '{"city": "Ulm"}'}
    failed = {"type": "tool_call", "tool_call": {**tool, "response": "no network"}, "status": "error"}
    question = {"type": "action", "action_type": "question_request", "content": "Which?", "status": "denied"}
    reply = a_message(
        {"type": "reasoning_content", "content": "hm", "status": "success"},
        content("First."),
        {"type": "tool_call", "tool_call": tool, "status": "success"},
        failed,
        content("Then."),
        {"type": "error", "content": "it broke\x1b", "status": "error"},
        {"type": "action", "action_type": "deploy", "content": "Ship it", "status": "pending"},
        {"type": "hologram"},
        question,
        state="stopped",
    )
    assert told_of([reply], [reply]).splitlines() == [
        *("· thinking…", "First.", '· weather {"city": "Ulm"}', '· weather {"city": "Ulm"}', "! weather: no network"),
        *("", "Then.", "! it broke\\x1b", "· deploy: Ship it", "· hologram: ", "? Which? · declined", "Stopped."),
    ]


def test_what_others_say_is_told_but_an_answer_only_with_its_card() -> None:
    def question(status: str) -> dict[str, Any]:
        return a_message({"type": "action", "action_type": "question_request", "content": "?", "status": status})

    answer = a_message(content("SQLite"), id="2", role="user")
    assert told_of([question("pending")], [question("success"), answer]) == ""
    assert told_of([question("success"), answer]) == "? ?\n\nsomebody › SQLite\n"
    later = a_message(content("two\nlines"), id="2", role="user")
    assert told_of([question("pending")], [question("denied"), later]) == "\nsomebody › two\n  lines\n"


async def test_a_conversation_misses_no_piece_and_has_none_twice(desk: Served, model: ScriptedModel) -> None:
    paused = model.pause("slow", step=0, after=1)
    async with Client(desk.url, token=desk.token) as client:
        begun = await told(desk.http.post("/v1/chats", json={"text": "SCENARIO:slow"}), 201)
        async with Conversation(client, begun) as chat, asyncio.timeout(2 * PATIENCE):
            while not chat.messages[1:] or text_of(chat.messages[1]) != BEGUN:
                await chat.news()
            assert chat.state == "writing"
            said = chat.messages[1]
            piece = {"chat": chat.id, "message": said["id"], "block": 0, "offset": 4, "text": "\U0001f600 t"}
            chat._grow(piece)  # two of its characters are known; the first is two units of UTF-16
            assert text_of(chat.messages[1]) == f"{BEGUN}t"
            chat._grow({**piece, "offset": 4, "text": "\U0001f600"})
            assert text_of(chat.messages[1]) == f"{BEGUN}t"
            chat._miss(said["version"] - 1)
            await chat.look()
            assert text_of(chat.messages[1]) == f"{BEGUN}t", "what was read is older than what was heard"
            chat._grow({**piece, "offset": 400})  # something is missing: what the desk has counts
            chat._grow({**piece, "block": 7})
            chat._grow({**piece, "message": "nobody"})
            chat._grow({**piece, "chat": "another"})
            paused.release()
            while chat.state != "idle":
                await chat.news()
            assert [text_of(each) for each in chat.messages] == ["SCENARIO:slow", f"{BEGUN}two"]
        await told(desk.http.get(f"/v1/chats/{chat.id}"), 200)


async def _for_ever(wait: Callable[[], Awaitable[None]]) -> None:
    while True:
        await wait()


async def test_whoever_follows_a_chat_hears_that_it_was_deleted(desk: Served) -> None:
    async with Client(desk.url, token=desk.token) as client:
        begun = await told(desk.http.post("/v1/chats", json={}), 201)
        async with Conversation(client, begun) as chat, asyncio.timeout(2 * PATIENCE):
            assert (await desk.http.delete(f"/v1/chats/{chat.id}")).status_code == 204
            with pytest.raises(ChatNotFound):
                await _for_ever(chat.news)


# On a terminal ----------------------------------------------------------------------------------------------


@asynccontextmanager
async def chatting(place: Place, *words: str) -> AsyncIterator[Screen]:
    async with a_screen() as screen:
        await screen.start(place, "chat", *words)
        yield screen


async def type_in(screen: Screen, text: str) -> None:
    await screen.press("-l", text)
    await screen.press("Enter")


@pytest.mark.parametrize("settings", ["openai", "anthropic"], indirect=True)
async def test_on_a_terminal_a_reply_grows_and_its_questions_are_answered_there(
    desk: Served, place: Place, model: ScriptedModel
) -> None:
    paused = model.pause("slow", step=0, after=1)
    async with chatting(place) as screen:
        await screen.shows("scripted: Enter sends")
        await type_in(screen, "SCENARIO:slow")
        await screen.shows("One")
        await screen.press("-l", "ahead")  # before there is a prompt
        paused.release()
        await screen.shows("two\n\n› ahead")
        await screen.press("C-u")
        await type_in(screen, "SCENARIO:asks")
        await screen.shows(SELECT)
        await type_in(screen, "1")
        await screen.shows("answered: SQLite")
        shown = await screen.shows("Backup")
        assert "Agent Question" in shown
        await screen.shows(SELECT)
        await type_in(screen, ":d not now")
        await screen.shows("declined by")
        await screen.shows("not now\n\n›")
        await type_in(screen, "go on")
        await screen.shows("All is settled.\n\n›")
        await screen.press("C-d")
        shown = await screen.shows("left with 0")
    chat = await the_chat(desk)
    assert f"handraise chat --continue {chat['id']}" in " ".join(shown.split())
    assert [state for state in [ask.state async for ask in desk.broker.asks()]] == ["answered", "rejected"]
    assert texts(chat)[-1] == ("assistant", "All is settled.")
    assert shown.count("› go on") == 1 and "somebody" not in shown, "nothing is told twice"


async def test_on_a_terminal_ctrl_c_stops_a_reply_and_twice_at_the_prompt_leaves(
    desk: Served, place: Place, model: ScriptedModel
) -> None:
    paused = model.pause("slow", step=0, after=1)
    async with chatting(place) as screen:
        await screen.shows("›")
        await screen.press("-l", "SCENARIO:slow")
        await screen.press("M-Enter")
        await screen.press("-l", "second line")
        await screen.press("C-j")
        await type_in(screen, "third line")
        await screen.shows("One")
        await screen.press("C-c")
        await screen.shows("Stopped.\n\n›")
        async with asyncio.timeout(PATIENCE):
            await paused.abandoned()
        await screen.press("-l", "never sent")
        await screen.press("C-c")
        await screen.shows("Ctrl+C again leaves.\n\n›")
        await screen.press("C-c")
        await screen.shows("left with 0")
    chat = await the_chat(desk)
    assert texts(chat) == [("user", "SCENARIO:slow\nsecond line\nthird line"), ("assistant", BEGUN)]
    assert chat["messages"][-1]["state"] == "stopped"


async def test_on_a_terminal_what_was_answered_elsewhere_closes_the_prompt_and_the_reply_goes_on(
    desk: Served, place: Place
) -> None:
    place.env["LC_ALL"] = "de_DE.UTF-8"
    talk = await Talk.begin(desk.http, "SCENARIO:ask")
    ask = (await talk.question())["extra"]["askId"]
    async with chatting(place, "--continue") as screen:
        await screen.shows("Let me ask.")
        await screen.shows("Auswahl [1-2")
        await screen.press("-l", "my dra")
        await desk.broker.answer(ask, Answer(answers=(("PostgreSQL",),), by="ana", via="web"))
        shown = await screen.shows("Fine.\n\n›")
        assert "Schon beantwortet von ana" in shown and "PostgreSQL" in shown
        assert "my dra" in shown.partition("Schon")[2], "what was typed is not lost"
        await talk.say("from the web")  # another surface talks in the same chat
        shown = await screen.shows("Later.\n\n›")
        assert "jemand › from the web" in shown
        await screen.press("C-d")
        await screen.shows("Weiter geht es mit:")


async def test_on_a_terminal_a_question_that_is_left_is_answered_by_a_message(desk: Served, place: Place) -> None:
    async with chatting(place, "--full") as screen:
        await screen.shows("›")
        await type_in(screen, "SCENARIO:ask")
        await screen.shows("pick")
        await screen.press("Escape")
        prompt = "Your message will answer “Storage”. Enter alone shows the question again.\n›"
        await screen.shows(prompt)
        await screen.press("Enter")
        await screen.shows("pick")
        await screen.press("C-c")
        # What is typed before there is a prompt stands at it and is not sent.
        await screen.shows(f"Left unanswered; it stays open on the desk. Ctrl+C again quits.\n\n{prompt}")
        await type_in(screen, "a folder of text files")
        await screen.shows("Fine.\n\n›")
        await screen.press("C-c", "C-c")
        await screen.shows("left with 0")
    chat = await the_chat(desk)
    assert texts(chat)[2] == ("user", "a folder of text files")
    [ask] = [ask async for ask in desk.broker.asks()]
    assert ask.answer is not None and ask.answer.via == "terminal"


async def test_on_a_terminal_one_message_leaves_after_the_reply_and_nothing_hidden_gets_through(
    desk: Served, place: Place, model: ScriptedModel
) -> None:
    async with chatting(place, "SCENARIO:hostile") as screen:
        shown = await screen.shows("left with 0")
    assert "\\x1b[31mred\\u202e" in shown
    assert "handraise chat --continue chat_" in " ".join(shown.split())
    held = model.hold("hello", step=0)
    talk = await Talk.begin(desk.http, HELLO)
    await held.reached()
    async with chatting(place, "--continue", talk.id, "and?") as screen:
        shown = await screen.shows("left with 1")
    held.release()
    assert "takes nothing now" in shown


async def test_on_a_terminal_without_a_desk_ctrl_c_stops_the_reply_and_the_chat_goes_on(
    place: Place, model: ScriptedModel
) -> None:
    configure(place, f'[models.local]\napi = "openai"\nmodel = "scripted"\nurl = "{model.url}/v1"\n')
    model.pause("slow", step=0, after=1)
    async with chatting(place) as screen:
        await screen.shows("local: Enter sends")
        await type_in(screen, "SCENARIO:slow")
        await screen.shows("One")
        await screen.press("C-c")
        await screen.shows("Stopped.\n\n›")
        await type_in(screen, "go on")
        await screen.shows("Three.\n\n›")
        await screen.press("C-d")
        await screen.shows("left with 0")
    assert (await place.run("chat", "--continue", "--", "and?")).out == "Four.\n"
