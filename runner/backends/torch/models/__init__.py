"""One file for each architecture, named as config.json's model_type."""
