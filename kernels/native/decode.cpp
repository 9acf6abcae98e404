// See decode.h. Between projections everything is in float32; only keys and values are rounded.
#include "decode.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <vector>

#include "dot.h"

namespace hearth {
namespace {

constexpr int MAX_GROUP = 4;               // query heads of one key head that are computed together
constexpr int64_t MIN_PARALLEL = 1 << 15;  // numbers, from which threads share a loop

// Memory for `count` floats that grows and never shrinks.
float *reserve(std::vector<float> &memory, int64_t count) {
    if ((int64_t)memory.size() < count) memory.resize((size_t)count);
    return memory.data();
}

// e to the x: Cephes' expf, in operations that compilers vectorize.
inline float exp_f32(float x) {
    x = x < -87.0f ? -87.0f : x;
    x = x > 88.0f ? 88.0f : x;
    const float shifted = x * 1.44269504f + 12582912.0f, n = shifted - 12582912.0f;
    const float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    uint32_t bits, power;
    std::memcpy(&bits, &p, 4);
    std::memcpy(&power, &shifted, 4);
    bits += power << 23;
    std::memcpy(&p, &bits, 4);
    return x != x ? x : p;
}

// Writes `count` floats as F32, F16 or BF16.
void store_as(int type, char *to, const float *values, int64_t count) {
    if (type == TYPE_F32)
        std::memcpy(to, values, (size_t)count * 4);
    else if (type == TYPE_BF16)
        store_bf16((uint16_t *)to, values, count);
    else
        for (int64_t i = 0; i < count; i++) ((uint16_t *)to)[i] = f32_to_f16(values[i]);
}

int64_t bytes_of(int type) { return type == TYPE_F32 ? 4 : 2; }

// out may be x.
void rms_norm(const float *x, const float *weight, int64_t width, float epsilon, float *out) {
    vec_f32 squares = zero_f32();
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES) {
        const vec_f32 v = load(x + i);
        squares = fma(v, v, squares);
    }
    float sum = reduce_add(squares);
    for (; i < width; i++) sum += x[i] * x[i];
    const float inverse = 1.0f / std::sqrt(sum / (float)width + epsilon);
    for (i = 0; i < width; i++) out[i] = x[i] * inverse * weight[i];
}

void add(float *x, const float *y, int64_t count) {
    for (int64_t i = 0; i < count; i++) x[i] += y[i];
}

// f(row) for n rows of `width` numbers.
template <class F>
void parallel_rows(int64_t n, int64_t width, int threads, F f) {
#pragma omp parallel for schedule(static) \
    num_threads(threads) if (threads > 1 && n * width > MIN_PARALLEL)
    for (int64_t row = 0; row < n; row++) f(row);
}

// y [rows of the step, rows] = x [rows of the step, k] by the projection. Throws std::bad_alloc.
void project(const hearth_projection &p, const float *x, const hearth_step &step, bool allow_bf16,
             float *y) {
    const int64_t n = step.n;
    const int threads = step.threads;
    const hearth_linear_args args{p.matrices, p.count, p.k,      n,        x,          p.k,
                                  y,          p.rows,  TYPE_F32, TYPE_F32, allow_bf16, threads};
    if (!hearth_linear(&args)) throw std::bad_alloc();
    if (step.adapters.count)
        add_lora(p.parts, p.part_count, step.adapters, x, p.k, n, y, p.rows, threads);
    if (p.bias)
        parallel_rows(n, p.rows, threads, [&](int64_t r) { add(y + r * p.rows, p.bias, p.rows); });
}

// Rotates dimension i of the first rope_dim with i + rope_dim / 2. cos, sin: [rope_dim / 2].
void rope(float *x, const float *cos, const float *sin, int64_t rope_dim) {
    const int64_t half = rope_dim / 2;
    for (int64_t i = 0; i < half; i++) {
        const float a = x[i], b = x[i + half];
        x[i] = a * cos[i] - b * sin[i];
        x[i + half] = b * cos[i] + a * sin[i];
    }
}

// Norms and rotates the queries and keys of one row of projections, and stores keys and values in
// the cache.
void rope_and_cache(const hearth_decoder &d, const hearth_layer &l, float *row, int64_t position,
                    int64_t cell) {
    const int64_t rotation = position * (d.rope_dim / 2);
    for (int64_t h = 0; h < d.heads + d.heads_kv; h++) {
        float *head = row + h * d.head_dim;
        const float *weight = h < d.heads ? l.q_norm : l.k_norm;
        if (weight) rms_norm(head, weight, d.head_dim, d.epsilon, head);
        rope(head, l.cos + rotation, l.sin + rotation, d.rope_dim);
    }
    const int64_t width = d.heads_kv * d.head_dim, offset = cell * width * bytes_of(d.cache_type);
    const float *keys = row + d.heads * d.head_dim;
    store_as(d.cache_type, l.k_cache + offset, keys, width);
    store_as(d.cache_type, l.v_cache + offset, keys + width, width);
}

// The keys and values of one head in the `count` cells that a token sees; cells are cell_bytes
// apart.
struct VisibleHead {
    const char *keys, *values;
    const int64_t *cells;
    int64_t count, cell_bytes, head_dim;
};

// scores [G][stride] of the queries [G, head_dim].
template <class Row, int G>
void compute_scores(const VisibleHead &v, const float *queries, float scale, float *scores,
                    int64_t stride) {
    float out[G][DOT_ROWS];
    for (int64_t c = 0; c < v.count; c += DOT_ROWS) {
        const char *rows[DOT_ROWS];
        for (int r = 0; r < DOT_ROWS; r++)
            rows[r] = v.keys + v.cells[std::min(c + r, v.count - 1)] * v.cell_bytes;
        dot_tile<F32Dot<Row>, G>(rows, 0, (const char *)queries, v.head_dim * 4, v.head_dim, out);
        for (int g = 0; g < G; g++)
            for (int r = 0; r < DOT_ROWS; r++) scores[g * stride + c + r] = out[g][r] * scale;
    }
}

// Turns scores into softmax weights times their sum; returns the sum's inverse.
float softmax(float *scores, int64_t count) {
    float max = scores[0], sum = 0;
    for (int64_t i = 1; i < count; i++) max = scores[i] > max ? scores[i] : max;
    for (int64_t i = 0; i < count; i++) scores[i] = exp_f32(scores[i] - max);
    float lanes[LANES] = {};
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int lane = 0; lane < LANES; lane++) lanes[lane] += scores[i + lane];
    for (; i < count; i++) sum += scores[i];
    for (int lane = 0; lane < LANES; lane++) sum += lanes[lane];
    return 1.0f / sum;
}

// out [G, head_dim] = inverse [G] x weights [G][stride] by the values, N registers of each head at
// a time.
template <class Row, int G, int N>
void sum_values(const VisibleHead &v, const float *weights, int64_t stride, const float *inverse,
                float *out) {
    for (int64_t d = 0; d < v.head_dim; d += N * LANES) {
        vec_f32 acc[G][N];
        for (auto &head : acc)
            for (auto &one : head) one = zero_f32();
        for (int64_t c = 0; c < v.count; c++) {
            const char *values = v.values + v.cells[c] * v.cell_bytes;
            for (int n = 0; n < N; n++) {
                const vec_f32 value = Row::lanes(values, d + n * LANES);
                for (int g = 0; g < G; g++)
                    acc[g][n] = fma(broadcast(weights[g * stride + c]), value, acc[g][n]);
            }
        }
        for (int g = 0; g < G; g++)
            for (int n = 0; n < N; n++)
                store(out + g * v.head_dim + d + n * LANES, mul(acc[g][n], broadcast(inverse[g])));
    }
}

// Attention of G query heads [G, head_dim] of one key head.
template <class Row, int G>
void attend(const VisibleHead &v, const float *queries, float scale, float *out) {
    static thread_local std::vector<float> memory;
    const int64_t stride = ceil_div(v.count, DOT_ROWS) * DOT_ROWS;
    float *scores = reserve(memory, G * stride), inverse[G];
    compute_scores<Row, G>(v, queries, scale, scores, stride);
    for (int g = 0; g < G; g++) inverse[g] = softmax(scores + g * stride, v.count);
    if (v.head_dim % (4 * LANES) == 0)
        sum_values<Row, G, 4>(v, scores, stride, inverse, out);
    else
        sum_values<Row, G, 1>(v, scores, stride, inverse, out);
}

template <class Row>
void attend(const VisibleHead &v, int64_t group, const float *queries, float scale, float *out) {
    for (int64_t h = 0; h < group; h += MAX_GROUP) {
        const float *q = queries + h * v.head_dim;
        float *to = out + h * v.head_dim;
        with_count<MAX_GROUP>(
            group - h, [&](auto heads) { attend<Row, decltype(heads)::value>(v, q, scale, to); });
    }
}

// Whether all that a step points at is there.
bool in_range(const hearth_decoder &d, const hearth_step &step) {
    for (int64_t r = 0; r < step.n; r++) {
        if (step.tokens[r] < 0 || step.tokens[r] >= d.embedding.rows) return false;
        if (step.positions[r] < 0 || step.positions[r] >= d.max_positions) return false;
        if (step.cells[r] < 0 || step.cells[r] >= d.blocks * d.block_size) return false;
    }
    if (step.starts[0] != 0 || step.starts[step.sequences] != step.n) return false;
    for (int64_t s = 0; s < step.sequences; s++) {
        const int32_t first = step.starts[s], end = step.starts[s + 1];
        if (end <= first || end > step.n) return false;
        for (int32_t r = first + 1; r < end; r++)
            if (step.positions[r] != step.positions[r - 1] + 1) return false;
        const int64_t blocks = step.positions[end - 1] / d.block_size + 1;
        if (blocks > step.table_blocks) return false;
        const int32_t *table = step.block_tables + s * step.table_stride;
        for (int64_t b = 0; b < blocks; b++)
            if (table[b] < 0 || table[b] >= d.blocks) return false;
    }
    return true;
}

// The cells of each sequence's tokens up to its last one in the step. Keeps its memory.
struct SequenceCells {
    std::vector<int64_t> cells, first;  // of all sequences; of the sequence of each row

    void find(const hearth_decoder &d, const hearth_step &step) {
        cells.clear(), first.clear();
        for (int64_t s = 0; s < step.sequences; s++) {
            const int32_t *table = step.block_tables + s * step.table_stride;
            const int64_t length = step.positions[step.starts[s + 1] - 1] + 1;
            first.insert(first.end(), (size_t)(step.starts[s + 1] - step.starts[s]),
                         (int64_t)cells.size());
            for (int64_t p = 0; p < length; p++)
                cells.push_back(table[p / d.block_size] * d.block_size + p % d.block_size);
        }
    }
};

// out [n, heads * head_dim] of the rows of projections, whose keys and values are in the cache.
void attend_all(const hearth_decoder &d, const hearth_layer &l, const hearth_step &step,
                const SequenceCells &cells, const float *qkv, float *out) {
    const int64_t group = d.heads / d.heads_kv, qkv_width = (d.heads + 2 * d.heads_kv) * d.head_dim;
    const int64_t number_bytes = bytes_of(d.cache_type), tasks = step.n * d.heads_kv;
    const bool parallel =
        step.threads > 1 && (int64_t)cells.cells.size() * d.heads * d.head_dim > MIN_PARALLEL;
#pragma omp parallel for schedule(dynamic, 1) num_threads(step.threads) if (parallel)
    for (int64_t task = 0; task < tasks; task++) {
        const int64_t row = task / d.heads_kv, head_kv = task % d.heads_kv;
        const int64_t length = step.positions[row] + 1;
        const int64_t first = l.window && l.window < length ? length - l.window : 0;
        const int64_t offset = head_kv * d.head_dim * number_bytes;
        const VisibleHead visible{l.k_cache + offset,
                                  l.v_cache + offset,
                                  cells.cells.data() + cells.first[row] + first,
                                  length - first,
                                  d.heads_kv * d.head_dim * number_bytes,
                                  d.head_dim};
        const float *queries = qkv + row * qkv_width + head_kv * group * d.head_dim;
        float *to = out + (row * d.heads + head_kv * group) * d.head_dim;
        with_float_row(d.cache_type, [&](auto reader) {
            attend<decltype(reader)>(visible, group, queries, l.scale, to);
        });
    }
}

// out [width] = silu(gate) * up, of gate and up side by side.
void silu_mul(const float *gate_up, int64_t width, float *out) {
    for (int64_t i = 0; i < width; i++)
        out[i] = gate_up[i] / (1.0f + exp_f32(-gate_up[i])) * gate_up[width + i];
}

void decode(const hearth_decoder &d, const hearth_step &step) {
    static thread_local std::vector<float> memory[4];
    static thread_local SequenceCells cells;
    const int threads = step.threads;
    const int64_t n = step.n, qkv_width = (d.heads + 2 * d.heads_kv) * d.head_dim;
    float *x = reserve(memory[0], n * d.hidden);
    float *normed = reserve(memory[1], n * std::max(d.hidden, d.feed_forward));
    float *wide = reserve(memory[2], n * std::max(qkv_width, 2 * d.feed_forward));
    // What attention and the feed-forward add to x
    float *branch = reserve(memory[3], n * std::max(d.hidden, d.heads * d.head_dim));
    cells.find(d, step);
    const hearth_matrix &embedding = d.embedding;
    for (int64_t r = 0; r < n; r++)
        row_to_f32(embedding.type, (const char *)embedding.data + step.tokens[r] * embedding.stride,
                   d.hidden, x + r * d.hidden);
    for (int64_t i = 0; i < d.count; i++) {
        const hearth_layer &l = d.layers[i];
        parallel_rows(n, d.hidden, threads, [&](int64_t r) {
            if (i) add(x + r * d.hidden, branch + r * d.hidden, d.hidden);
            rms_norm(x + r * d.hidden, l.attention_norm, d.hidden, d.epsilon,
                     normed + r * d.hidden);
        });
        project(l.qkv, normed, step, d.allow_bf16, wide);
        parallel_rows(n, qkv_width, threads, [&](int64_t r) {
            rope_and_cache(d, l, wide + r * qkv_width, step.positions[r], step.cells[r]);
        });
        attend_all(d, l, step, cells, wide, branch);
        project(l.output, branch, step, d.allow_bf16, normed);
        parallel_rows(n, d.hidden, threads, [&](int64_t r) {
            float *const row = normed + r * d.hidden;
            add(x + r * d.hidden, row, d.hidden);
            rms_norm(x + r * d.hidden, l.feed_forward_norm, d.hidden, d.epsilon, row);
        });
        project(l.gate_up, normed, step, d.allow_bf16, wide);
        parallel_rows(n, 2 * d.feed_forward, threads, [&](int64_t r) {
            silu_mul(wide + r * 2 * d.feed_forward, d.feed_forward, normed + r * d.feed_forward);
        });
        project(l.down, normed, step, d.allow_bf16, branch);
    }
    const int64_t out_bytes = d.hidden * bytes_of(step.out_type);
    parallel_rows(n, d.hidden, threads, [&](int64_t r) {
        float *const row = normed + r * d.hidden;
        add(x + r * d.hidden, branch + r * d.hidden, d.hidden);
        rms_norm(x + r * d.hidden, d.norm, d.hidden, d.epsilon, row);
        store_as(step.out_type, (char *)step.out + r * out_bytes, row, d.hidden);
    });
}

}  // namespace
}  // namespace hearth

extern "C" int hearth_decode(const hearth_decoder *decoder, const hearth_step *step) try {
    if (!hearth::in_range(*decoder, *step)) return HEARTH_OUT_OF_RANGE;
    hearth::decode(*decoder, *step);
    return HEARTH_OK;
} catch (const std::bad_alloc &) {
    return HEARTH_OUT_OF_MEMORY;
}
