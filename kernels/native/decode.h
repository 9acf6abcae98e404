// The layers of a decoder like Llama's for the few tokens of one step, in one call.
#pragma once
#include <cstdint>

#include "linear.h"
#include "lora.h"

extern "C" {

// Matrices of the same k inputs, whose `rows` outputs stand one after the other; bias [rows] or
// null; what adapters may add, before the bias.
struct hearth_projection {
    const struct hearth_matrix *matrices;
    int64_t count, rows, k;
    const float *bias;
    const struct hearth_lora_part *parts;
    int64_t part_count;
};

// qkv: queries, keys and values side by side; gate_up: both side by side. Norms [hidden], q_norm
// and k_norm [head_dim] or null. cos, sin [max_positions, rope_dim / 2]. k_cache, v_cache [blocks,
// block_size, heads_kv, head_dim]. window: how many of the last tokens are seen, 0: all.
struct hearth_layer {
    struct hearth_projection qkv, output, gate_up, down;
    const float *attention_norm, *feed_forward_norm, *q_norm, *k_norm;
    const float *cos, *sin;
    char *k_cache, *v_cache;
    int64_t window;
    float scale;
};

// norm [hidden] comes last. head_dim: a multiple of 16. cache_type: F32, F16 or BF16. allow_bf16:
// of all projections, see linear.h. epsilon: of all norms.
struct hearth_decoder {
    const struct hearth_layer *layers;
    int64_t count;
    struct hearth_matrix embedding;
    const float *norm;
    int64_t hidden, heads, heads_kv, head_dim, rope_dim, feed_forward;
    int64_t max_positions, blocks, block_size;
    int32_t cache_type, allow_bf16;
    float epsilon;
};

// n tokens with their positions and cells (block * block_size + offset) of the cache, those of
// sequence s from starts[s] to starts[s + 1]; block_tables [sequences, table_blocks], table_stride
// apart. out [n, hidden]: F32 or BF16.
struct hearth_step {
    int64_t n, sequences, table_blocks, table_stride;
    const int64_t *tokens, *positions, *cells;
    const int32_t *block_tables, *starts;
    void *out;
    int32_t out_type, threads;
    struct hearth_lora_step adapters;
};

enum hearth_status {
    HEARTH_OK = 0,
    HEARTH_OUT_OF_MEMORY = 1,
    HEARTH_OUT_OF_RANGE =
        2,  // a token, position, cell or block is not the decoder's: nothing is done
};

int hearth_decode(const struct hearth_decoder *decoder, const struct hearth_step *step);
}
