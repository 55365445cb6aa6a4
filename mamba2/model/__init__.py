"""Parameters around the maths: a block, a stack of blocks, a forecaster."""
