"""What is said: to an agent about the work it was given, and in the thread about what it says and does. Pure."""

from __future__ import annotations

from handraise.channels.linear.room import Post
from handraise.channels.linear.translate import Activity, action, markdown, plain, thought
from handraise.channels.linear.webhooks import Created
from handraise.tables.sessions import SaidMessage
from handraise.text.inert import inert

__all__ = ["assignment_prompt", "mirrored", "question_prompt"]

ASKING = ("AskUserQuestion", "ExitPlanMode", "question", "request_user_input")  # tools that become an ask
LONGEST_CONTEXT = 100_000  # characters


def mirrored(said: list[SaidMessage], *, is_over: bool) -> tuple[list[Post], str]:
    """What to post of these messages, and the last one that is told by it.

    Few words: what the agent said as one thought, of what it does the newest alone. What it says last in a turn is
    posted as the response; so what may be that waits for what comes after it.
    """
    if said and said[-1].role == "agent" and not is_over:
        said = said[:-1]
    if not said:
        return [], ""
    texts = [message.text for message in said if message.role == "agent" and message.text.strip()]
    texts = texts[:-1] if is_over else texts
    tools = [] if is_over else [message for message in said if message.role == "tool" and _name(message) not in ASKING]
    posts = []
    if texts:
        posts.append(Post(f"said {said[-1].id}", thought(markdown("\n\n".join(texts)))))
    if tools:
        posts.append(Post(f"does {said[-1].id}", _doing(tools[-1]), ephemeral=True))
    return posts, said[-1].id


def _doing(message: SaidMessage) -> Activity:
    return action(plain(inert(_name(message), keep="")), plain(inert(message.text, keep=""))[:200] or "…")


def _name(message: SaidMessage) -> str:
    return str((message.extra or {}).get("name") or "Tool")


def assignment_prompt(event: Created, *, branch: str | None) -> str:
    issue = event.issue
    head = (
        f"You were given the issue {issue.identifier}: {issue.title}" if issue is not None else "You were given work."
    )
    context = event.context
    if issue is not None and issue.description not in context:
        context = f"{issue.description}\n\n{context}".strip()
    where = (
        f"You work in a git worktree of its own, on the branch {branch}: commit what you make there." if branch else ""
    )
    ask = "Where a decision is not yours to make, ask. At the end say in a few sentences what you did."
    return "\n\n".join(part for part in (head, context[:LONGEST_CONTEXT], where, ask) if part)


def question_prompt(event: Created) -> str:
    issue = event.issue
    about = f" on the issue {issue.identifier}: {issue.title}" if issue is not None else ""
    comments = "\n\n".join(f"> {comment}" for comment in event.previous)
    parts = (
        f"Somebody asks you in a comment{about}.",
        f"What was said before:\n\n{comments}" if comments else "",
        f"What they ask:\n\n{event.comment}",
        event.context if not comments else "",
        "Answer it. Your answer is posted in the thread. Change no files unless you are asked to.",
    )
    return "\n\n".join(part[:LONGEST_CONTEXT] for part in parts if part)
