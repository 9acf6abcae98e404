// Flash attention on the processor: what the cells have is converted to floats once for all rows
// that look at them, rows of all heads that share a key among them.
//
// Cells are taken in tiles of CELLS, query rows in blocks of ROWS; a tile that nobody in a block may
// see is passed over. Few blocks and many threads: the cells are divided into parts, whose sums are
// put together afterwards. Sums are kept as in Dao et al., "FlashAttention" (2022), algorithm 1.
#include "attention.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "lanes.h"

namespace hearth {
namespace {

constexpr int CELLS = 32;
constexpr int ROWS = 16;
constexpr int GROUP = 4;           // rows, and cells, that are multiplied together
constexpr int64_t LEAST_PART = 4;  // tiles: a part is not smaller
constexpr int64_t MOST_VALUES = 256;

enum Type { F32 = 0, F16 = 1, Q8_0 = 8, BF16 = 30 };

// A thread's memory. Lines are as long as the vectors.
struct Scratch {
    float *q, *k, *v, *sum;                    // [ROWS], [CELLS], [CELLS], [ROWS] vectors
    alignas(64) float score[ROWS][CELLS];
    alignas(64) float mask[ROWS][CELLS];
    float most[ROWS], total[ROWS];
    bool sees[ROWS];
    bool finite;  // every value of v

    static size_t floats_for(const hearth_attention_args &a) {
        return (ROWS + CELLS) * (a.q.values + a.v.values);
    }
    Scratch(const hearth_attention_args &a, float *memory) {
        q = memory;
        k = q + ROWS * a.q.values;
        v = k + CELLS * a.q.values;
        sum = v + CELLS * a.v.values;
    }
};

// How the work is divided: items are (key head, block of rows, part of the cells).
struct Division {
    int64_t group, rows, blocks, tiles, parts, items;
    explicit Division(const hearth_attention_args &a) {
        group = a.heads / a.heads_kv;
        rows = group * a.rows;
        blocks = (rows + ROWS - 1) / ROWS;
        tiles = (a.cells + CELLS - 1) / CELLS;
        const int64_t whole = a.heads_kv * blocks, wanted = (2 * a.threads + whole - 1) / whole;
        parts = std::max<int64_t>(1, std::min(wanted, tiles / LEAST_PART));
        if (a.threads == 1) parts = 1;
        items = whole * parts;
    }
    // What a part leaves for a row: its largest score, its total and its sum of v.
    int64_t line(const hearth_attention_args &a) const { return 2 + a.v.values; }
};

void convert(const hearth_vectors &from, const char *p, float *to) {
    switch (from.type) {
    case F16:
        for (int64_t i = 0; i < from.values; i += LANES) store(to + i, from_halves(p + 2 * i));
        break;
    case BF16:
        for (int64_t i = 0; i < from.values; i += LANES) store(to + i, from_bf16(p + 2 * i));
        break;
    case F32: std::memcpy(to, p, from.values * sizeof(float)); break;
    case Q8_0:
        for (int64_t b = 0; b < from.values / 32; b++) {
            uint16_t d;
            std::memcpy(&d, p + 34 * b, sizeof d);
            const floats scale = all(_cvtsh_ss(d));
            for (int i = 0; i < 32; i += LANES)
                store(to + 32 * b + i, times(scale, from_bytes(p + 34 * b + 2 + i)));
        }
        break;
    }
}

// count vectors from a cell on, zeros up to CELLS.
void convert(const hearth_vectors &from, int64_t head, int64_t cell, int64_t count, float *to) {
    const char *p = (const char *)from.data + cell * from.row_bytes + head * from.head_bytes;
    for (int64_t c = 0; c < count; c++) convert(from, p + c * from.row_bytes, to + c * from.values);
    std::memset(to + count * from.values, 0, (CELLS - count) * from.values * sizeof(float));
}

bool all_finite(const float *p, int64_t count) {
    floats sum = zeros();
    for (int64_t i = 0; i < count; i += LANES) sum = plus_product(load(p + i), zeros(), sum);
    return sum_of(sum) == 0;
}

// scores of rows r to r + R - 1 with all cells of the tile.
template <int R>
void score(Scratch &s, int r, int64_t values) {
    const float *q = s.q + r * values;
    for (int c = 0; c < CELLS; c += GROUP) {
        const float *k = s.k + c * values;
        floats sum[R][GROUP];
        for (int i = 0; i < R; i++)
            for (int j = 0; j < GROUP; j++) sum[i][j] = zeros();
        for (int64_t d = 0; d < values; d += LANES) {
            floats key[GROUP];
            for (int j = 0; j < GROUP; j++) key[j] = load(k + j * values + d);
            for (int i = 0; i < R; i++) {
                const floats query = load(q + i * values + d);
                for (int j = 0; j < GROUP; j++) sum[i][j] = plus_product(query, key[j], sum[i][j]);
            }
        }
        for (int i = 0; i < R; i++)
            _mm_storeu_ps(s.score[r + i] + c, sums_of(sum[i][0], sum[i][1], sum[i][2], sum[i][3]));
    }
}

// sum of rows r to r + R - 1 += their scores, exponentiated, times the cells' v.
template <int R, int D>
void add_values(Scratch &s, int r, int64_t values, int64_t from) {
    floats sum[R][D];
    for (int i = 0; i < R; i++)
        for (int j = 0; j < D; j++) sum[i][j] = load(s.sum + (r + i) * values + from + j * LANES);
    for (int c = 0; c < CELLS; c++) {
        floats value[D];
        for (int j = 0; j < D; j++) value[j] = load(s.v + c * values + from + j * LANES);
        for (int i = 0; i < R; i++) {
            const floats weight = all(s.score[r + i][c]);
            for (int j = 0; j < D; j++) sum[i][j] = plus_product(weight, value[j], sum[i][j]);
        }
    }
    for (int i = 0; i < R; i++)
        for (int j = 0; j < D; j++) store(s.sum + (r + i) * values + from + j * LANES, sum[i][j]);
}

template <int R>
void add_values(Scratch &s, int r, int64_t values) {
    int64_t d = 0;
    for (; d + 4 * LANES <= values; d += 4 * LANES) add_values<R, 4>(s, r, values, d);
    for (; d < values; d += LANES) add_values<R, 1>(s, r, values, d);
}

// The same for a tile with values that are not finite, which spoil only the rows that see them.
void add_seen_values(Scratch &s, int r, int64_t values) {
    float *sum = s.sum + r * values;
    for (int c = 0; c < CELLS; c++) {
        const float weight = s.score[r][c];
        if (weight == 0) continue;
        for (int64_t d = 0; d < values; d += LANES)
            store(sum + d, plus_product(all(weight), load(s.v + c * values + d), load(sum + d)));
    }
}

// The scores of a row into weights, its sums so far brought to the new largest score.
void weigh(const hearth_attention_args &a, Scratch &s, int r) {
    if (!s.sees[r]) {
        std::memset(s.score[r], 0, sizeof s.score[r]);
        return;
    }
    floats v[CELLS / LANES];
    floats most = all(s.most[r]);
    for (int i = 0; i < CELLS / LANES; i++) {
        v[i] = load(s.score[r] + i * LANES);
        if (a.softcap != 0) {
            const floats e = exponential(times(v[i], all(2.0f)));
            v[i] = times(all(a.softcap), over(minus(e, all(1.0f)), plus(e, all(1.0f))));
        }
        v[i] = plus_mask(v[i], load(s.mask[r] + i * LANES));
        most = larger(v[i], most);
    }
    const float before = s.most[r];
    float now = largest_of(most);
    if (now == -INFINITY) now = 0;  // NaN, which larger() leaves out: the weights will have it
    floats total = zeros();
    for (int i = 0; i < CELLS / LANES; i++) {
        const floats weight = exponential(minus(v[i], all(now)));
        total = plus(total, weight);
        store(s.score[r] + i * LANES, weight);
    }
    if (now > before) {
        const float factor = std::exp(before - now);
        for (int64_t d = 0; d < a.v.values; d += LANES)
            store(s.sum + r * a.v.values + d, times(all(factor), load(s.sum + r * a.v.values + d)));
        s.total[r] *= factor;
    }
    s.total[r] += sum_of(total);
    s.most[r] = now;
}

float slope_of(const hearth_attention_args &a, int64_t head) {
    if (a.max_bias <= 0) return 1.0f;
    const int64_t power = (int64_t)1 << (int)std::floor(std::log2((double)a.heads));
    return head < power ? std::pow(std::exp2(-a.max_bias / power), (float)(head + 1))
                        : std::pow(std::exp2(-a.max_bias / 2 / power), (float)(2 * (head - power) + 1));
}

// What rows see of a tile, as numbers to add. False: none of them sees anything.
bool masked(const hearth_attention_args &a, const Division &by, Scratch &s, int64_t head_kv, int64_t row,
            int rows, int64_t cell, int64_t count) {
    bool any = false;
    for (int r = 0; r < rows; r++) {
        const int64_t n = (row + r) / by.group;
        floats seen = all(-INFINITY);
        const float slope = slope_of(a, head_kv * by.group + (row + r) % by.group);
        const uint16_t *m = (const uint16_t *)((const char *)a.mask + n * a.mask_bytes) + cell;
        for (int64_t c = 0; c < CELLS; c += LANES) {
            floats add = zeros();
            if (c + LANES > count) {  // the end of the cells is within this register
                float values[LANES];
                for (int64_t i = 0; i < LANES; i++)
                    values[i] = c + i >= count ? -INFINITY : a.mask ? _cvtsh_ss(m[c + i]) : 0.0f;
                add = load(values);
            } else if (a.mask) {
                add = from_halves(m + c);
            }
            if (a.max_bias > 0) add = times(add, all(slope));
            store(s.mask[r] + c, add);
            seen = larger(seen, add);
        }
        s.sees[r] = largest_of(seen) > -INFINITY;
        any = any || s.sees[r];
    }
    return any;
}

template <int R>
void attend(const hearth_attention_args &a, Scratch &s, int r) {
    bool any = false;
    for (int i = 0; i < R; i++) any = any || s.sees[r + i];
    if (!any) return;
    score<R>(s, r, a.q.values);
    for (int i = 0; i < R; i++) weigh(a, s, r + i);
    if (s.finite) return add_values<R>(s, r, a.v.values);
    for (int i = 0; i < R; i++) add_seen_values(s, r + i, a.v.values);
}

void start(const hearth_attention_args &a, const Division &by, Scratch &s, int64_t head_kv, int64_t row, int rows) {
    for (int r = 0; r < rows; r++) {
        const int64_t n = (row + r) / by.group, head = head_kv * by.group + (row + r) % by.group;
        const float *q = (const float *)((const char *)a.q.data + n * a.q.row_bytes + head * a.q.head_bytes);
        for (int64_t d = 0; d < a.q.values; d += LANES)
            store(s.q + r * a.q.values + d, times(all(a.scale), load(q + d)));
        s.most[r] = -INFINITY;
        s.total[r] = 0;
    }
    std::memset(s.sum, 0, rows * a.v.values * sizeof(float));
}

// Rows row to row + rows - 1 of a key head against a part of the cells.
void cover(const hearth_attention_args &a, const Division &by, Scratch &s, int64_t head_kv, int64_t row,
           int rows, int64_t part) {
    start(a, by, s, head_kv, row, rows);
    const int64_t end = by.tiles * (part + 1) / by.parts;
    for (int64_t tile = by.tiles * part / by.parts; tile < end; tile++) {
        const int64_t cell = tile * CELLS, count = std::min<int64_t>(CELLS, a.cells - cell);
        if (!masked(a, by, s, head_kv, row, rows, cell, count)) continue;
        convert(a.k, head_kv, cell, count, s.k);
        convert(a.v, head_kv, cell, count, s.v);
        s.finite = all_finite(s.v, CELLS * a.v.values);
        int r = 0;
        for (; r + 4 <= rows; r += 4) attend<4>(a, s, r);
        for (; r + 2 <= rows; r += 2) attend<2>(a, s, r);
        for (; r < rows; r++) attend<1>(a, s, r);
    }
}

float *out_of(const hearth_attention_args &a, const Division &by, int64_t head_kv, int64_t row) {
    const int64_t n = row / by.group, head = head_kv * by.group + row % by.group;
    return (float *)((char *)a.out + n * a.out_row_bytes + head * a.out_head_bytes);
}

// A row's sum divided by its total, the head's sink counted in. A row that sees nothing is 0.
void finish(const hearth_attention_args &a, const Division &by, int64_t head_kv, int64_t row, float most,
            float total, const float *sum) {
    if (a.sinks) {
        const float sink = a.sinks[head_kv * by.group + row % by.group];
        const float now = std::max(most, sink);
        const float factor = std::exp(most - now);
        total = total * factor + std::exp(sink - now);
        total = factor > 0 ? total / factor : INFINITY;
    }
    const floats by_total = all(total != 0 ? 1.0f / total : 0.0f);
    float *out = out_of(a, by, head_kv, row);
    for (int64_t d = 0; d < a.v.values; d += LANES) store(out + d, times(by_total, load(sum + d)));
}

void merge(const hearth_attention_args &a, const Division &by, const float *lines, int64_t head_kv,
           int64_t row, float *sum) {
    const int64_t line = by.line(a), next = a.heads_kv * by.rows * line;
    const float *first = lines + (head_kv * by.rows + row) * line;
    float most = -INFINITY, total = 0;
    for (int64_t p = 0; p < by.parts; p++) most = std::max(most, first[p * next]);
    std::memset(sum, 0, a.v.values * sizeof(float));
    for (int64_t p = 0; p < by.parts && most > -INFINITY; p++) {
        const float *from = first + p * next;
        const float factor = std::exp(from[0] - most);
        total += factor * from[1];
        for (int64_t d = 0; d < a.v.values; d += LANES)
            store(sum + d, plus_product(all(factor), load(from + 2 + d), load(sum + d)));
    }
    finish(a, by, head_kv, row, most, total, sum);
}

size_t thread_floats(const hearth_attention_args &a) { return (Scratch::floats_for(a) + 15) / 16 * 16; }

}  // namespace
}  // namespace hearth

using namespace hearth;

extern "C" bool hearth_attention_takes(int type_k, int type_v, int64_t values, int64_t values_v) {
    const auto known = [](int type, int64_t count) {
        return (type == F32 || type == F16 || type == BF16 || (type == Q8_0 && count % 32 == 0)) &&
               count > 0 && count <= MOST_VALUES && count % LANES == 0;
    };
    return known(type_k, values) && known(type_v, values_v);
}

extern "C" size_t hearth_attention_work(const hearth_attention_args *args) {
    const hearth_attention_args &a = *args;
    const Division by(a);
    const size_t lines = by.parts > 1 ? by.parts * a.heads_kv * by.rows * by.line(a) : 0;
    return (a.threads * thread_floats(a) + lines) * sizeof(float);
}

extern "C" void hearth_attention(const hearth_attention_args *args) {
    const hearth_attention_args &a = *args;
    const Division by(a);
    float *lines = (float *)a.work + a.threads * thread_floats(a);
#pragma omp parallel num_threads(a.threads)
    {
        Scratch s(a, (float *)a.work + omp_get_thread_num() * thread_floats(a));
#pragma omp for schedule(dynamic, 1)
        for (int64_t item = 0; item < by.items; item++) {
            const int64_t part = item % by.parts, block = item / by.parts % by.blocks;
            const int64_t head_kv = item / by.parts / by.blocks, row = block * ROWS;
            const int rows = (int)std::min<int64_t>(ROWS, by.rows - row);
            cover(a, by, s, head_kv, row, rows, part);
            for (int r = 0; r < rows; r++) {
                if (by.parts == 1) {
                    finish(a, by, head_kv, row + r, s.most[r], s.total[r], s.sum + r * a.v.values);
                    continue;
                }
                float *line = lines + ((part * a.heads_kv + head_kv) * by.rows + row + r) * by.line(a);
                line[0] = s.most[r];
                line[1] = s.total[r];
                std::memcpy(line + 2, s.sum + r * a.v.values, a.v.values * sizeof(float));
            }
        }
        if (by.parts > 1) {
#pragma omp for schedule(static)
            for (int64_t i = 0; i < a.heads_kv * by.rows; i++)
                merge(a, by, lines, i / by.rows, i % by.rows, s.sum);
        }
    }
}
