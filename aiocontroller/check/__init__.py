"""Finds what is broken in a cluster, or one failure away from it, whichever controller runs it; writes nothing."""
