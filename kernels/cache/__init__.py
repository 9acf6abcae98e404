"""The paged cache as kernels see it: reading it back."""
