"""One model over several processes (ranks): its linear maps split between them, its layers divided
among stages, or both. The first rank has the engine; the others compute what it tells them.

Splits: Megatron-LM (Shoeybi et al., 2019). Collectives: torch.distributed, gloo on CPUs and NCCL
on GPUs.
"""
