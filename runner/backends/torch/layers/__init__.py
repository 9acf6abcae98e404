"""The layers that models are built of: linear maps, experts, norms, encoders and decoders."""
