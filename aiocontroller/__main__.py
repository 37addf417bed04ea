"""``python -m aiocontroller`` is the ``aiocontroller`` program."""

from aiocontroller.cli import main

if __name__ == "__main__":
    main()
