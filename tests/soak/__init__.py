"""The soak: four real cameras to which one thing after the other happens, while the command watches them.

    python -m tests.soak --minutes 30

It ends with a table of the events and a verdict for each promise, and with 1 if one of them is broken.
"""
