// LoRA adapters (Hu et al., 2021) of columns that are computed together, each with its own:
// y[c] += sum over the adapters of c of scale · B (A x[c]), as SGMV of Punica (Chen et al., 2023).
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

constexpr int64_t HEARTH_LORA_TILE = 16;  // outputs that lie together in b

// What an adapter adds to a matrix of the model. It stays the caller's. narrow: a is [rank][in] in
// Q8_0, in a multiple of 32, and b in bytes, those of an output with a scale; else both are in
// float16.
struct hearth_lora_pair {
    int64_t in, out, rank;
    int64_t narrow;
    const void *a;
    const void *b;         // [out / HEARTH_LORA_TILE, rounded up][rank][HEARTH_LORA_TILE]
    const float *b_scale;  // [out, rounded up to a multiple of HEARTH_LORA_TILE]
};

// A column that an adapter acts on. Those with the same adapter follow each other.
struct hearth_lora_use {
    int64_t column;
    const hearth_lora_pair *pair;
    float scale;
};

// hidden: for each use `stride` values, of which the first `rank` are set to scale · A x.
void hearth_lora_shrink(const hearth_lora_use *uses, int64_t count, const float *const *x,
                        int64_t stride, float *hidden, int threads);

// y[c] = base[c] + what the adapters of c add, for `columns` columns of `out` values. base[c] may
// be y[c].
void hearth_lora_expand(const hearth_lora_use *uses, int64_t count, const float *hidden,
                        int64_t stride, int64_t columns, int64_t out, const float *const *base,
                        float *const *y, int threads);
}
