"""The store of models and the ways in and out of it. Imports nobody of ours."""
