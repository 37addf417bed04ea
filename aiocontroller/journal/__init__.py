"""The append-only record of what was seen, decided, written, sent and acknowledged."""
