"""The question tool for agents that speak MCP: `tools` asks the desk, `translate` knows the words, `stdio` the wire."""
