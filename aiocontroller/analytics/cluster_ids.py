"""Assigns each file to a cluster, so that the logs of two clusters in one folder are not mixed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aiocontroller.analytics.source_files import DEFAULT_CLUSTER, Looked, SourceFile
from aiocontroller.core.errors import BadInputError


def with_clusters(files: Sequence[Looked]) -> list[SourceFile]:
    """Return the files, with the cluster's id as its name if the files name more than one cluster.

    A file that names no cluster belongs to the same cluster as the other files in its folder, or in the nearest folder
    above it whose files name one.  The manifest takes precedence.  Raises BadInputError, which names the file, if the
    cluster is ambiguous.
    """
    ids = sorted({each for looked in files for each in looked.cluster_ids if _without_cluster(looked)})
    if len(ids) < 2:
        return [looked.file for looked in files]
    below: dict[str, set[str]] = {}
    for looked in files:
        if _without_cluster(looked):
            for folder in folders(looked.file.path):
                below.setdefault(folder, set()).update(looked.cluster_ids)
    return [_with_cluster(looked, below, ids) if _without_cluster(looked) else looked.file for looked in files]


def _without_cluster(looked: Looked) -> bool:
    return looked.file.cluster == DEFAULT_CLUSTER


def folders(path: str) -> list[str]:
    """Return the folders above a path, the nearest first."""
    parts = path.split("/")[:-1]
    return ["/".join(parts[:n]) for n in range(len(parts), 0, -1)]


def _with_cluster(looked: Looked, below: dict[str, set[str]], ids: Sequence[str]) -> SourceFile:
    found = set(looked.cluster_ids)
    if not found:
        found = next((below[folder] for folder in folders(looked.file.path) if below[folder]), set())
    if len(found) == 1:
        (cluster,) = found
        return replace(looked.file, cluster=cluster, remarks=(*looked.file.remarks, f"of cluster {cluster}"))
    raise BadInputError(
        f"the logs are from {len(ids)} clusters ({', '.join(ids)}), and {looked.file.name} may be from "
        f'{"any" if len(ids) > 2 else "either"}; name it in a manifest: [[files]] glob = "{looked.file.name}", '
        'cluster = "…"'
    )
