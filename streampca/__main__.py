"""The command line, as ``python -m streampca``."""

from streampca.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
