"""How fast, how exact, how large: `python -m benchmarks`; what has been learned: `benchmarks/learning.py`."""
