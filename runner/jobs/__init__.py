"""One-shot child processes of the daemon: quantize, imatrix, convert, merge, perplexity."""
