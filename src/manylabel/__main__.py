"""Run the command line with ``python -m manylabel``."""

from manylabel.cli.main import main

if __name__ == "__main__":
    main()
