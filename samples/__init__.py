"""The shipped clips, their expected labels, and the script that makes them."""

from pathlib import Path

FOLDER = Path(__file__).parent
