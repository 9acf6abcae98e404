"""From a model file to a model on a device: formats, names, quantization, the memory it takes."""
