"""What a model is told in words: that it was refused and by whom, and answers that come after their request is gone."""

from __future__ import annotations

from handraise.asks import Answer, Ask

__all__ = ["answer_told_again", "by_policy", "refusal", "told_later"]


def refusal(ask: Ask, answer: Answer) -> str:
    """Never empty, since an empty message leaves a model with an error it cannot read."""
    reason = (answer.reason or "").strip()
    permission = ask.permission
    if not answer.by_policy:
        if reason:
            return reason
        if permission is None:
            return "The person does not want to answer this; go on without the answer, or ask something else."
        if permission.kind == "plan":
            return "The person does not approve this plan; change it, or ask what is wrong with it."
        return "The person does not allow this; go on without it, or ask what to do instead."
    why = reason or "No person decided this"
    why = why if why.endswith((".", "!", "?")) else f"{why}."
    if permission is None:
        return f"{why} Decide yourself and note the assumption."
    if permission.kind == "plan":
        return f"{why} The plan is not approved; end your turn with what is missing."
    return f"{why} Do not try it in another way: go on without it, and note what is missing."


def by_policy(answer: Answer) -> str:
    """How an answer came about that no person gave."""
    name = answer.by.removeprefix("policy:")
    if name == "timeout":
        waited, *chose = [*answer.why, "no answer in time"]
        return f"chosen by policy {chose[0] if len(chose) > 1 else name}, since there was {waited}"
    if name == "unseen":
        unseen, *chose = [*answer.why, "nobody could be asked"]
        return f"chosen by policy {chose[0] if len(chose) > 1 else name}, since {unseen}"
    if name == "carried":  # a person was, and the agent of an attempt before has it
        return "; ".join(answer.why)
    return f"chosen by policy {name}, no person was asked"


def answer_told_again(ask: Ask, answer: Answer) -> str:
    """For a prompt, where the agent could not take the answer. It grants nothing."""
    permission = ask.permission
    wanted = (
        "" if permission is None else f"to be allowed: {permission.command or permission.summary or permission.tool}"
    )
    pairs = zip(ask.questions, answer.answers or (), strict=False)
    words = "; ".join(f'"{", ".join(map(question.label_of, values))}"' for question, values in pairs if values)
    again = "it was not done; if you still need it, do it now, and you may be asked again"
    told = told_later(ask, answer, wanted=wanted, answered=f"; the answer is: {words}.", again=again)
    return f"An answer did not reach you before. {told}"


def told_later(ask: Ask, answer: Answer, *, wanted: str, answered: str, again: str) -> str:
    """For a prompt, where the request that asked is gone.

    `wanted` says which call it was, and `again` what to do about it once it is allowed; `answered` goes on after the
    questions.
    """
    who = "A subagent of yours" if ask.origin.parent and "/" in ask.origin.session else "You"
    is_refused = answer.rejected or answer.reply == "reject"
    if ask.permission is None:
        asked = "; ".join(f'"{question.question}"' for question in ask.questions)
        said = f". That was not answered: {refusal(ask, answer)}" if is_refused else answered
        return f"{who} asked: {asked}{said}"
    if is_refused:
        return f"{who} asked {wanted}. That was refused: {refusal(ask, answer)}"
    return f"{who} asked {wanted}. That is allowed: {again}."
