"""The bundled model: a Modelfile, its weights, and in `training` how they are made."""
