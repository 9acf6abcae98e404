// The layers of a decoder like Llama's for the few tokens of one step, in one call.
#pragma once
#include <cstdint>

#include "linear.h"

extern "C" {

// Maps of the same k inputs, whose `rows` outputs stand one after the other; bias [rows] or null.
struct hearth_map {
    const struct hearth_matrix *matrices;
    int64_t count, rows, k;
    const float *bias;
};

// Norms [hidden], those of heads [head] or null. cosines and sines [positions, turned / 2]. window: how
// many of the last tokens are seen, 0: all. keys, values: [blocks, block_size, heads_kv, head].
struct hearth_layer {
    struct hearth_map projections, output, gate_up, down;
    const float *input_norm, *middle_norm, *query_norm, *key_norm;
    const float *cosines, *sines;
    char *keys, *values;
    int64_t window;
    float scale;
};

// norm [hidden] comes last. cache_type: F32, F16 or BF16. head is a multiple of 16. positions: that
// cosines and sines have; blocks: of the cache.
struct hearth_decoder {
    const struct hearth_layer *layers;
    int64_t count;
    struct hearth_matrix embedding;
    const float *norm;
    int64_t hidden, heads, heads_kv, head, turned, feed_forward, positions, blocks, block_size;
    int32_t cache_type, narrow;
    float epsilon;
};

// n tokens with their positions and cells of the cache, those of each sequence from starts[s] to
// starts[s + 1]; tables [sequences, table_blocks], table_stride apart. out [n, hidden]: F32 or BF16.
struct hearth_step {
    int64_t n, sequences, table_blocks, table_stride;
    const int64_t *tokens, *positions, *cells;
    const int32_t *tables, *starts;
    void *out;
    int32_t out_type, threads;
};

// 0; 1 where memory is short; 2, with nothing computed, for a step whose numbers lie outside of the
// decoder's.
int hearth_decode(const struct hearth_decoder *decoder, const struct hearth_step *step);
}
