"""Speech models: what their files must be, and the one GGUF file that they become."""
