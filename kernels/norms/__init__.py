"""RMSNorm, its form with a residual, and LayerNorm."""
