"""The fast mixer: a block, or a layer x + block(norm(x)), as one function with a derivative written by hand.

`plan` cuts a call into tiles, `mixer` runs them, `tile` is one of them, and each of its stages stands beside its own
backward: `norm`, `conv`, `scan` and `gate`. A stage returns, beside its result, a tape of what its backward needs,
where it is kept. `step` is the same for a single time step. `mamba2.model.choice` says when they are used.
"""
