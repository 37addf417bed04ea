"""Looks at a cluster that anybody's controller runs, and writes nothing: what is broken, and what is about to be."""
