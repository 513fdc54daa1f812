"""The routes of our own HTTP API, one file a resource. Other people's APIs are in `server/compat`."""
