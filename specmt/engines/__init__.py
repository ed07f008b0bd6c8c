"""What runs the networks. `base` says what an engine does; nothing above this package sees a framework."""
