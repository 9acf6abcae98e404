"""Images for llama.cpp: projector files, their embeddings, and positions in a sequence."""
