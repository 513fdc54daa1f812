"""One table a file: its rows and its statements together. Asks and events lie in `stores`."""
