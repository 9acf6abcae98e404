"""The model that comes with hearth: a Modelfile, its weights, and in `training` how they are made."""
