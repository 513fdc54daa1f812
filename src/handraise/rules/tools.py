"""What each agent calls its tools, in words that are common to all."""

from __future__ import annotations

from collections.abc import Mapping

from handraise.asks import Permission

__all__ = ["COMMON", "PLAN", "is_foreign_shell", "names_of"]

SHELL, EDIT, READ, FETCH, MCP, PLAN = "shell", "edit", "read", "fetch", "mcp", "plan"
_NAMES = {
    SHELL: "shell bash exec_command shell_command run_shell_command execute local_shell run_command",
    EDIT: """
        edit write multiedit notebookedit apply_patch patch edit_file write_file create_file replace delete move
        str_replace_based_edit_tool
    """,
    READ: """
        read read_file read_many_files view list ls list_directory glob grep search search_file_content finder
        codebase_search_agent
    """,
    FETCH: "fetch webfetch web_fetch read_web_page websearch web_search google_web_search",
    PLAN: "plan exitplanmode exit_plan_mode",
}
_OTHER_SHELLS = frozenset({"powershell", "pwsh", "cmd"})  # whose language the rules for commands do not read
COMMON: Mapping[str, str] = {own: common for common, owns in _NAMES.items() for own in owns.split()}


def names_of(permission: Permission) -> tuple[str, ...]:
    """Under which names a rule may know this tool: the common one, and the agent's own."""
    own = permission.tool
    common = _common(permission)
    if common is None:
        return (own,)
    # A tool that calls itself by a common name and does something else is not what the rules for that name mean.
    return (common,) if COMMON.get(own.lower(), common) != common else tuple(dict.fromkeys((common, own)))


def _common(permission: Permission) -> str | None:
    if permission.kind == "plan":
        return PLAN
    own = permission.tool.lower()
    if is_foreign_shell(permission):
        return None
    if permission.command is not None:
        return SHELL
    if own.startswith(("mcp__", "mcp_")):
        return MCP
    kind = (permission.extra or {}).get("kind")
    return COMMON.get(own) or (COMMON.get(kind) if isinstance(kind, str) else None)


def is_foreign_shell(permission: Permission) -> bool:
    return permission.tool.lower() in _OTHER_SHELLS
