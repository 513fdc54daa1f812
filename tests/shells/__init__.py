"""What the rules say of a line, held against the shells that people have."""
