"""What only a GPU needs: CUDA graphs of decode steps, and steps launched ahead of the host.

Tested with a recorder that repeats on the CPU; never run on a GPU.
"""
