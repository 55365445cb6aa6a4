"""One bar in, one forecast out: replay of files, databento.Live."""
