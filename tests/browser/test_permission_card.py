"""The permission card: what is wanted is shown whole, and nothing is allowed by accident."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from playwright.async_api import expect

from tests.browser.axe import findings
from tests.browser.people import PHONE, Card, Desk, People, Tab

HARMLESS = "git status"
SCOPES = [
    {"id": "session", "label": "for this session", "patterns": ["git status *", "git log *"], "by_desk": True},
    {"id": "localSettings", "label": "from now on", "patterns": ["Bash(git status:*)"]},
]
TRICKY = "echo a\u202e\tb "
CHANGE = """--- a/src/app.py
+++ b/src/app.py
@@ -1,3 +1,3 @@
 import os
-print("old")
+print("new")\u200b
 print("end")
--- /dev/null
+++ b/notes.txt
@@ -0,0 +1,1 @@
+hello
"""


async def harmless(desk: Desk, id: str = "p1", **fields: Any) -> None:
    await desk.want(id=id, **{"command": HARMLESS, "scopes": SCOPES, **fields})


async def change(desk: Desk, diff: str | None, *paths: str, id: str = "p1", **fields: Any) -> None:
    """A hand raised for a change to files."""
    wanted = {"tool": "Edit", "summary": "", "paths": paths, "input": {}, "scopes": [], "replies": ["once", "reject"]}
    body = {"permission": {**wanted, "diff": diff, **fields}, "questions": []}
    await desk.want(id=id, body=body)


def a_diff(*, files: int, lines: int) -> str:
    """In each file this many lines are replaced."""
    made: list[str] = []
    for number in range(files):
        made += [f"--- a/file{number}.py", f"+++ b/file{number}.py", f"@@ -1,{lines} +1,{lines} @@"]
        made += [f"{sign}{word} {line}" for line in range(lines) for sign, word in (("-", "old"), ("+", "new"))]
    return "\n".join(made) + "\n"


async def on_heading(card: Card) -> None:
    await card.heading.focus()


# What is shown ------------------------------------------------------------------------------------------------------


async def test_a_command_is_shown_with_everything_that_cannot_be_seen(desk: Desk, inbox: Tab) -> None:
    await desk.want(id="p1", command=TRICKY)
    card = inbox.card("p1").element
    shown = card.locator('[data-object="command"]')
    await expect(shown).to_have_text("echo a\\u202e→\tb·", use_inner_text=False)
    await expect(shown.locator(".escape")).to_have_text("\\u202e")
    await expect(shown.locator(".blank")).to_have_count(2)
    await expect(card.get_by_text("Contains hidden characters")).to_be_visible()


async def test_a_command_without_hidden_characters_is_not_warned_about(desk: Desk, inbox: Tab) -> None:
    await harmless(desk)
    await expect(inbox.card("p1").element.locator('[data-object="command"]')).to_have_text(HARMLESS)
    await expect(inbox.card("p1").element.locator("[data-hidden]")).to_have_count(0)


async def test_a_long_command_is_shown_whole(desk: Desk, people: People) -> None:
    tab = await people.inbox(viewport=PHONE)
    command = "printf " + "x" * 5000 + " end"
    await desk.want(id="p1", command=command)
    await expect(tab.card("p1").element.locator('[data-object="command"]')).to_have_text(command)
    assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


async def test_the_commands_of_a_line_are_listed_one_by_one(desk: Desk, inbox: Tab) -> None:
    await harmless(desk, command="git status && git log | head -n 5")
    parts = inbox.card("p1").element.locator(".parts li")
    await expect(parts).to_have_text(["git status", "git log", "head -n 5"])


async def test_what_an_agent_wrote_stays_text(desk: Desk, inbox: Tab) -> None:
    nasty = "<img src=x onerror=alert(1)> \x1b[31m"
    await desk.want(id="p1", tool=nasty, summary=nasty, command=nasty, input={nasty: nasty})
    await change(desk, f"--- a/{nasty}\n+++ b/{nasty}\n@@ -1,1 +1,1 @@\n-{nasty}\n+{nasty}\n", nasty, id="p2")
    for id in ("p1", "p2"):
        card = inbox.card(id).element
        await expect(card.get_by_text("\\x1b").first).to_be_visible()
        assert await card.locator("img").count() == 0


async def test_the_heading_says_what_the_agent_wants(desk: Desk, inbox: Tab) -> None:
    titles: dict[str, dict[str, Any]] = {
        "run a command": {"command": "ls"},
        "read /etc/hosts": {"tool": "Read", "paths": ["/etc/hosts"]},
        "open docs.example": {"tool": "WebFetch", "url": "https://user@docs.example/a"},
        "change 2 files": {"tool": "Edit", "paths": ["a.py", "b.py"]},
        "use mcp__x__y": {"tool": "mcp__x__y"},
    }
    for title, fields in titles.items():
        await desk.want(id=title, body={"permission": {"tool": "Bash", "replies": ["once", "reject"], **fields}})
    for title in titles:
        await expect(inbox.card(title).heading).to_have_text(f"scripted wants to {title}")


async def test_a_plan_is_prose_and_an_address_shows_its_host(desk: Desk, inbox: Tab) -> None:
    plan = {"tool": "ExitPlanMode", "kind": "plan", "input": {"plan": "1. write\n2. **test**"}, "replies": ["once"]}
    await desk.want(id="p1", body={"permission": plan})
    await expect(inbox.card("p1").heading).to_have_text("scripted wants its plan approved")
    await expect(inbox.card("p1").element.locator(".plan li")).to_have_text(["write", "test"])
    page = {"tool": "WebFetch", "url": "https://docs.example@evil.example/a", "replies": ["once"]}
    await desk.want(id="p2", body={"permission": page})
    await expect(inbox.card("p2").element.locator('[data-object="url"] strong')).to_have_text("evil.example")


async def test_arguments_are_shown_where_there_is_nothing_else(desk: Desk, inbox: Tab) -> None:
    wanted = {"tool": "mcp__tracker__add", "input": {"title": "Crash", "deep": {"a": [1]}}, "replies": ["once"]}
    await desk.want(id="p1", body={"permission": wanted})
    values = inbox.card("p1").element.locator(".values")
    await expect(values.locator("dt")).to_have_text(["title", "deep"])
    await expect(values).to_contain_text("Crash")


async def test_every_part_is_on_the_card_and_the_agents_own_words_come_last(desk: Desk, inbox: Tab) -> None:
    wanted = {
        "tool": "Bash",
        "command": "rm -rf build && git push",
        "paths": ["notes.txt"],
        "resolved": ["/etc/passwd"],
        "cwd": "/shop",
        "resolved_cwd": "/shop",
        "url": "https://evil.example/x",
        "diff": CHANGE,
        "input": {"command": "rm -rf build && git push", "then": "reboot"},
        "summary": "Only looks at the weather",
        "replies": ["once", "reject"],
    }
    await desk.want(id="p1", body={"permission": wanted})
    card = inbox.card("p1").element
    await expect(card.locator('[data-object="command"]')).to_have_text("rm -rf build && git push")
    await expect(card.locator(".parts li")).to_have_text(["rm -rf build", "git push"])
    await expect(card.locator('[data-object="paths"] li')).to_have_text(["notes.txt → /etc/passwd"])
    await expect(card.locator('[data-object="url"] code')).to_have_text("https://evil.example/x")
    await expect(card.locator('.diff-line[data-kind="del"] code')).to_have_text(['−print("old")'])
    await expect(card.locator(".arguments dt")).to_have_text(["then"])
    await expect(card.locator(".arguments dd")).to_be_visible()
    await expect(card.locator("[data-claim]")).to_have_text("The agent saysOnly looks at the weather")
    await expect(card.locator("[data-risk]").first).to_be_visible()
    shown = await card.inner_text()
    assert shown.index("rm -rf build") < shown.index("reboot") < shown.index("Only looks at the weather")


async def test_what_is_approved_along_with_a_plan_is_on_the_card(desk: Desk, inbox: Tab) -> None:
    plan = {"tool": "ExitPlanMode", "kind": "plan", "input": {"plan": "Build it"}, "replies": ["once"]}
    await desk.want(id="p1", body={"permission": {**plan, "extra": {"input": {"allowedPrompts": ["rm"]}}}})
    await expect(inbox.card("p1").element.locator('[data-object="approved"]')).to_contain_text("allowedPrompts")


async def test_a_permission_that_has_no_card_shows_all_that_it_has(inbox: Tab) -> None:
    """It was asked before desks kept cards."""
    parts = await inbox.page.evaluate("""async () => {
        const { cardOf, titleOf } = await import('/app/core/card.js');
        const permission = { tool: 'Edit', paths: ['a.py'], diff: '+x', input: { mode: 'x' }, replies: ['once'] };
        const ask = { permission, origin: { agent: 'claude' } };
        return [titleOf(ask), cardOf(ask).parts.join(' ')];
    }""")
    assert parts == ["claude wants to use Edit", "paths diff arguments"]


# Answering ----------------------------------------------------------------------------------------------------------


async def test_allow_once_is_the_only_filled_button_and_has_no_focus_by_itself(desk: Desk, inbox: Tab) -> None:
    await harmless(desk)
    card = inbox.card("p1")
    await expect(card.element.locator("button.primary")).to_have_text("Allow once")
    assert await inbox.focused() in ("body", "main main")
    await card.action("allow").click()
    answer = (await desk.settled("p1"))["answer"]
    assert (answer["reply"], answer["via"]) == ("once", "web")


async def test_deny_sends_at_once(desk: Desk, inbox: Tab) -> None:
    await harmless(desk)
    await inbox.card("p1").action("deny").click()
    assert (await desk.settled("p1"))["state"] == "rejected"


async def test_a_denial_can_say_why(desk: Desk, inbox: Tab) -> None:
    await harmless(desk)
    card = inbox.card("p1")
    await card.action("why").click()
    await expect(card.element.locator('[data-field="message"]')).to_be_focused()
    await inbox.page.keyboard.type("Use the staging database")
    await card.action("send-why").click()
    settled = await desk.settled("p1")
    assert (settled["state"], settled["answer"]["reason"]) == ("rejected", "Use the staging database")


async def test_allow_more_saves_exactly_the_patterns_that_are_shown(desk: Desk, inbox: Tab) -> None:
    await harmless(desk)
    card = inbox.card("p1")
    await card.action("more").click()
    panel = card.element.locator('[data-panel="more"]')
    await expect(panel.locator(".pattern code")).to_have_text(["git status *", "git log *"])
    await expect(panel).to_contain_text("Any command that starts with “git status”")
    await expect(panel).to_contain_text("Saves a rule in the desk.")
    await card.action("save").click()
    answer = (await desk.settled("p1"))["answer"]
    assert (answer["reply"], answer["scope"]) == ("always", "session")
    assert answer["patterns"] == ["git status *", "git log *"]


async def test_a_pattern_that_is_taken_out_is_not_saved(desk: Desk, inbox: Tab) -> None:
    await harmless(desk)
    card = inbox.card("p1")
    await card.action("more").click()
    await card.element.get_by_label("git log *").uncheck()
    async with inbox.page.expect_response("**/answer"):  # by then the desk has written it down
        await card.action("save").click()
    assert (await desk.settled("p1"))["answer"]["patterns"] == ["git status *"]
    await desk.want(id="p2", command="git status", scopes=SCOPES, extra={"patterns": ["git status"]})
    assert (await desk.settled("p2"))["answer"]["by"] == "policy:rule"
    await desk.want(id="p3", command="git log", scopes=SCOPES, extra={"patterns": ["git log"]})
    assert (await desk.get("p3"))["state"] == "asked"


async def test_nothing_can_be_saved_when_every_pattern_is_taken_out(desk: Desk, inbox: Tab) -> None:
    await harmless(desk)
    card = inbox.card("p1")
    await card.action("more").click()
    for pattern in ("git status *", "git log *"):
        await card.element.get_by_label(pattern).uncheck()
    await expect(card.action("save")).to_be_disabled()
    await expect(card.element.get_by_text("Nothing is left to save.")).to_be_visible()


async def test_only_the_scopes_that_are_offered_can_be_chosen(desk: Desk, inbox: Tab) -> None:
    await harmless(desk)
    await desk.want(id="p2", command=HARMLESS, scopes=[], replies=["once", "reject"])
    card = inbox.card("p1")
    await expect(inbox.card("p2").action("more")).to_have_count(0)
    await card.action("more").click()
    await expect(card.element.locator(".scopes label")).to_have_text(["for this session", "from now on"])
    await card.choice("from now on").check()
    await expect(card.element.locator(".pattern code")).to_have_text(["Bash(git status:*)"])
    await expect(card.element.get_by_text("remove it from .claude/settings.local.json")).to_be_visible()
    await card.action("save").click()
    answer = (await desk.settled("p1"))["answer"]
    assert (answer["scope"], answer["patterns"]) == ("localSettings", ["Bash(git status:*)"])


async def test_a_command_can_be_allowed_with_changes(desk: Desk, inbox: Tab) -> None:
    await harmless(desk, input={"command": HARMLESS, "timeout": 5})
    card = inbox.card("p1")
    await card.action("change").click()
    await expect(card.action("send-change")).to_be_disabled()
    await card.element.get_by_label("Command").fill("git status --short ")
    await expect(card.element.locator('[data-object="before"]')).to_have_text("git status")
    await expect(card.element.locator('[data-object="after"]')).to_have_text("git status --short·")
    await card.action("send-change").click()
    answer = (await desk.settled("p1"))["answer"]
    assert (answer["reply"], answer["input"]) == ("once", {"command": "git status --short ", "timeout": 5})


async def test_arguments_are_changed_as_json_that_is_looked_at_while_typing(desk: Desk, inbox: Tab) -> None:
    wanted = {"tool": "add", "input": {"title": "Crash"}, "replies": ["once", "reject"], "editable": True}
    await desk.want(id="p1", body={"permission": wanted})
    card = inbox.card("p1")
    await card.action("change").click()
    field = card.element.get_by_label("Arguments, as JSON")
    await field.fill('{"title": ')
    await expect(card.element.locator(".problem")).to_contain_text("That is no JSON")
    await expect(card.action("send-change")).to_be_disabled()
    await field.fill('{"title": "Crash at start"}')
    await card.action("send-change").click()
    assert (await desk.settled("p1"))["answer"]["input"] == {"title": "Crash at start"}


async def test_what_cannot_be_changed_offers_no_changes(desk: Desk, inbox: Tab) -> None:
    await harmless(desk, editable=False)
    card = inbox.card("p1")
    await expect(card.action("allow")).to_be_visible()
    await expect(card.action("change")).to_have_count(0)


async def test_what_was_typed_survives_a_reload(desk: Desk, inbox: Tab) -> None:
    await harmless(desk)
    await inbox.card("p1").action("why").click()
    await expect(inbox.card("p1").element.locator('[data-field="message"]')).to_be_focused()
    await inbox.page.keyboard.type("Not on a Friday")
    await inbox.page.reload()
    await expect(inbox.card("p1").element.locator('[data-field="message"]')).to_have_value("Not on a Friday")
    assert not (await inbox.focused()).startswith("textarea")


async def test_a_denial_that_came_too_late_is_kept_to_be_read(desk: Desk, inbox: Tab) -> None:
    await harmless(desk)
    await inbox.card("p1").action("why").click()
    await expect(inbox.card("p1").element.locator('[data-field="message"]')).to_be_focused()
    await inbox.page.keyboard.type("Not on a Friday")
    await desk.reply("p1", "once", by="ana", via="http")
    card = inbox.card("p1").element
    await expect(card).to_have_attribute("data-state", "answered")
    await expect(card.get_by_text("Not on a Friday")).to_be_visible()


# Risky ones ---------------------------------------------------------------------------------------------------------


async def test_a_risky_permission_wants_a_second_press(desk: Desk, inbox: Tab) -> None:
    await desk.want(id="p1")
    card = inbox.card("p1")
    await expect(card.element.get_by_text("This can delete files.")).to_be_visible()
    await card.action("allow").click()
    await expect(card.action("run")).to_be_focused()
    assert (await desk.get("p1"))["state"] == "asked"
    await card.action("run").click()
    assert (await desk.settled("p1"))["answer"]["reply"] == "once"


async def test_a_double_click_is_no_second_press(desk: Desk, inbox: Tab) -> None:
    await desk.want(id="p1")
    card = inbox.card("p1")
    await card.action("allow").dblclick()
    await expect(card.action("run")).to_be_visible()
    await card.action("run").dispatch_event("click", {"detail": 2})
    await card.action("close").click()
    await expect(card.action("run")).to_have_count(0)
    assert (await desk.get("p1"))["state"] == "asked"


async def test_no_single_key_allows_what_is_risky(desk: Desk, inbox: Tab) -> None:
    await desk.want(id="p1")
    card = inbox.card("p1")
    await expect(card.heading).to_be_visible()
    await on_heading(card)
    await inbox.press(*"123456789", "Enter", "Space")
    await expect(card.action("run")).to_have_count(0)
    await inbox.press("y")
    await expect(card.action("run")).to_be_focused()
    await inbox.press("y", "y")
    assert (await desk.get("p1"))["state"] == "asked"
    await inbox.press("Enter")
    assert (await desk.settled("p1"))["answer"]["reply"] == "once"


# Keys ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("key", "reply"), [("y", "once"), ("d", "reject")])
async def test_one_key_answers_what_is_harmless(desk: Desk, inbox: Tab, key: str, reply: str) -> None:
    await harmless(desk)
    card = inbox.card("p1")
    await expect(card.heading).to_be_visible()
    await inbox.press(key)
    await on_heading(card)
    await inbox.press("Enter", "1")
    assert (await desk.get("p1"))["state"] == "asked", "keys count in the card alone, and Enter on a button alone"
    await inbox.press(key)
    assert (await desk.settled("p1"))["answer"]["reply"] == reply


async def test_keys_in_a_text_field_are_text(desk: Desk, inbox: Tab) -> None:
    await harmless(desk)
    card = inbox.card("p1")
    await expect(card.heading).to_be_visible()
    await on_heading(card)
    await inbox.press("n")
    field = card.element.locator('[data-field="message"]')
    await expect(field).to_be_focused()
    await inbox.press("y", "d", "n", "Enter", "1")
    await expect(field).to_have_value("ydn\n1")
    await inbox.press("Control+Enter")
    assert (await desk.settled("p1"))["answer"]["reason"] == "ydn\n1"


async def test_everything_goes_by_keyboard_alone(desk: Desk, inbox: Tab) -> None:
    await harmless(desk)
    card = inbox.card("p1")
    await expect(card.heading).to_be_visible()
    await inbox.press("j", "Shift+A")
    await expect(card.element.get_by_text("Allow more", exact=True)).to_be_focused()
    await inbox.press("Tab", "ArrowDown")  # the other scope
    await inbox.press("Tab", "Space", "Space")  # its pattern, out and in again
    await inbox.press("Tab", "Enter")
    answer = (await desk.settled("p1"))["answer"]
    assert (answer["scope"], answer["patterns"]) == ("localSettings", ["Bash(git status:*)"])


async def test_escape_never_answers(desk: Desk, inbox: Tab) -> None:
    await harmless(desk)
    await desk.want(id="p2")
    for id, keys in (("p1", ["n"]), ("p1", ["Shift+A"]), ("p2", ["y"]), ("p1", [])):
        card = inbox.card(id)
        await expect(card.heading).to_be_visible()
        await on_heading(card)
        await inbox.press(*keys)
        for _ in range(3):
            await inbox.press("Escape")
            await inbox.page.evaluate("new Promise(requestAnimationFrame)")  # in which the focus moves
        await expect(card.element.locator("[data-panel]")).to_have_count(0)
        await expect(inbox.page.locator("main")).to_be_focused()
    assert [(await desk.get(id))["state"] for id in ("p1", "p2")] == ["asked", "asked"]


async def test_the_focus_goes_on_to_the_next_card(desk: Desk, inbox: Tab) -> None:
    await harmless(desk, "p1")
    await harmless(desk, "p2")
    await expect(inbox.card("p2").heading).to_be_visible()
    await on_heading(inbox.card("p1"))
    await inbox.press("y")
    await expect(inbox.card("p2").heading).to_be_focused()
    await inbox.press("d")
    await expect(inbox.card("p2").heading).to_be_focused()
    await asyncio.gather(desk.settled("p1"), desk.settled("p2"))


# Changes to files ---------------------------------------------------------------------------------------------------


async def test_a_change_is_shown_line_by_line_with_its_files_first(desk: Desk, inbox: Tab) -> None:
    await change(desk, CHANGE, "src/app.py", "notes.txt", "other.txt")
    card = inbox.card("p1").element
    await expect(card.locator(".diff-list li")).to_have_count(2)
    await expect(card.locator(".diff-list li").first).to_contain_text("+1 −1")
    await expect(card.locator('[data-object="paths"] li')).to_have_text(["other.txt"])
    await expect(card.locator('.diff-line[data-kind="add"] code')).to_have_text(['+print("new")\\u200b', "+hello"])
    await expect(card.locator('.diff-line[data-kind="del"] code')).to_have_text(['−print("old")'])
    await expect(card.get_by_text("Contains hidden characters")).to_be_visible()


async def test_a_wide_window_shows_before_and_after_side_by_side(desk: Desk, people: People) -> None:
    tab = await people.inbox(viewport={"width": 1300, "height": 900})
    await change(desk, CHANGE, "src/app.py")
    line = tab.card("p1").element.locator(".diff-line", has_text='print("old")')
    await expect(line.locator(".half")).to_have_count(2)
    await expect(line).to_contain_text('print("new")')
    await tab.page.set_viewport_size({"width": 1000, "height": 900})
    await expect(tab.card("p1").element.locator(".half")).to_have_count(0)


async def test_no_line_of_a_diff_is_left_out_however_odd_it_is(desk: Desk, inbox: Tab) -> None:
    odd = (
        "@@ -1,1 +1,1 @@\n-a\n+b\n+beyond the hunk\nnot a diff line\n*** Update File: two.py\n@@ def x\n-c\n+d\n--- e\n"
    )
    await change(desk, odd, "one.py")
    rows = inbox.card("p1").element.locator(".diff-rows")
    await expect(rows.first).to_contain_text("beyond the hunk")
    await expect(rows.first).to_contain_text("not a diff line")
    await expect(rows.nth(1).locator('[data-kind="del"] code')).to_have_text(["−c", "−-- e"])


async def test_a_binary_file_is_said_to_be_one(desk: Desk, inbox: Tab) -> None:
    head = "diff --git a/logo.png b/logo.png\nindex 1111111..2222222 100644\n"
    await change(desk, f"{head}Binary files a/logo.png and b/logo.png differ\n", "logo.png")
    await expect(inbox.card("p1").element.locator(".diff-binary")).to_have_text("Binary file · 2222222")


async def test_a_change_without_a_preview_says_so(desk: Desk, inbox: Tab) -> None:
    await change(desk, None, "a.py")
    await expect(inbox.card("p1").element.get_by_text("The agent gave no preview of the change.")).to_be_visible()


async def test_a_long_change_starts_folded_and_can_be_opened(desk: Desk, inbox: Tab) -> None:
    await change(desk, a_diff(files=2, lines=101), "file0.py", "file1.py")
    card = inbox.card("p1").element
    await expect(card.locator(".diff-file")).to_have_count(2)
    await expect(card.locator(".diff-line")).to_have_count(0)
    await card.locator("summary", has_text="file1.py").click()
    await expect(card.get_by_text("new 40")).to_have_count(1)


async def test_a_change_of_five_thousand_lines_is_drawn_as_it_is_read(desk: Desk, inbox: Tab) -> None:
    await change(desk, a_diff(files=1, lines=2500), "file0.py")
    await inbox.card("p1").element.get_by_role("link", name="Open full diff").click()
    lines = inbox.page.locator(".diff-line")
    await expect(lines.first).to_be_visible()
    assert await lines.count() < 2000
    await inbox.page.get_by_role("link", name="Back to the card").click()
    await expect(inbox.card("p1").action("allow")).to_be_visible()


# For everybody ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_there_are_no_barriers(desk: Desk, people: People, scheme: str) -> None:
    # High, so that nothing lies under the head of the page.
    tab = await people.inbox(color_scheme=scheme, viewport={"width": 1100, "height": 3000})
    await harmless(desk, "p1", command=f"{HARMLESS} && {TRICKY}")
    await harmless(desk, "p3")
    await desk.want(id="p2")
    await change(desk, CHANGE, "src/app.py", "x.txt", id="p4")
    await expect(tab.cards).to_have_count(4)
    assert await findings(tab) == []
    await tab.card("p1").action("more").click()
    await tab.card("p2").action("allow").click()
    await tab.card("p3").action("change").click()
    await tab.card("p3").element.get_by_label("Command").fill("")
    assert await findings(tab) == []
    await tab.open("#/diff/p4")
    await expect(tab.page.locator(".diff-line").first).to_be_visible()
    assert await findings(tab) == []


async def test_nothing_scrolls_sideways_at_320_pixels(desk: Desk, people: People) -> None:
    tab = await people.inbox(viewport={"width": 320, "height": 640})
    await harmless(desk, "p1", command=f"{HARMLESS} {'x' * 300}")
    await change(desk, CHANGE.replace("old", "o" * 300), f"{'long/' * 40}app.py", id="p2")
    await expect(tab.cards).to_have_count(2)
    await tab.card("p1").action("more").click()
    await expect(tab.card("p1").action("save")).to_be_visible()
    assert await tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")
