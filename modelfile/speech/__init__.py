"""Speech models: the checks of their files, and the one GGUF file that contains them."""
