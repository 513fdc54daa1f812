"""The question tool for agents that speak MCP: `tools` asks the desk, `translate` knows the words, `server` the
official package, `stdio` and `http` the wires, `clients` the files in which agents are told of it."""
