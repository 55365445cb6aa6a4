"""Whether the tests see a fault: small faults are put into the code, one after the other: `python -m mutation`."""
