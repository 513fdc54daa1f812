"""Reviewers that look at a change at the same time, and a person who decides. Copy it to .handraise/workflows/, then:

handraise run review --input base=main
"""

from pydantic import BaseModel

from handraise.workflow import Workflow, agent, checkpoint, parallel, shell
from handraise.workflow.steps import ShellResult


class Change(BaseModel):
    base: str = "main"


class Review(BaseModel):
    findings: list[str]


class Decision(BaseModel):
    approved: bool
    note: str = ""


LOOK = "Review this change. Change nothing, and name what has to be fixed, or nothing.\n\n{diff.output}"


def findings(security: Review, tests: Review, wording: Review) -> list[str]:
    """A plain function is a step too. It takes the outputs of the steps that its parameters are named like."""
    reviews = {"security": security, "tests": tests, "wording": wording}
    return [f"{who}: {finding}" for who, review in reviews.items() for finding in review.findings]


def outcome(diff: ShellResult, findings: list[str], decide: Decision) -> str:
    lines = len(diff.output.splitlines())
    said = "approved" if decide.approved else "sent back"
    return f"{lines} lines, {len(findings)} findings: {said}" + (f", {decide.note}" if decide.note else "")


review = Workflow(
    "review",
    shell("diff", "git diff --no-color {input.base}", if_cut="rerun"),
    parallel(
        agent("security", "You know about security. " + LOOK, agent="claude", output=Review, timeout=1800),
        agent("tests", "You know about tests. " + LOOK, agent="codex", output=Review, timeout=1800),
        agent("wording", "You know how code reads. " + LOOK, agent="opencode", output=Review, timeout=1800),
    ),
    findings,
    checkpoint("decide", input="Merge this?\n\n{findings}", output=Decision),
    outcome,
    input=Change,
    description="Three reviewers, and you",
)
