// See decode.h. Between products everything is in float32; only keys and values are rounded.
#include "decode.h"

#include <algorithm>
#include <cmath>
#include <new>
#include <vector>

#include "rows.h"

namespace hearth {
namespace {

enum Fault { SHORT = 1, OUTSIDE = 2 };

constexpr int HEADS = 4;       // query heads of one key that are computed together
constexpr int64_t WORTH = 1 << 15;  // numbers, from which threads take parts of a loop

float *room(std::vector<float> &space, int64_t count) {
    if ((int64_t)space.size() < count) space.resize((size_t)count);
    return space.data();
}

// e to the x: Cephes' expf, in operations that compilers make vectors of.
inline float exponential(float x) {
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

void put(int type, char *to, const float *values, int64_t count) {
    if (type == TYPE_F32) std::memcpy(to, values, (size_t)count * 4);
    else if (type == TYPE_BF16) narrow(values, count, (uint16_t *)to);
    else
        for (int64_t i = 0; i < count; i++) ((uint16_t *)to)[i] = _cvtss_sh(values[i], 0);
}

int64_t bytes_of(int type) { return type == TYPE_F32 ? 4 : 2; }

void norm(const float *x, const float *weight, int64_t width, float epsilon, float *out) {
    floats squares[ROWS] = {zeros(), zeros(), zeros(), zeros()};
    int64_t i = 0;
    for (; i + LANES <= width; i += LANES) {
        const floats v = load(x + i);
        squares[0] = plus_product(v, v, squares[0]);
    }
    alignas(16) float sum[ROWS];
    _mm_store_ps(sum, sums_of(squares[0], squares[1], squares[2], squares[3]));
    for (; i < width; i++) sum[0] += x[i] * x[i];
    const float inverse = 1.0f / std::sqrt(sum[0] / (float)width + epsilon);
    for (i = 0; i < width; i++) out[i] = x[i] * inverse * weight[i];
}

void add(float *x, const float *y, int64_t count) {
    for (int64_t i = 0; i < count; i++) x[i] += y[i];
}

// each(row) for n rows of `width` numbers.
template <class F>
void rows_each(int64_t n, int64_t width, int threads, F each) {
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1 && n * width > WORTH)
    for (int64_t r = 0; r < n; r++) each(r);
}

// y [n, rows] = x [n, k] by the map.
void apply(const hearth_map &map, const float *x, int64_t n, bool narrow, int threads, float *y) {
    const hearth_product product{map.matrices, map.count, map.k, n, x, map.k, y, map.rows,
                                 TYPE_F32, TYPE_F32, narrow, threads};
    if (!hearth_linear(&product)) throw std::bad_alloc();
    if (map.bias) rows_each(n, map.rows, threads, [&](int64_t r) { add(y + r * map.rows, map.bias, map.rows); });
}

// Dimension i of the first `turned` with i + turned / 2.
void turn_head(float *x, const float *cosine, const float *sine, int64_t turned) {
    const int64_t half = turned / 2;
    for (int64_t i = 0; i < half; i++) {
        const float a = x[i], b = x[i + half];
        x[i] = a * cosine[i] - b * sine[i];
        x[i + half] = b * cosine[i] + a * sine[i];
    }
}

// One row's queries, keys and values: normed, turned, and keys and values put into the cache.
void prepare(const hearth_decoder &d, const hearth_layer &l, float *row, int64_t position, int64_t cell) {
    for (int64_t h = 0; h < d.heads + d.heads_kv; h++) {
        float *head = row + h * d.head;
        const float *weight = h < d.heads ? l.query_norm : l.key_norm;
        if (weight) norm(head, weight, d.head, d.epsilon, head);
        const int64_t at = position * (d.turned / 2);
        turn_head(head, l.cosines + at, l.sines + at, d.turned);
    }
    const int64_t width = d.heads_kv * d.head, at = cell * width * bytes_of(d.cache_type);
    put(d.cache_type, l.keys + at, row + d.heads * d.head, width);
    put(d.cache_type, l.values + at, row + d.heads * d.head + width, width);
}

// The keys and values of one head that a token sees: `count` cells, whose rows are width bytes apart.
struct Seen {
    const char *keys, *values;
    const int64_t *cells;
    int64_t count, width, head;
};

// scores [C][stride] of C queries.
template <class W, int C>
void score(const Seen &s, const float *queries, float scale, float *scores, int64_t stride) {
    float out[C][ROWS];
    for (int64_t p = 0; p < s.count; p += ROWS) {
        const char *rows[ROWS];
        for (int r = 0; r < ROWS; r++) rows[r] = s.keys + s.cells[std::min(p + r, s.count - 1)] * s.width;
        tile<Floats<W>, C>(rows, 0, (const char *)queries, s.head * 4, s.head, out);
        for (int c = 0; c < C; c++)
            for (int r = 0; r < ROWS; r++) scores[c * stride + p + r] = out[c][r] * scale;
    }
}

// Scores become weights, whose sum is not one: 1 / it is the result.
float soften(float *scores, int64_t count) {
    float most = scores[0], sum = 0;
    for (int64_t i = 1; i < count; i++) most = scores[i] > most ? scores[i] : most;
    for (int64_t i = 0; i < count; i++) scores[i] = exponential(scores[i] - most);
    float parts[LANES] = {};
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES)
        for (int lane = 0; lane < LANES; lane++) parts[lane] += scores[i + lane];
    for (; i < count; i++) sum += scores[i];
    for (int lane = 0; lane < LANES; lane++) sum += parts[lane];
    return 1.0f / sum;
}

// out [C][head] = weights [C][stride] by the values, N registers of each head at a time.
template <class W, int C, int N>
void gather(const Seen &s, const float *weights, int64_t stride, const float *shares, float *out) {
    for (int64_t d = 0; d < s.head; d += N * LANES) {
        floats total[C][N];
        for (auto &row : total)
            for (auto &one : row) one = zeros();
        for (int64_t p = 0; p < s.count; p++) {
            const char *value = s.values + s.cells[p] * s.width;
            for (int n = 0; n < N; n++) {
                const floats v = W::some(value, d + n * LANES);
                for (int c = 0; c < C; c++) total[c][n] = plus_product(all(weights[c * stride + p]), v, total[c][n]);
            }
        }
        for (int c = 0; c < C; c++)
            for (int n = 0; n < N; n++)
                store(out + c * s.head + d + n * LANES, times(total[c][n], all(shares[c])));
    }
}

template <class W, int C>
void attend(const Seen &s, const float *queries, float scale, float *out) {
    static thread_local std::vector<float> space;
    const int64_t stride = (s.count + ROWS - 1) / ROWS * ROWS;
    float *scores = room(space, C * stride), shares[C];
    score<W, C>(s, queries, scale, scores, stride);
    for (int c = 0; c < C; c++) shares[c] = soften(scores + c * stride, s.count);
    if (s.head % (4 * LANES) == 0) gather<W, C, 4>(s, scores, stride, shares, out);
    else gather<W, C, 1>(s, scores, stride, shares, out);
}

template <class W>
void attend(const Seen &s, int64_t heads, const float *queries, float scale, float *out) {
    for (int64_t h = 0; h < heads; h += HEADS) {
        const float *own = queries + h * s.head;
        float *to = out + h * s.head;
        switch (heads - h) {
        case 1: attend<W, 1>(s, own, scale, to); break;
        case 2: attend<W, 2>(s, own, scale, to); break;
        case 3: attend<W, 3>(s, own, scale, to); break;
        default: attend<W, 4>(s, own, scale, to);
        }
    }
}

// Whether all that a step points at is there.
bool fits(const hearth_decoder &d, const hearth_step &step) {
    for (int64_t r = 0; r < step.n; r++) {
        if (step.tokens[r] < 0 || step.tokens[r] >= d.embedding.rows) return false;
        if (step.positions[r] < 0 || step.positions[r] >= d.positions) return false;
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
        const int32_t *table = step.tables + s * step.table_stride;
        for (int64_t b = 0; b < blocks; b++)
            if (table[b] < 0 || table[b] >= d.blocks) return false;
    }
    return true;
}

// The cells of the tokens up to each of the step's, a line for each sequence.
struct Cells {
    std::vector<int64_t> cells, lines, owners;

    void find(const hearth_decoder &d, const hearth_step &step) {
        cells.clear(), lines.clear(), owners.clear();
        for (int64_t s = 0; s < step.sequences; s++) {
            const int64_t length = step.positions[step.starts[s + 1] - 1] + 1;
            lines.push_back((int64_t)cells.size());
            owners.insert(owners.end(), (size_t)(step.starts[s + 1] - step.starts[s]), s);
            for (int64_t p = 0; p < length; p++)
                cells.push_back(step.tables[s * step.table_stride + p / d.block_size] * d.block_size +
                                p % d.block_size);
        }
    }
};

// out [n, heads * head] of the projected rows, whose keys and values are in the cache.
void attend_all(const hearth_decoder &d, const hearth_layer &l, const hearth_step &step, const Cells &cells,
                const float *rows, float *out) {
    const int64_t group = d.heads / d.heads_kv, line = (d.heads + 2 * d.heads_kv) * d.head;
    const int64_t bytes = bytes_of(d.cache_type), tasks = step.n * d.heads_kv;
    const bool together = step.threads > 1 && (int64_t)cells.cells.size() * d.heads * d.head > WORTH;
#pragma omp parallel for schedule(dynamic, 1) num_threads(step.threads) if (together)
    for (int64_t task = 0; task < tasks; task++) {
        const int64_t row = task / d.heads_kv, head = task % d.heads_kv;
        const int64_t length = step.positions[row] + 1;
        const int64_t first = l.window && l.window < length ? length - l.window : 0;
        const int64_t offset = head * d.head * bytes;
        const Seen seen{l.keys + offset, l.values + offset, cells.cells.data() + cells.lines[cells.owners[row]] + first,
                        length - first, d.heads_kv * d.head * bytes, d.head};
        const float *queries = rows + row * line + head * group * d.head;
        float *to = out + (row * d.heads + head * group) * d.head;
        switch (d.cache_type) {
        case TYPE_F32: attend<AsF32>(seen, group, queries, l.scale, to); break;
        case TYPE_F16: attend<AsF16>(seen, group, queries, l.scale, to); break;
        default: attend<AsBF16>(seen, group, queries, l.scale, to);
        }
    }
}

// silu(gate) * up [width] of gate and up side by side.
void activate(const float *both, int64_t width, float *out) {
    for (int64_t i = 0; i < width; i++) out[i] = both[i] / (1.0f + exponential(-both[i])) * both[width + i];
}

}  // namespace
}  // namespace hearth

using namespace hearth;

extern "C" int hearth_decode(const hearth_decoder *decoder, const hearth_step *given) try {
    const hearth_decoder &d = *decoder;
    const hearth_step &step = *given;
    if (!fits(d, step)) return OUTSIDE;
    static thread_local std::vector<float> spaces[4];
    static thread_local Cells cells;
    const int64_t n = step.n, line = (d.heads + 2 * d.heads_kv) * d.head;
    float *x = room(spaces[0], n * d.hidden), *normed = room(spaces[1], n * std::max(d.hidden, d.feed_forward));
    float *wide = room(spaces[2], n * std::max(line, 2 * d.feed_forward));
    float *narrow = room(spaces[3], n * std::max(d.hidden, d.heads * d.head));
    cells.find(d, step);
    for (int64_t r = 0; r < n; r++)
        widen(d.embedding.type, (const char *)d.embedding.data + step.tokens[r] * d.embedding.stride, d.hidden,
              x + r * d.hidden);
    const int threads = step.threads;
    for (int64_t i = 0; i < d.count; i++) {
        const hearth_layer &l = d.layers[i];
        rows_each(n, d.hidden, threads, [&](int64_t r) {
            if (i) add(x + r * d.hidden, narrow + r * d.hidden, d.hidden);
            norm(x + r * d.hidden, l.input_norm, d.hidden, d.epsilon, normed + r * d.hidden);
        });
        apply(l.projections, normed, n, d.narrow, threads, wide);
        rows_each(n, line, threads,
                  [&](int64_t r) { prepare(d, l, wide + r * line, step.positions[r], step.cells[r]); });
        attend_all(d, l, step, cells, wide, narrow);
        apply(l.output, narrow, n, d.narrow, threads, normed);
        rows_each(n, d.hidden, threads, [&](int64_t r) {
            float *const own = normed + r * d.hidden;
            add(x + r * d.hidden, own, d.hidden);
            norm(x + r * d.hidden, l.middle_norm, d.hidden, d.epsilon, own);
        });
        apply(l.gate_up, normed, n, d.narrow, threads, wide);
        rows_each(n, 2 * d.feed_forward, threads, [&](int64_t r) {
            activate(wide + r * 2 * d.feed_forward, d.feed_forward, normed + r * d.feed_forward);
        });
        apply(l.down, normed, n, d.narrow, threads, narrow);
    }
    const int64_t bytes = bytes_of(step.out_type);
    rows_each(n, d.hidden, threads, [&](int64_t r) {
        float *const own = normed + r * d.hidden;
        add(x + r * d.hidden, narrow + r * d.hidden, d.hidden);
        norm(x + r * d.hidden, d.norm, d.hidden, d.epsilon, own);
        put(step.out_type, (char *)step.out + r * d.hidden * bytes, own, d.hidden);
    });
    return 0;
} catch (const std::bad_alloc &) {
    return SHORT;
}
