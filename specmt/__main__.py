"""`specmt` and `python -m specmt`."""

import gc
from typing import NoReturn


def main() -> NoReturn:
    """Import the command line and run it."""
    # What imports make stays: to look through it for garbage every 700 objects takes longer than a short translation.
    gc.set_threshold(100_000)
    try:
        from specmt.cli import main as run
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    run()


if __name__ == "__main__":
    main()
