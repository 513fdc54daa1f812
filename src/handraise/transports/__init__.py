"""Bytes and frames: processes, JSON-RPC, event streams, TLS, files. Nothing here knows what an ask is."""
