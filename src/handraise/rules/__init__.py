"""Rules that decide permissions, the same for every agent: first match wins, and where none speaks a person is asked.

What an agent wants to do is judged in its smallest parts, each command of a line and each file of a patch, and the
strictest decision counts. How a part is compared with a rule is in `match.py`. Rules never answer questions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from handraise.asks import Ask
from handraise.rules.globs import covers
from handraise.rules.match import Call, TooMuch, Unit
from handraise.rules.options import named_words, not_covered, warnings_about
from handraise.rules.rule import WIDE, Action, Condition, Context, Rule
from handraise.rules.tools import PLAN

__all__ = ["WIDE", "Action", "Condition", "Context", "Decision", "Rule", "decide", "never_match", "warnings_of"]

STRICTNESS: Mapping[Action | None, int] = {"allow": 0, "delegate": 1, None: 2, "ask": 2, "reject": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What the rules say. `action` is None where none of them speaks."""

    action: Action | None = None
    rule: Rule | None = None
    why: tuple[str, ...] = ()
    delegates: tuple[Rule, ...] = ()  # of `delegate`: each rule whose program has to allow it


def decide(ask: Ask, rules: Sequence[Rule], *, bans: Sequence[Sequence[Rule]] = ()) -> Decision:
    """What the rules say to a permission.

    `bans` are lists that may only make it stricter: of projects that nobody trusts, and of the folders above. Each is a
    list of its own, and no rule of another takes anything from it.
    """
    permission = ask.permission
    if permission is None or not (rules or any(bans)):
        return Decision()
    call = Call(ask, permission)
    every = [call.concerning(each) for each in (rules, *bans)]
    call.allowing = every[0]
    try:
        found = [(unit, _decided(call, unit, every)) for unit in call.units]
    except TooMuch:
        return Decision(why=("too much would have to be compared with the rules, so a person is asked",))
    # What does nothing needs no rule, as long as something else is there.
    found = [each for each in found if each[1] or not (each[0].part and each[0].part.is_idle)] or found
    strictest = _strictest([rule for _, rule in found])
    why = tuple(dict.fromkeys(_why(unit, rule, held_back=call.held_back.get(unit)) for unit, rule in found))
    if strictest is None:
        if call.is_unfollowed:
            why = (*why, "nobody followed the links of its paths, so a person is asked")
        spoke = call.is_unfollowed or bool(call.held_back) or any(rule is not None for _, rule in found)
        return Decision(why=why if spoke else ())
    if strictest.action in ("allow", "delegate"):
        problem = _not_to_allow(call, [rule for _, rule in found], every)
        if problem is not None:
            return Decision(why=(*why, problem))
    delegates: dict[tuple[str, ...], Rule] = {}
    for _, rule in found:
        if strictest.action == "delegate" and rule is not None and rule.to:
            delegates.setdefault((rule.source.rpartition(":")[0], *rule.to), rule)
    return Decision(action=strictest.action, rule=strictest, why=why, delegates=tuple(delegates.values()))


def _decided(call: Call, unit: Unit, every: Sequence[Sequence[Rule]]) -> Rule | None:
    first, *bans = (call.first(rules, unit) for rules in every)
    return _strictest([first, *(rule for rule in bans if rule is not None)])


def _strictest(rules: Sequence[Rule | None]) -> Rule | None:
    """The first of the strictest. Where no rule speaks, a person is asked, and a rule that asks says so."""
    found = max(rules, key=lambda rule: STRICTNESS[rule.action if rule else None])
    if found is None:
        return next((rule for rule in rules if rule is not None and rule.action == "ask"), None)
    return found


def _not_to_allow(call: Call, rules: Sequence[Rule | None], every: Sequence[Sequence[Rule]]) -> str | None:
    """Why a person is asked where the rules would allow it."""
    permission = call.permission
    if "once" not in permission.replies:
        return "the agent offers no way to allow it once"
    if permission.kind == "plan" and call.doubt is not None:
        return f"{call.doubt}, so a person is asked"
    if call.is_hidden and not all(_names_tool(rule) for rule in rules):
        return "the agent does not show the command, so a person is asked"
    if call.is_cut is not None:
        return f"{call.is_cut}, so a person is asked"
    if call.doubt is not None and not all(_speaks_of_all(rule) for rule in rules):
        return f"{call.doubt}, so a person is asked"
    forbidding = (rule for each in every for rule in each if rule.action in WIDE)
    if (call.is_blind or call.besides) and any("command" in rule.matches for rule in forbidding):
        return f"{call.doubt or 'its arguments may hold a command'}, and what another rule speaks of may be in it"
    if (possible := next(iter(call.may_be.values()), None)) is not None:
        return f"it may be what {possible.source or 'a rule'} ({possible}) speaks of"
    return None


def _speaks_of_all(rule: Rule | None) -> bool:
    """Whether it was written for whatever is run."""
    if rule is None or rule.matches.keys() & {"command_line", "path", "url"}:
        return False
    return "*" in rule.matches.get("command", ("*",))


def _names_tool(rule: Rule | None) -> bool:
    """Whether it was written for exactly this tool, whatever it does."""
    return rule is not None and not rule.matches and not rule.tool.startswith("re:") and not set("*?[") & set(rule.tool)


def _why(unit: Unit, rule: Rule | None, *, held_back: str | None) -> str:
    about = unit.shown if len(unit.shown) <= 200 else f"{unit.shown[:200]}…"
    return f"{about!r}: " + (f"{rule.source or 'a rule'} ({rule})" if rule is not None else held_back or "no rule")


def warnings_of(rule: Rule) -> tuple[str, ...]:
    """What a rule covers that its author may not see."""
    if rule.action != "allow":
        return ()
    patterns = [each for each in rule.matches.get("command", ()) if isinstance(each, str)]
    return tuple(dict.fromkeys(f"{each!r}: {warning}" for each in patterns for warning in warnings_about(each)))


def never_match(rules: Sequence[Rule]) -> Iterator[tuple[Rule, str]]:
    """Rules that cannot decide anything, and why."""
    for number, rule in enumerate(rules):
        for name, condition in rule.matches.items():
            if not condition:
                yield rule, f"{name} is an empty list, which nothing is in"
                break
        else:
            earlier = next((other for other in rules[:number] if _covers(other, rule)), None)
            if earlier is not None:
                yield rule, f"{earlier.source or 'a rule before it'} ({earlier}) decides all of it before"


def _covers(wide: Rule, narrow: Rule) -> bool:
    """Whether everything that `narrow` speaks about has been decided by `wide`."""
    if narrow.action in WIDE and wide.action not in WIDE and wide.matches:
        return False  # what forbids finds more than what allows, with the same words
    if wide.context is not None and wide.context != narrow.context:
        return False
    if wide.session is not None and wide.session != narrow.session:
        return False
    if wide.agent is not None and (narrow.agent is None or not covers(wide.agent, narrow.agent)):
        return False
    if not covers(wide.tool, narrow.tool) or (wide.tool == "*" and narrow.tool == PLAN):
        return False
    return all(
        name in narrow.matches and all(_covered(condition, each, name, wide, narrow) for each in narrow.matches[name])
        for name, condition in wide.matches.items()
    )


def _covered(condition: Condition, text: str | bool, name: str, wide: Rule, narrow: Rule) -> bool:
    if isinstance(text, bool):
        return any(each is text for each in condition)
    found = [each for each in condition if isinstance(each, str) and covers(each, text)]
    if name != "command" or wide.action != "allow" or not found:
        return bool(found)
    if narrow.action != "allow" and "*" not in found:
        return False  # what allows does not cover every option
    return any(not_covered(each, named_words(text)) is None for each in found)
