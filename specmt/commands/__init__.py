"""The commands, each a function that `cli` imports when it is asked for: parse, call, print."""
