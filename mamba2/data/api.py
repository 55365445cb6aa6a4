"""What both of Databento's clients need: the key, and the kind of symbols."""

import os
import re

from mamba2.errors import ConfigError

KEY = "DATABENTO_API_KEY"


def api_key() -> str:
    """The key, from the environment only, so that it stands in no file, history or list of processes.

    Raises:
        ConfigError: there is none, or it cannot be one.
    """
    key = os.environ.get(KEY, "").strip()
    if not key:
        raise ConfigError(f"{KEY}: the environment must hold your key; it is not set. Export it in this shell.")
    if not (key.startswith("db-") and len(key) == 32):
        raise ConfigError(f"{KEY}: must be 32 characters that begin with db-; got {len(key)}. Copy it again.")
    return key


def infer_stype(symbols: str) -> str:
    """The kind of a comma list of symbols, by their spelling.

    >>> [infer_stype(symbols) for symbols in ("6E.FUT", "ES.v.0,NQ.v.0", "6EH4", "4916")]
    ['parent', 'continuous', 'raw_symbol', 'instrument_id']

    Raises:
        ConfigError: a symbol is empty, or they are of several kinds.
    """
    kinds = {symbol: _stype(symbol.strip()) for symbol in symbols.split(",")}
    if len(set(kinds.values())) > 1:
        found = ", ".join(f"{symbol} is {kind}" for symbol, kind in kinds.items())
        raise ConfigError(f"symbols: all must be of one kind; {found}. Ask for each kind by itself.")
    return next(iter(kinds.values()))


def _stype(symbol: str) -> str:
    if not symbol or symbol.upper() == "ALL_SYMBOLS":
        raise ConfigError(f"symbols: each must be named; got {symbol!r}, which may mean all there are. Name some.")
    if re.fullmatch(r".+\.(FUT|OPT|SPOT)", symbol):
        return "parent"
    if re.fullmatch(r".+\.[vcn]\.\d+", symbol):
        return "continuous"
    return "instrument_id" if symbol.isdigit() else "raw_symbol"
