"""A chat with a model that has the `question` tool: on both model APIs, over HTTP, on a real desk."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pydantic_ai
import pytest

from handraise.broker import Broker
from handraise.chat import ChatSettings, ModelTable
from handraise.chat.contract import (
    LONGEST_DESCRIPTION,
    LONGEST_HEADER,
    LONGEST_LABEL,
    LONGEST_QUESTION,
    MOST_OPTIONS,
    QuestionCall,
    question_block,
    violation,
    violation_in,
)
from handraise.chat.runtime import Chats
from handraise.chat.transcript import Said, Transcript
from handraise.stores import Store
from handraise.testing.model import ScriptedModel, call, raw_call
from handraise.text.words import speak
from tests.helpers.serving import PATIENCE, DeskProcess, Served, eventually, listening, path_of, refused, serving, told
from tests.helpers.talking import ASK, STORAGE, Talk, kinds, model_settings, texts

APIS = ("openai", "anthropic")
HELLO = "SCENARIO:hello"


def weather() -> str:
    """A tool besides the question."""
    return "it rains"


slow_calls: list[None] = []


async def slowly() -> str:
    """A tool that does not end by itself."""
    slow_calls.append(None)
    await asyncio.Event().wait()
    return "never"


TOOLS = ("tests.chat.test_chat:weather", "tests.chat.test_chat:slowly")
SCENARIOS: dict[str, Any] = {
    "hello": ["Hello! ", "And again."],
    "ask": [["Let me ask. ", ASK], lambda request: f"You said {_last_said(request.body)!r}.", "ok"],
    "many": [call("question", **STORAGE, multiple=True), lambda request: f"You said {_last_said(request.body)!r}."],
    "fixed": [call("question", **STORAGE, custom=False), "Fine."],
    "two": [[ASK, ASK], "Sorry."],
    "beside": [[call("weather"), ASK], "Sorry."],
    "after": [[ASK, call("weather")], "Sorry."],
    "stubborn": [[ASK, ASK], [ASK, ASK], [ASK, ASK], "never said"],
    "malformed": [call("question", question="?", options=[{"label": "x" * 31}]), ASK, "Fine."],
    "broken": [raw_call("question", '{"question": "Wh'), ASK, "Fine."],
    "hopeless": [call("question", options=1), call("question", options=2), "never said"],
    "tool": [call("weather"), lambda request: f"It says: {request.tool_results[-1]}"],
    "tool-first": [call("weather"), ASK, "Fine."],
}


def _last_said(body: dict[str, Any]) -> str:
    """The person's last message as the model got it."""
    content = [each for each in body["messages"] if each["role"] == "user"][-1]["content"]
    if isinstance(content, str):
        return content
    return [part["text"] for part in content if part["type"] == "text"][-1]  # type: ignore[no-any-return]


@pytest.fixture
async def model() -> AsyncIterator[ScriptedModel]:
    async with ScriptedModel(SCENARIOS) as scripted:
        yield scripted


@pytest.fixture(params=APIS)
def settings(request: pytest.FixtureRequest, model: ScriptedModel) -> ChatSettings:
    return model_settings(model, api=request.param, tools=TOOLS)


@pytest.fixture
async def desk(tmp_path: Path, settings: ChatSettings) -> AsyncIterator[Served]:
    async with serving(tmp_path, chat=settings) as served:
        yield served


async def test_a_model_replies_and_remembers_what_was_said(desk: Served, model: ScriptedModel) -> None:
    talk = await Talk.begin(desk.http, HELLO)
    chat = await talk.until()
    assert texts(chat) == [("user", HELLO), ("assistant", "Hello! ")]
    assert chat["title"] == HELLO
    await talk.say("once more")
    assert texts(await talk.until())[2:] == [("user", "once more"), ("assistant", "And again.")]
    said = json.dumps(model.requests[-1].body["messages"])
    assert said.index(HELLO) < said.index("Hello! ") < said.index("once more")
    assert [each["id"] for each in (await told(desk.http.get("/v1/chats"), 200))["chats"]] == [talk.id]


async def test_the_model_library_draws_nothing_on_the_terminal(desk: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pydantic_ai, "BANNER_ENABLED", True)
    await (await Talk.begin(desk.http, HELLO)).until()
    assert not pydantic_ai.BANNER_ENABLED


async def test_a_question_pauses_the_chat_with_a_block_and_an_ask(desk: Served, model: ScriptedModel) -> None:
    talk = await Talk.begin(desk.http, "SCENARIO:ask")
    block = await talk.question()
    chat = await talk.read()
    assert kinds(chat["messages"][-1]) == ["content", "action"]
    ask = chat["ask"]
    assert block == {
        "type": "action",
        "action_type": "question_request",
        "content": STORAGE["question"],
        "status": "pending",
        "extra": {
            "needsUserAction": True,
            "questionHeader": "Storage",
            "questionText": STORAGE["question"],
            "questionOptions": STORAGE["options"],
            "questionMultiple": False,
            "questionCustom": True,
            "questionResolution": "asked",
            "askId": ask,
            "toolCallId": block["extra"]["toolCallId"],
        },
    }
    asked = await desk.get(ask)
    assert (asked["state"], asked["origin"]["agent"], asked["origin"]["session"]) == ("asked", "chat", talk.id)
    assert asked["deadline"] is None
    assert len(model.requests) == 1


@pytest.mark.parametrize(
    ("scenario", "given", "inserted"),
    [
        ("ask", ["SQLite"], "SQLite"),
        ("ask", ["something else"], "something else"),
        ("many", ["SQLite", "PostgreSQL"], "SQLite\nPostgreSQL"),
        ("many", ["SQLite", "and a cache"], "SQLite\nand a cache"),
    ],
)
async def test_an_answer_from_anywhere_becomes_the_next_message(
    desk: Served, scenario: str, given: list[str], inserted: str
) -> None:
    talk = await Talk.begin(desk.http, f"SCENARIO:{scenario}")
    block = await talk.question()
    await desk.answer(block["extra"]["askId"], *given)
    chat = await talk.until()
    asked, answer, reply = chat["messages"][1:]
    resolved = asked["blocks"][-1]
    assert resolved["status"] == "success"
    assert resolved["extra"]["needsUserAction"] is False
    assert resolved["extra"]["questionResolution"] == "replied"
    assert resolved["extra"]["answerText"] == inserted
    assert "answerMessageId" not in resolved["extra"]
    assert texts({"messages": [answer, reply]}) == [("user", inserted), ("assistant", f"You said {inserted!r}.")]


async def test_a_note_to_a_choice_is_the_last_line_of_the_message(desk: Served) -> None:
    talk = await Talk.begin(desk.http, "SCENARIO:ask")
    ask = (await talk.question())["extra"]["askId"]
    noted = {"answers": [["SQLite"]], "notes": ["but small"]}
    await told(desk.http.post(path_of(ask, "answer"), json=noted), 200)
    assert texts(await talk.until())[2:] == [
        ("user", "SQLite\nbut small"),
        ("assistant", "You said 'SQLite\\nbut small'."),
    ]


def test_the_page_about_the_tool_shows_what_it_takes_and_what_is_stored() -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "question-tool.md").read_text()
    page = page.partition("\n## In a chat\n")[2]
    arguments, block = (json.loads(each) for each in re.findall(r"```json\n(.*?)```", page, re.DOTALL))
    taken = QuestionCall.model_validate(arguments)
    assert arguments.keys() == QuestionCall.model_fields.keys()
    assert question_block(taken, ask="chat_1:2", tool_call="call_3") == block
    limits = (LONGEST_QUESTION, LONGEST_HEADER, LONGEST_LABEL, LONGEST_DESCRIPTION, MOST_OPTIONS)
    assert [limit for limit in limits if f" {limit:,}" not in page] == []


@pytest.mark.parametrize("scenario", ["ask", "fixed"])
async def test_every_message_by_hand_answers_without_an_extra_one(desk: Served, scenario: str) -> None:
    talk = await Talk.begin(desk.http, f"SCENARIO:{scenario}")
    block = await talk.question()
    said = await talk.say("neither,\nthink again")
    chat = await talk.until()
    assert [role for role, _ in texts(chat)] == ["user", "assistant", "user", "assistant"]
    extra = chat["messages"][1]["blocks"][-1]["extra"]
    assert (extra["questionResolution"], extra["answerText"]) == ("replied", "neither,\nthink again")
    assert extra["answerMessageId"] == said["id"] == chat["messages"][2]["id"]
    ask = await desk.get(block["extra"]["askId"])
    assert (ask["state"], ask["answer"]["answers"]) == ("answered", [["neither,\nthink again"]])


async def test_a_rejection_inserts_nothing_and_waits_for_the_person(desk: Served, model: ScriptedModel) -> None:
    talk = await Talk.begin(desk.http, "SCENARIO:ask")
    block = await talk.question()
    await told(desk.http.post(path_of(block["extra"]["askId"], "reject"), json={}), 200)
    chat = await talk.until()
    resolved = chat["messages"][-1]["blocks"][-1]
    assert (resolved["status"], resolved["extra"]["questionResolution"]) == ("denied", "rejected")
    assert "answerText" not in resolved["extra"]
    assert len(chat["messages"]) == 2 and len(model.requests) == 1
    await talk.say("Just go on.")
    assert texts(await talk.until())[-1] == ("assistant", "You said 'Just go on.'.")
    assert "declined" in json.dumps(model.requests[-1].body["messages"])


@pytest.mark.parametrize(
    ("scenario", "reason"),
    [("two", "One question at a time"), ("beside", "must stand alone"), ("after", "must be the last")],
)
async def test_a_question_against_the_contract_shows_an_error_and_does_not_pause(
    desk: Served, model: ScriptedModel, scenario: str, reason: str
) -> None:
    talk = await Talk.begin(desk.http, f"SCENARIO:{scenario}")
    chat = await talk.until()
    blocks = chat["messages"][-1]["blocks"]
    [error] = [block for block in blocks if block["type"] == "error"]
    assert reason in error["content"]
    found = violation_in(error)
    assert found is not None and found.text(speak("en")) == error["content"] != found.text(speak("de"))
    assert blocks[-1] == {"type": "content", "content": "Sorry.", "status": "success"}
    assert (await told(desk.http.get("/v1/asks"), 200))["asks"] == []
    assert reason in json.dumps(model.requests[-1].body["messages"])


async def test_a_model_that_goes_on_against_the_contract_is_ended(desk: Served, model: ScriptedModel) -> None:
    talk = await Talk.begin(desk.http, "SCENARIO:stubborn")
    chat = await talk.until()
    assert chat["messages"][-1]["state"] == "failed"
    assert kinds(chat["messages"][-1]) == ["error"] * 4
    assert len(model.requests) == 3
    model.scenarios["stubborn"] = ["better"] * 9
    await talk.say("stop asking")
    assert texts(await talk.until())[-1] == ("assistant", "better")


@pytest.mark.parametrize("scenario", ["malformed", "broken"])
async def test_malformed_arguments_are_corrected_once(desk: Served, model: ScriptedModel, scenario: str) -> None:
    talk = await Talk.begin(desk.http, f"SCENARIO:{scenario}")
    await talk.question()
    assert kinds((await talk.read())["messages"][-1]) == ["error", "action"]
    assert len(model.requests[-1].tool_results) == 1
    await talk.say("SQLite")
    assert texts(await talk.until())[-1] == ("assistant", "Fine.")


async def test_arguments_that_stay_malformed_end_the_reply(desk: Served, model: ScriptedModel) -> None:
    talk = await Talk.begin(desk.http, "SCENARIO:hopeless")
    chat = await talk.until()
    assert chat["messages"][-1]["state"] == "failed"
    assert "did not correct it" in chat["messages"][-1]["blocks"][-1]["content"]
    assert len(model.requests) == 2


async def test_tools_run_before_a_question(desk: Served) -> None:
    talk = await Talk.begin(desk.http, "SCENARIO:tool")
    chat = await talk.until()
    tool = chat["messages"][-1]["blocks"][0]
    assert (tool["tool_call"]["name"], tool["tool_call"]["response"], tool["status"]) == (
        "weather",
        "it rains",
        "success",
    )
    assert texts(chat)[-1] == ("assistant", "It says: it rains")
    second = await Talk.begin(desk.http, "SCENARIO:tool-first")
    await second.question()
    await second.say("SQLite")
    assert texts(await second.until())[-1] == ("assistant", "Fine.")


async def test_a_reply_is_told_as_it_is_written_and_can_be_stopped_and_tried_again(
    desk: Served, model: ScriptedModel
) -> None:
    model.scenarios["slow"] = [["Once ", "upon a time"]]
    model.pause("slow", step=0)
    async with listening(desk.http, also="chats") as listener:
        talk = await Talk.begin(desk.http, "SCENARIO:slow")
        while (frame := await listener.frame()).event != "draft":
            pass
        piece = json.loads(frame.data)
        assert (piece["chat"], piece["block"], piece["offset"], piece["text"]) == (talk.id, 0, 0, "Once ")
        chat = await talk.read()
        assert chat["state"] == "writing" and texts(chat)[-1] == ("assistant", "Once ")
        await refused(desk.http.post(f"/v1/chats/{talk.id}/messages", json={"text": "wait"}), 409, "chat_busy")
        await talk.order("stop")
        chat = await talk.until()
    assert chat["messages"][-1]["state"] == "stopped"
    assert texts(chat)[-1] == ("assistant", "Once ")
    model.scenarios["slow"] = ["Again."]
    model._pauses.clear()
    await talk.order("retry")
    chat = await talk.until()
    assert texts(chat) == [("user", "SCENARIO:slow"), ("assistant", "Again.")]
    assert [each["state"] for each in chat["messages"]] == ["done", "replaced", "done"]
    await talk.say("go on")  # what was stopped is not shown to the model again
    await talk.until()
    assert "Once" not in json.dumps(model.requests[-1].body["messages"])


async def test_after_a_stop_the_model_knows_what_it_had_said(desk: Served, model: ScriptedModel) -> None:
    model.scenarios["slow"] = [["Once ", "upon a time"], "Good."]
    reached = model.pause("slow", step=0)
    talk = await Talk.begin(desk.http, "SCENARIO:slow")
    await reached.reached()
    while texts(await talk.read())[-1] != ("assistant", "Once "):
        await asyncio.sleep(0.01)
    await talk.order("stop")
    await talk.until()
    await talk.say("shorter please")
    assert texts(await talk.until())[-1] == ("assistant", "Good.")
    said = json.dumps(model.requests[-1].body["messages"])
    assert said.index("Once ") < said.index("shorter please")


class Lingering(Transcript):
    """Takes a moment to say that the end of a reply was written."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.written, self.go_on = asyncio.Event(), asyncio.Event()

    async def finish(self, said: Said, *, at: int) -> None:
        await super().finish(said, at=at)
        self.written.set()
        await self.go_on.wait()


async def test_a_reply_is_read_as_it_ended_from_the_moment_that_is_written(
    broker: Broker, settings: ChatSettings, model: ScriptedModel
) -> None:
    slow_calls.clear()
    model.scenarios["slow-tool"] = [call("slowly"), "Good."]
    chats = Chats(broker, settings, is_alone=True)
    chats.transcript = lingering = Lingering(broker.store)
    async with chats, asyncio.timeout(PATIENCE):
        chat = (await chats.create()).id
        await chats.say(chat, "SCENARIO:slow-tool")
        await eventually(lambda: bool(slow_calls))
        await chats.stop(chat)
        await lingering.written.wait()
        [_, said] = [said async for said in chats.messages(chat)]
        lingering.go_on.set()
    assert (said.state, said.blocks[0]["status"]) == ("stopped", "error")


async def test_a_tool_that_runs_can_be_stopped_too(desk: Served, model: ScriptedModel) -> None:
    slow_calls.clear()
    model.scenarios["slow-tool"] = [call("slowly"), "Good."]
    talk = await Talk.begin(desk.http, "SCENARIO:slow-tool")
    await eventually(lambda: bool(slow_calls))
    await talk.order("stop")
    chat = await talk.until()
    assert (chat["messages"][-1]["state"], chat["messages"][-1]["blocks"][0]["status"]) == ("stopped", "error")
    await talk.say("go on without it")
    assert texts(await talk.until())[-1] == ("assistant", "Good.")


async def test_a_failing_model_is_said_and_can_be_tried_again(desk: Served, model: ScriptedModel) -> None:
    model.failing("hello", step=0, status=400, times=1)
    talk = await Talk.begin(desk.http, HELLO)
    chat = await talk.until()
    assert chat["messages"][-1]["state"] == "failed"
    assert "400" in chat["messages"][-1]["blocks"][-1]["content"]
    await talk.order("retry")
    assert texts(await talk.until())[-1] == ("assistant", "Hello! ")


async def test_a_question_that_was_asked_is_not_tried_again(desk: Served) -> None:
    talk = await Talk.begin(desk.http, "SCENARIO:ask")
    block = await talk.question()
    await refused(desk.http.post(f"/v1/chats/{talk.id}/retry"), 409, "chat_busy")
    await told(desk.http.post(path_of(block["extra"]["askId"], "withdraw"), json={}), 200)
    assert (await talk.until())["messages"][-1]["blocks"][-1]["status"] == "denied"


async def test_the_same_message_sent_twice_is_one(desk: Served) -> None:
    talk = await Talk.begin(desk.http)
    first = await talk.say(HELLO, nonce="n1")
    assert await talk.say(HELLO, nonce="n1") == first
    assert len((await talk.until())["messages"]) == 2


async def test_of_two_who_answer_at_once_one_wins(desk: Served) -> None:
    talk = await Talk.begin(desk.http, "SCENARIO:ask")
    ask = (await talk.question())["extra"]["askId"]
    answered, said = await asyncio.gather(
        desk.http.post(path_of(ask, "answer"), json={"answers": [["SQLite"]]}),
        desk.http.post(f"/v1/chats/{talk.id}/messages", json={"text": "by hand"}),
    )
    assert sorted([answered.status_code, said.status_code]) in ([200, 409], [201, 409])
    chat = await talk.until()
    inserted = [text for role, text in texts(chat) if role == "user"][1:]
    assert inserted == (["SQLite"] if answered.status_code == 200 else ["by hand"])


async def test_a_deleted_chat_withdraws_its_question(desk: Served) -> None:
    talk = await Talk.begin(desk.http, "SCENARIO:ask")
    ask = (await talk.question())["extra"]["askId"]
    assert (await desk.http.delete(f"/v1/chats/{talk.id}")).status_code == 204
    await refused(desk.http.get(f"/v1/chats/{talk.id}"), 404, "chat_not_found")
    assert (await desk.get(ask))["state"] == "withdrawn"


async def test_only_what_changed_is_told(desk: Served) -> None:
    talk = await Talk.begin(desk.http, HELLO)
    version = (await talk.until())["version"]
    await talk.say("more")
    await talk.until()
    newer = await told(desk.http.get(f"/v1/chats/{talk.id}?since={version}"), 200)
    assert [each["role"] for each in newer["messages"]] == ["user", "assistant"]
    newest = await told(desk.http.get(f"/v1/chats/{talk.id}?since={newer['version']}"), 200)
    assert newest["messages"] == []


async def test_who_may_only_answer_reads_and_answers_but_does_not_speak(desk: Served) -> None:
    talk = await Talk.begin(desk.http, "SCENARIO:ask")
    ask = (await talk.question())["extra"]["askId"]
    person = await desk.caller("ana", "answer")
    assert (await told(person.get(f"/v1/chats/{talk.id}"), 200))["state"] == "asking"
    await refused(person.post(f"/v1/chats/{talk.id}/messages", json={"text": "x"}), 403, "forbidden")
    await refused(person.post("/v1/chats", json={}), 403, "forbidden")
    await told(person.post(path_of(ask, "answer"), json={"answers": [["SQLite"]]}), 200)
    await talk.until()
    script = await desk.caller("script", "ask")
    await refused(script.get(f"/v1/chats/{talk.id}"), 403, "forbidden")


async def test_an_ask_that_claims_to_be_of_a_chat_changes_none(desk: Served) -> None:
    talk = await Talk.begin(desk.http, "SCENARIO:ask")
    real = (await talk.question())["extra"]["askId"]
    script = await desk.caller("script", "ask")
    body = {"id": real, "questions": [STORAGE], "origin": {"agent": "chat", "session": talk.id}}
    forged = await told(script.post("/v1/asks", json=body), 201)
    assert forged["id"] != real
    await desk.answer(forged["id"], "SQLite")
    assert (await talk.read())["state"] == "asking"


@pytest.mark.parametrize("missing", ["key", "server", "model"])
async def test_what_is_missing_is_said_in_the_chat(tmp_path: Path, missing: str) -> None:
    tables = {
        "key": ModelTable(api="openai", model="m", key_env="HANDRAISE_NO_SUCH_KEY"),
        "server": ModelTable(api="anthropic", model="m", url="http://127.0.0.1:9"),
    }
    chat = ChatSettings(models={missing: tables.get(missing, tables["key"])})
    async with serving(tmp_path, chat=chat) as served:
        talk = await Talk.begin(served.http)
        if missing == "model":  # the settings have changed since
            await served.broker.store.write("update chats set model = 'gone'")
        await talk.say("hello")
        said = (await talk.until())["messages"][-1]
        assert said["state"] == "failed"
        wanted = {"key": "HANDRAISE_NO_SUCH_KEY", "server": "could not be reached", "model": "no model 'gone'"}
        assert wanted[missing] in said["blocks"][-1]["content"]


async def test_without_a_model_beginning_a_chat_says_what_to_write(tmp_path: Path) -> None:
    async with serving(tmp_path) as served:
        body = await refused(served.http.post("/v1/chats", json={"text": "hi"}), 422, "settings")
        assert "[models" in body["message"]


# Restarts -----------------------------------------------------------------------------------------------------------


def _config(home: Path, model: ScriptedModel) -> dict[str, str]:
    folder = home / "config" / "handraise"
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(f'[models.local]\napi = "openai"\nmodel = "m"\nurl = "{model.url}/v1"\n')
    return {"XDG_CONFIG_HOME": str(home / "config")}


async def test_a_pending_question_survives_kill_and_is_answered_after(tmp_path: Path, model: ScriptedModel) -> None:
    async with DeskProcess(tmp_path / "home", **_config(tmp_path, model)) as desk:
        async with desk.client() as http:
            talk = await Talk.begin(http, "SCENARIO:ask")
            ask = (await talk.question())["extra"]["askId"]
        await desk.kill()
        await desk.start()
        async with desk.client() as http:
            talk = Talk(http, talk.id)
            assert (await talk.question())["status"] == "pending"
            await told(http.post(path_of(ask, "answer"), json={"answers": [["SQLite"]]}), 200)
            assert texts(await talk.until())[-1] == ("assistant", "You said 'SQLite'.")


async def test_a_reply_cut_off_by_kill_is_said_and_can_be_tried_again(tmp_path: Path, model: ScriptedModel) -> None:
    model.scenarios["slow"] = [["Once ", "upon a time"]]
    model.pause("slow", step=0)
    async with DeskProcess(tmp_path / "home", **_config(tmp_path, model)) as desk:
        async with desk.client() as http:
            talk = await Talk.begin(http, "SCENARIO:slow")
            while texts(await talk.read())[-1] != ("assistant", "Once "):
                await asyncio.sleep(0.01)
        await desk.kill()
        await desk.start()
        async with desk.client() as http:
            talk = Talk(http, talk.id)
            chat = await talk.until()
            assert chat["messages"][-1]["state"] == "failed"
            assert "desk ended" in chat["messages"][-1]["blocks"][-1]["content"]
            model._pauses.clear()
            await talk.order("retry")
            assert texts(await talk.until())[-1] == ("assistant", "Once upon a time")


async def test_a_chat_that_cannot_be_read_holds_up_no_other(
    tmp_path: Path, model: ScriptedModel, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path, chat=model_settings(model)) as desk:
        broken = await Talk.begin(desk.http, HELLO)
        await broken.until()
        await desk.broker.store.write("update chat_messages set blocks = 'no json'")
        await desk.broker.store.write("update chats set state = 'queued'", topic="chats")
        await eventually(lambda: broken.id in caplog.text)
        talk = await Talk.begin(desk.http, HELLO)
        assert texts(await talk.until())[-1] == ("assistant", "Hello! ")


async def test_a_desk_that_ends_in_order_says_so_too(tmp_path: Path, model: ScriptedModel) -> None:
    model.scenarios["slow"] = [["Once ", "upon a time"]]
    model.pause("slow", step=0)
    async with serving(tmp_path, chat=model_settings(model)) as first:
        talk = await Talk.begin(first.http, "SCENARIO:slow")
        while texts(await talk.read())[-1] != ("assistant", "Once "):
            await asyncio.sleep(0.01)
    async with serving(tmp_path, chat=model_settings(model)) as second:
        chat = await Talk(second.http, talk.id).until()
        assert texts(chat)[-1] == ("assistant", "Once ") and chat["messages"][-1]["state"] == "failed"


async def test_block_ask_and_message_never_disagree_however_often_the_desk_is_killed(
    tmp_path: Path, model: ScriptedModel
) -> None:
    chances = random.Random(20261116)
    async with DeskProcess(tmp_path / "home", **_config(tmp_path, model)) as desk:
        async with desk.client() as http:
            talks = [await Talk.begin(http, "SCENARIO:ask") for _ in range(12)]
            asks = [(await talk.question())["extra"]["askId"] for talk in talks]
        for number in range(0, 12, 2):
            async with desk.client() as http:
                calls = [
                    http.post(path_of(asks[number], "answer"), json={"answers": [["SQLite"]]}),
                    http.post(f"/v1/chats/{talks[number + 1].id}/messages", json={"text": "SQLite"}),
                ]
                sent = asyncio.gather(*calls, return_exceptions=True)
                await asyncio.sleep(chances.random() * 0.008)
                await desk.kill()
                await sent
            await desk.start()
        outcomes = set()
        async with desk.client() as http:
            for talk, ask in zip(talks, asks, strict=True):
                chat = await Talk(http, talk.id).until("idle", "asking")
                state = (await told(http.get(path_of(ask)), 200))["state"]
                resolution = chat["messages"][1]["blocks"][-1]["extra"]["questionResolution"]
                inserted = [text for role, text in texts(chat)[2:] if role == "user"]
                outcomes.add((state, resolution, chat["ask"] == ask, tuple(inserted)))
        assert outcomes <= {("answered", "replied", False, ("SQLite",)), ("asked", "asked", True, ())}


# Several desks ------------------------------------------------------------------------------------------------------


async def test_any_desk_of_a_database_takes_the_answer_and_one_writes_the_reply(
    tmp_path: Path, model: ScriptedModel, new_database: Callable[[], str]
) -> None:
    shared = {"database": new_database(), "chat": model_settings(model)}
    async with (
        serving(tmp_path / "a", has_worker=False, **shared) as one,
        serving(tmp_path / "b", has_worker=False, **shared) as other,
    ):
        talk = await Talk.begin(one.http, "SCENARIO:ask")
        ask = (await talk.question())["extra"]["askId"]
        there = Talk(other.http, talk.id)
        assert (await there.question())["status"] == "pending"
        await other.answer(ask, "SQLite")
        assert texts(await talk.until())[-1] == ("assistant", "You said 'SQLite'.")
        assert texts(await there.until())[-1] == ("assistant", "You said 'SQLite'.")
        assert len(model.requests) == 2


async def test_another_desk_gives_up_what_a_dead_one_was_writing(
    tmp_path: Path, model: ScriptedModel, new_database: Callable[[], str]
) -> None:
    model.scenarios["slow"] = [["Once ", "upon a time"]]
    model.pause("slow", step=0)
    database = new_database()
    async with (
        DeskProcess(tmp_path / "a", HANDRAISE_DATABASE=database, **_config(tmp_path, model)) as dead,
        dead.client() as http,
    ):
        talk = await Talk.begin(http, "SCENARIO:slow")
        while texts(await talk.read())[-1] != ("assistant", "Once "):
            await asyncio.sleep(0.01)
        async with serving(tmp_path / "b", has_worker=False, database=database, chat=model_settings(model)) as other:
            there = Talk(other.http, talk.id)
            await dead.kill()
            await other.broker.store.write("update chats set lease_until = 1", topic="chats")
            chat = await there.until()
            assert chat["messages"][-1]["state"] == "failed"


# The contract, by itself --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("calls", "reason"),
    [
        ([], None),
        (["question"], None),
        (["a", "b"], None),
        (["question", "question"], "One question"),
        (["a", "question"], "stand alone"),
        (["question", "a"], "last tool call"),
        (["question", "a", "question"], "One question"),
    ],
)
def test_a_question_stands_alone_and_last(calls: list[str], reason: str | None) -> None:
    found = violation(calls)
    assert found is None if reason is None else found is not None and reason in found.text(speak("en"))


@pytest.mark.parametrize(
    "arguments",
    [
        {},
        {"question": "", "options": []},
        {"question": "  ", "options": []},
        {"question": "x" * 4001, "options": []},
        {"question": "?"},
        {"question": "?", "options": [], "custom": False},
        {"question": "?", "options": [{"label": "a"}] * 2},
        {"question": "?", "options": [{"label": str(n)} for n in range(21)]},
        {"question": "?", "options": [{"label": ""}]},
        {"question": "?", "options": [{"label": " "}]},
        {"question": "?", "options": [{"label": "a\nb"}]},
        {"question": "?", "options": [{"label": "x" * 31}]},
        {"question": "?", "options": [{"label": "a", "description": "x" * 501}]},
        {"question": "?", "options": [], "header": "x" * 31},
        {"question": "?", "options": ["a"]},
        {"questions": [{"question": "?"}]},
    ],
)
def test_arguments_beyond_the_contract_are_refused(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="validation error"):
        QuestionCall.model_validate(arguments)


def test_a_hidden_value_beside_a_label_is_not_taken() -> None:
    call = QuestionCall.model_validate({"question": "?", "options": [{"label": "Yes", "value": "rm -rf /"}]})
    assert "rm" not in call.model_dump_json()
