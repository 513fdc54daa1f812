"""Other people's routes onto our broker: translate, call it, nothing else. One file a surface, a `plugin` each."""
