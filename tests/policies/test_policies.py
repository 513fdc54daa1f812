"""Policy, line by line of MISSION P1 to P4. Each test names the line it proves."""

from __future__ import annotations

import time
from typing import Any

import pytest

from handraise.asks import Answer, Ask, AutoRule, Handling, Option, Permission, Question
from handraise.errors import SettingsError
from handraise.policies import Forward, Policy, accept_first, accept_recommended, auto, forward, policy_for, reject
from handraise.testing import a_permission, an_ask, check_policy

AB = (Option("a"), Option("b"))
CHOICE = Question("Which one?", AB, header="Choice")
RECOMMENDED = Question("Which?", (Option("a"), Option("b (Recommended)"), Option("c", recommended=True)))
VALUES = Question("Sure?", (Option("Yes", value="y"), Option("No", value="n")), header="Sure")
TEXT = Question("Which name?", header="Name")
NUMBER = Question("How many?", kind="number")
STRICT = Question("Which?", AB, custom=False)
PLAN = an_ask(questions=(), permission=Permission(tool="ExitPlanMode", kind="plan", summary="The plan"))
DATABASE_RULE = AutoRule(match="database", answers=("Postgres",))


def ask_of(*questions: Question) -> Ask:
    return an_ask(questions=questions)


def rules(*pairs: tuple[str, Any]) -> Policy:
    return auto(*(AutoRule(match=match, answers=tuple(answers)) for match, answers in pairs))


def answer_of(policy: Policy, ask: Ask) -> Answer:
    verdict = policy(ask)
    assert isinstance(verdict, Answer)
    return verdict


def forward_of(policy: Policy, ask: Ask) -> Forward:
    verdict = policy(ask)
    assert isinstance(verdict, Forward)
    return verdict


# P1: the settings -------------------------------------------------------------------------------------------

BY = {
    "P1 reject": (Handling(question_policy="reject"), "policy:reject"),
    "P1 accept-first": (Handling(question_policy="accept-first"), "policy:accept-first"),
    "P1 accept-recommended": (Handling(question_policy="accept-recommended"), "policy:accept-recommended"),
    "P1 auto": (Handling(question_policy=(DATABASE_RULE,)), "policy:auto"),
    "P1 auto without rules": (Handling(question_policy=()), "policy:auto"),
    "P1 a timeout bounds forward only": (
        Handling(question_policy="accept-first", question_timeout=5),
        "policy:accept-first",
    ),
}


@pytest.mark.parametrize("name", BY)
def test_P1_a_question_policy_decides_by_its_name(name: str) -> None:
    handling, by = BY[name]
    assert answer_of(policy_for(handling), an_ask()).by == by


def test_P1_an_attached_session_and_a_script_default_to_forward_without_a_timeout() -> None:
    for ask in (an_ask(), a_permission(), PLAN):
        assert policy_for(Handling())(ask) == Forward()


def test_P1_the_timeout_bounds_forward() -> None:
    verdict = forward_of(policy_for(Handling(question_timeout=30)), an_ask())
    assert verdict.timeout == 30
    assert verdict.then is not None and verdict.then.by == "policy:timeout"


@pytest.mark.parametrize("question_policy", ["reject", "accept-first", "accept-recommended", (DATABASE_RULE,)])
def test_P1_permissions_are_forwarded_whatever_the_question_policy(question_policy: Any) -> None:
    assert policy_for(Handling(question_policy=question_policy))(a_permission()) == Forward()


def test_P1_a_permission_policy_may_reject() -> None:
    answer = answer_of(policy_for(Handling(permission_policy="reject")), a_permission())
    assert (answer.rejected, answer.reply, answer.by) == (True, "reject", "policy:reject")
    assert policy_for(Handling(permission_policy="reject"))(an_ask()) == Forward()


def test_P1_the_same_timeout_bounds_a_permission_and_denies() -> None:
    verdict = forward_of(policy_for(Handling(question_timeout=30)), a_permission())
    assert verdict.timeout == 30
    assert verdict.then is not None and verdict.then.rejected and verdict.then.reason == "no answer in 30 s"


# P2: accept-first and accept-recommended --------------------------------------------------------------------

PICKS = {
    "P2 the first option": (accept_first, (CHOICE,), (("a",),)),
    "P2 the first option of every question": (accept_first, (CHOICE, VALUES), (("a",), ("y",))),
    "P2 first, though another is recommended": (accept_first, (RECOMMENDED,), (("a",),)),
    "P2 the recommended option": (accept_recommended, (RECOMMENDED,), (("b (Recommended)",),)),
    "P2 the first where none is recommended": (accept_recommended, (CHOICE, VALUES), (("a",), ("y",))),
    "P2 rejected, a question without options": (accept_first, (CHOICE, TEXT), None),
    "P2 rejected, none recommended and no options": (accept_recommended, (TEXT,), None),
}  # fmt: skip


@pytest.mark.parametrize("name", PICKS)
def test_P2_an_option_is_picked_for_every_question(name: str) -> None:
    policy, questions, expected = PICKS[name]
    answer = answer_of(policy, ask_of(*questions))
    assert answer.answers == expected
    assert answer.rejected is (expected is None)


def test_P2_a_rejection_names_the_question_without_options() -> None:
    assert answer_of(accept_first, ask_of(CHOICE, TEXT)).reason == "'Name' has no options to pick from"


ALL: dict[str, Policy] = {
    "reject": reject,
    "accept-first": accept_first,
    "accept-recommended": accept_recommended,
    "auto": rules(("", ["once"]), ("re:.*", ["always"])),
    "forward": forward(),
    "forward, then accept-first": forward(timeout=1, on_timeout=accept_first),
    "forward, then auto": forward(timeout=1, on_timeout=rules(("", ["once"]))),
    **{
        f"{question_policy}, {on_timeout}": policy_for(
            Handling(question_policy=question_policy, question_timeout=9, on_timeout=on_timeout)
        )
        for question_policy in ("forward", "accept-first", (DATABASE_RULE,))
        for on_timeout in ("accept-first", "accept-recommended", "reject")
    },
}


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("ask", [a_permission(), PLAN], ids=["permission", "plan"])
def test_P2_silence_never_grants_a_permission_or_approves_a_plan(name: str, ask: Ask) -> None:
    verdict = ALL[name](ask)
    answer = verdict.then if isinstance(verdict, Forward) else verdict
    if answer is not None:
        assert answer.rejected and answer.reply == "reject" and answer.reason


@pytest.mark.parametrize("name", ALL)
async def test_every_policy_fits_the_contract(name: str) -> None:
    await check_policy(ALL[name])


# P3: auto rules ---------------------------------------------------------------------------------------------

RULED: dict[str, tuple[Any, Any, Any]] = {
    "P3 a part of the header": ((CHOICE,), [("Choi", ["b"])], (("b",),)),
    "P3 a part of the text": ((CHOICE,), [("which one", ["b"])], (("b",),)),
    "P3 in any case": ((CHOICE,), [("WHICH ONE", ["b"])], (("b",),)),
    "P3 a regular expression on the text": ((CHOICE,), [(r"re:^Which \w+\?$", ["b"])], (("b",),)),
    "P3 a regular expression on the header": ((CHOICE,), [("re:^Choice$", ["b"])], (("b",),)),
    "P3 a header that is not there matches nothing": ((Question("Which?", AB),), [(r"re:^\w*$", ["b"])], (("a",),)),
    "P3 a regular expression minds the case": ((CHOICE,), [("re:^choice$", ["b"])], (("a",),)),
    "P3 a substring is no expression": ((CHOICE,), [("Wh.ch", ["b"])], (("a",),)),
    "P3 the first rule that matches": ((CHOICE,), [("nothing", ["x"]), ("one", ["b"]), ("one", ["a"])], (("b",),)),
    "P3 a label becomes its value": ((VALUES,), [("Sure", ["No"])], (("n",),)),
    "P3 several values": ((Question("Which?", AB, multiple=True),), [("Which", ["b", "a"])], (("b", "a"),)),
    "P3 own text": ((TEXT,), [("name", ["handraise"])], (("handraise",),)),
    "P3 each question by itself": ((CHOICE, TEXT, VALUES), [("name", ["x"])], (("a",), ("x",), ("y",))),
    "P3 no match takes the first option": ((CHOICE,), [("nothing", ["b"])], (("a",),)),
    "P3 no match and no option rejects": ((CHOICE, TEXT), [("Choice", ["b"])], None),
    "P3 a rule that does not fit is skipped": ((STRICT,), [("Which", ["z"]), ("Which", ["b"])], (("b",),)),
    "P3 two values for one are skipped": ((STRICT,), [("Which", ["a", "b"])], (("a",),)),
    "P3 no value at all is skipped": ((CHOICE,), [("Which", [])], (("a",),)),
    "P3 not a number is skipped": ((NUMBER,), [("many", ["x"]), ("many", ["3"])], (("3",),)),
}  # fmt: skip


@pytest.mark.parametrize("name", RULED)
def test_P3_rules_answer_the_questions_they_match(name: str) -> None:
    questions, pairs, expected = RULED[name]
    answer = answer_of(rules(*pairs), ask_of(*questions))
    assert answer.answers == expected
    assert answer.rejected is (expected is None)
    assert answer.by == "policy:auto"


def test_P3_what_a_rule_did_is_said() -> None:
    policy = rules(("Which", ["z"]), ("Which", ["b"]))
    assert answer_of(policy, ask_of(STRICT, CHOICE, VALUES)).why == (
        "'Which?': rule 1 ('Which') skipped, 'z' is not a choice; the choices are: 'a', 'b'",
        "'Which?': rule 2 ('Which')",
        "'Choice': rule 1 ('Which')",
        "'Sure': no rule, first option",
    )


def test_P3_a_rejection_names_the_question_nothing_answers() -> None:
    answer = answer_of(rules(("Choice", ["b"])), ask_of(CHOICE, TEXT))
    assert answer.reason == "no rule answers 'Name' and it has no options"
    assert answer.why == ("'Choice': rule 1 ('Choice')", "'Name': no rule and no option")


@pytest.mark.parametrize("match", ["re:(", "re:[z-a]", r"re:\p{Nothing}", r"re:(?=look)ahead", r"re:(a)\1"])
def test_P3_what_is_no_regular_expression_is_an_error_at_once(match: str) -> None:
    with pytest.raises(SettingsError, match="is not a regular expression"):
        auto(AutoRule(match=match, answers=("x",)))


@pytest.mark.parametrize("match", [r"re:(a+)+$", r"re:(a|aa)+$", r"re:(.*a){12}b", r"re:^(\w+\s?)*$"])
def test_P3_a_hostile_pattern_takes_linear_time(match: str) -> None:
    started = time.monotonic()
    answer = answer_of(rules((match, ["b"])), ask_of(Question("a" * 19_999 + "!", AB)))
    assert answer.answers == (("a",),)
    assert time.monotonic() - started < 5


def test_P3_texts_that_would_hold_up_the_desk_are_not_compared() -> None:
    """A token that may only ask brings its own rules along: each of these takes 70 ms for one of these texts."""
    heavy = [(f"re:[ab]*a[ab]{{900}}x{number}", ["b"]) for number in range(20)]
    answer = answer_of(rules(*heavy), ask_of(*(Question("ab" * 9_000, AB) for _ in range(10))))
    assert (answer.rejected, answer.reason) == (True, "its texts are too long for this many rules")
    assert answer_of(rules(*heavy), ask_of(Question("ab" * 100, AB))).answers == (("a",),)
    with pytest.raises(SettingsError, match="more than 100000 characters"):
        auto(*(AutoRule(match="x" * 10_001, answers=("x",)) for _ in range(10)))


def test_P3_rules_for_questions_grant_no_permission() -> None:
    answer = answer_of(rules(("Remove", ["once"]), ("Bash", ["always"])), a_permission())
    assert (answer.rejected, answer.reply) == (True, "reject")


# P4: forward ------------------------------------------------------------------------------------------------

TIMEOUTS = {
    "P4 accept-first": (Handling(question_timeout=5), RECOMMENDED, (("a",),), "accept-first"),
    "P4 accept-recommended": (
        Handling(question_timeout=5, on_timeout="accept-recommended"),
        RECOMMENDED,
        (("b (Recommended)",),),
        "accept-recommended",
    ),
    "P4 reject": (Handling(question_timeout=5, on_timeout="reject"), CHOICE, None, ""),
    "P4 free text only is rejected": (Handling(question_timeout=5), TEXT, None, ""),
}


@pytest.mark.parametrize("name", TIMEOUTS)
def test_P4_the_timeout_of_forward_has_the_outcome_that_was_set(name: str) -> None:
    handling, question, expected, decided = TIMEOUTS[name]
    then = forward_of(policy_for(handling), ask_of(question)).then
    assert then is not None
    assert (then.answers, then.rejected, then.by) == (expected, expected is None, "policy:timeout")
    assert then.why[0] == "no answer in 5 s"
    assert decided in then.why or expected is None


def test_P4_forward_waits_without_end_where_no_timeout_is_set() -> None:
    assert forward()(an_ask()) == Forward(timeout=None, then=None)


def test_P4_what_follows_a_timeout_must_decide_by_itself() -> None:
    with pytest.raises(SettingsError, match="must decide by itself"):
        forward(timeout=5, on_timeout=forward())(an_ask())
