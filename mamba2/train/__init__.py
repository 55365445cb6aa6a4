"""Learning: the loop, the loss, the optimizer, checkpoints."""
