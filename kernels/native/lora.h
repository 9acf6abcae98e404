// LoRA adapters (Hu et al., 2021) of columns that are computed together, each with its own:
// y[c] += sum over the adapters of c of scale · B (A x[c]), as SGMV of Punica (Chen et al., 2023);
// with DoRA (Liu et al., 2024) scale · gain ⊙ base[c] too, base the product with the matrix.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

constexpr int64_t HEARTH_LORA_TILE = 16;  // outputs that lie together in b

enum hearth_lora_format { HEARTH_LORA_F16 = 0, HEARTH_LORA_BYTES = 1, HEARTH_LORA_F32 = 2 };

// What an adapter adds to a matrix of the model. It stays the caller's. HEARTH_LORA_BYTES: a is
// [rank][in] in Q8_0, in a multiple of 32, and b in bytes, those of an output with a scale.
struct hearth_lora_pair {
    int64_t in, out, rank;
    int64_t format;
    const void *a;
    const void *b;         // [out / HEARTH_LORA_TILE, rounded up][rank][HEARTH_LORA_TILE]
    const float *b_scale;  // [out, rounded up to a multiple of HEARTH_LORA_TILE]
    const float *gain;     // as long, or null
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

// What adapters add to the outputs `offset` on of a map, by their numbers: those of rank 0 nothing.
struct hearth_lora_part {
    int64_t offset, out, count;
    const hearth_lora_pair *pairs;
};

// An adapter acts on a column, -1: on all. Those of one adapter follow each other.
struct hearth_lora_acting {
    int64_t column;
    int32_t adapter;
    float scale;
};

// The adapters that act in a step.
struct hearth_lora_step {
    const hearth_lora_acting *acting;
    int64_t count;
};

// Adds to y [n, outputs of the map], its product, what the adapters of each column add for
// x [n, in]; both in float32, their rows so many numbers apart. False where memory is short.
bool hearth_lora_add(const hearth_lora_part *parts, int64_t part_count,
                     const hearth_lora_step *step, const float *x, int64_t x_stride, int64_t n,
                     float *y, int64_t y_stride, int threads);
}

namespace hearth {

// The same, which throws std::bad_alloc.
void add_lora(const hearth_lora_part *parts, int64_t part_count, const hearth_lora_step &step,
              const float *x, int64_t x_stride, int64_t n, float *y, int64_t y_stride, int threads);

}  // namespace hearth
