"""What runs the networks. `base` says what an engine does; nothing on the way of a line above it sees a framework."""
