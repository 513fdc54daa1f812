"""What a rule decided, as the answer that the agent gets."""

from __future__ import annotations

from handraise.asks import Answer
from handraise.rules import Decision

__all__ = ["ruled"]


def ruled(decision: Decision) -> Answer | None:
    """None where a person is to be asked."""
    match decision.action:
        case "allow":
            return Answer(reply="once", by="policy:rule", via="policy", why=decision.why)
        case "reject":
            message = decision.rule.message if decision.rule is not None else None
            return Answer(
                reply="reject",
                rejected=True,
                reason=message or "a rule does not allow this",
                by="policy:rule",
                via="policy",
                why=decision.why,
            )
        case _:
            return None
