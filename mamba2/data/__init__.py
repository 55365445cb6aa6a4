"""Bytes to windows: DBN files, bars, features, windows; numpy only."""
