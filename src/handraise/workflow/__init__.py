"""Workflows: agents, people, commands and functions, one step after the other, written down so that a run survives."""

from handraise.workflow.steps import Workflow, agent, checkpoint, function, parallel, shell

__all__ = ["Workflow", "agent", "checkpoint", "function", "parallel", "shell"]
