"""`watchline bench`: the figures of this machine, beside the limits that its parts set.

files        a clip, as fast as the machine allows
streams      the most cameras that are served within the budget
concurrency  the gains of batching, overlapping and the warm-up
"""
