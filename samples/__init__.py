"""The shipped clips, what is to be seen in them, and the script that made them."""

from pathlib import Path

FOLDER = Path(__file__).parent
