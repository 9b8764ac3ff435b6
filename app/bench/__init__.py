"""`watchline bench`: what this machine reaches, beside what its parts would allow.

files        a clip worked off as fast as it goes
streams      how many cameras are served within the budget
concurrency  what batching, overlapping and warming up pay here
"""
