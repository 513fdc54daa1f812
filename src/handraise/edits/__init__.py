"""A person's own files, changed in place and restored exactly. Nothing here decides what is written into them."""
