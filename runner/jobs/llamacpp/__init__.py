"""The parts of the jobs that call llama.cpp."""
