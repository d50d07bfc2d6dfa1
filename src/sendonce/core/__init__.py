"""The protocol: no files, no network, no clock, no randomness. All of that is handed in."""
