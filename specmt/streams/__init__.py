"""Lines in and out: streams and files, in their order, and in the forms that are asked for."""
