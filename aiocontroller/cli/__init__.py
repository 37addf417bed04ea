"""The command line: finds the cluster, asks it or starts it, prints for people or (``--json``) for programs."""
