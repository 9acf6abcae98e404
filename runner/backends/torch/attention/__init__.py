"""The attention of a step over the paged cache: block pool, index tensors, a path for CPUs."""
