"""``python -m paceline``: the program, where its folder is not on the path."""

from paceline.cli.main import main

if __name__ == "__main__":
    main()
