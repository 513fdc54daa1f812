"""A feature, from a goal to a check of what was built. Copy it to .handraise/workflows/ of your project, then:

handraise run feature --input goal="a dark mode"
"""

from pydantic import BaseModel

from handraise.workflow import Workflow, agent

AGENT = "claude"  # or opencode, codex, …


class Goal(BaseModel):
    goal: str


class Plan(BaseModel):
    steps: list[str]


class Verdict(BaseModel):
    passed: bool
    problems: list[str] = []


feature = Workflow(
    "feature",
    # Let the agent decide: where it asks, its first suggestion counts, and it goes on.
    agent(
        "explore",
        "Look around in this project. What matters for this goal: {input.goal}? Change nothing.",
        agent=AGENT,
        question_policy="accept-first",
    ),
    # You are asked. After 30 seconds without an answer its first suggestion counts.
    agent(
        "plan",
        "Plan this: {input.goal}\n\nWhat was found: {explore}",
        agent=AGENT,
        output=Plan,
        question_policy="forward",
        question_timeout=30,
    ),
    # An hour without a sign of life ends the step, unless it waits for you.
    agent("build", "Do this, one after the other:\n{plan}", agent=AGENT, question_policy="forward", stale_after=3600),
    # Nobody is asked while it checks.
    agent(
        "verify",
        "Check that this was done, and that the tests pass:\n{plan}",
        agent=AGENT,
        output=Verdict,
        question_policy="reject",
        retries=1,
    ),
    input=Goal,
    description="Explore, plan, build and verify",
)
