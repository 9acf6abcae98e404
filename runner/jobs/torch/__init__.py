"""Work of jobs that PyTorch computes."""
