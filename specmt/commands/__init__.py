"""Commands about models and installations, each a function that `cli` registers: parse, call, print."""
