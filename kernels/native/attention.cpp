// Flash attention on the processor: what the cells have is converted to floats once for all rows
// that look at them, rows of all heads that share a key among them.
//
// Cells are taken in tiles of CELLS, query rows in blocks of ROWS; a tile that nobody in a block may
// see is passed over. First all scores of a block, with the largest of each row, then the sums of
// the values. Not in one pass with corrections as on a GPU, for the sake of what is added in which
// order: cell by cell, where a cell that a row does not see adds exactly nothing. So a row's result
// has the same bits whatever other rows are computed with it and whatever lies between its cells.
// Few blocks and many threads: the scores are divided by cells, the sums by values.
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
constexpr int GROUP = 4;        // rows, and cells, that are multiplied together
constexpr int64_t PART = 4;     // tiles that a thread takes when the scores of a block are divided
constexpr int64_t SEGMENT = 4 * LANES;  // values that it takes then
constexpr int64_t MOST_VALUES = 256;

enum Type { F32 = 0, F16 = 1, Q8_0 = 8, BF16 = 30 };

// How the work is divided: items are (key head, block of rows).
struct Division {
    int64_t group, rows, lines, blocks, tiles, items, parts, segments;
    bool divided;  // items are divided further
    explicit Division(const hearth_attention_args &a) {
        group = a.heads / a.heads_kv;
        rows = group * a.rows;
        lines = std::min<int64_t>(ROWS, rows);  // of the largest block
        blocks = (rows + ROWS - 1) / ROWS;
        tiles = (a.cells + CELLS - 1) / CELLS;
        items = a.heads_kv * blocks;
        parts = (tiles + PART - 1) / PART;
        segments = (a.v.values + SEGMENT - 1) / SEGMENT;
        divided = a.threads > 1 && items < 2 * a.threads;
    }
};

// The rows of an item.
struct Block {
    int64_t head_kv, row;
    int rows;
    Block(const Division &by, int64_t item) {
        head_kv = item / by.blocks;
        row = item % by.blocks * ROWS;
        rows = (int)std::min<int64_t>(ROWS, by.rows - row);
    }
    int64_t n(const Division &by, int r) const { return (row + r) / by.group; }
    int64_t head(const Division &by, int r) const { return head_kv * by.group + (row + r) % by.group; }
};

// What the first half leaves for the second: the scores of a block's rows, bit r of seen[tile] for
// row r that sees something of it, the largest score of each row in each part.
struct Scores {
    float *score;    // [tiles][lines][CELLS]
    float *most;     // [parts][lines]
    uint16_t *seen;  // [tiles]
    int64_t lines;

    static size_t floats_for(const Division &by) {
        const size_t count = (by.tiles * CELLS + by.parts) * by.lines + (by.tiles + 1) / 2;
        return (count + 15) / 16 * 16;
    }
    Scores(const Division &by, float *memory) {
        lines = by.lines;
        score = memory;
        most = score + by.tiles * lines * CELLS;
        seen = (uint16_t *)(most + by.parts * lines);
    }
    float *row(int64_t tile, int r) const { return score + (tile * lines + r) * CELLS; }
};

// A thread's memory. Lines are as long as the vectors.
struct Scratch {
    float *q, *tile, *sum;  // [ROWS], [CELLS], [ROWS] vectors
    alignas(64) float weight[ROWS][CELLS];
    alignas(64) float total[ROWS][LANES];  // in every lane the same

    static size_t floats_for(const hearth_attention_args &a) {
        return ((ROWS + CELLS) * std::max(a.q.values, a.v.values) + ROWS * a.v.values + 15) / 16 * 16;
    }
    Scratch(const hearth_attention_args &a, float *memory) {
        const int64_t line = std::max(a.q.values, a.v.values);
        q = memory;
        tile = q + ROWS * line;
        sum = tile + CELLS * line;
    }
};

// Values first to first + count - 1 of a vector.
void convert(int type, const char *p, int64_t first, int64_t count, float *to) {
    switch (type) {
    case F16:
        for (int64_t i = 0; i < count; i += LANES) store(to + i, from_halves(p + 2 * (first + i)));
        break;
    case BF16:
        for (int64_t i = 0; i < count; i += LANES) store(to + i, from_bf16(p + 2 * (first + i)));
        break;
    case F32: std::memcpy(to, p + 4 * first, count * sizeof(float)); break;
    case Q8_0:
        for (int64_t i = 0; i < count; i += LANES) {
            const char *block = p + (first + i) / 32 * 34;
            uint16_t d;
            std::memcpy(&d, block, sizeof d);
            store(to + i, times(all(_cvtsh_ss(d)), from_bytes(block + 2 + (first + i) % 32)));
        }
        break;
    }
}

// The same of the vectors of a tile, zeros beyond the last cell.
void convert(const hearth_attention_args &a, const hearth_vectors &from, int64_t head, int64_t tile,
             int64_t first, int64_t count, float *to) {
    const int64_t cell = tile * CELLS, cells = std::min<int64_t>(CELLS, a.cells - cell);
    const char *p = (const char *)from.data + cell * from.row_bytes + head * from.head_bytes;
    for (int64_t c = 0; c < cells; c++) convert(from.type, p + c * from.row_bytes, first, count, to + c * count);
    std::memset(to + cells * count, 0, (CELLS - cells) * count * sizeof(float));
}

bool all_finite(const float *p, int64_t count) {
    floats sum = zeros();
    for (int64_t i = 0; i < count; i += LANES) sum = plus_product(load(p + i), zeros(), sum);
    return sum_of(sum) == 0;
}

// Products of rows r to r + R - 1 with all cells of the tile in scratch.
template <int R>
void score(const Scratch &s, const Scores &to, int64_t tile, int r, int64_t values) {
    const float *q = s.q + r * values;
    for (int c = 0; c < CELLS; c += GROUP) {
        const float *k = s.tile + c * values;
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
            _mm_storeu_ps(to.row(tile, r + i) + c, sums_of(sum[i][0], sum[i][1], sum[i][2], sum[i][3]));
    }
}

float slope_of(const hearth_attention_args &a, int64_t head) {
    if (a.max_bias <= 0) return 1.0f;
    const int64_t power = (int64_t)1 << (int)std::floor(std::log2((double)a.heads));
    return head < power ? std::pow(std::exp2(-a.max_bias / power), (float)(head + 1))
                        : std::pow(std::exp2(-a.max_bias / 2 / power), (float)(2 * (head - power) + 1));
}

// What a row's mask has for LANES cells from cell on; -infinity beyond the last one.
floats mask_of(const hearth_attention_args &a, int64_t n, float slope, int64_t cell) {
    const uint16_t *m = a.mask ? (const uint16_t *)((const char *)a.mask + n * a.mask_bytes) + cell : nullptr;
    const int64_t count = a.cells - cell;
    floats add = zeros();
    if (count < LANES) {
        float values[LANES];
        for (int64_t i = 0; i < LANES; i++) values[i] = i >= count ? -INFINITY : m ? _cvtsh_ss(m[i]) : 0.0f;
        add = load(values);
    } else if (m) {
        add = from_halves(m);
    }
    return a.max_bias > 0 ? times(add, all(slope)) : add;
}

// The rows of a block that see something of a tile, a bit for each.
uint16_t seers(const hearth_attention_args &a, const Division &by, const Block &block, int64_t tile) {
    uint16_t bits = 0;
    for (int r = 0; r < block.rows; r++) {
        floats most = all(-INFINITY);
        for (int64_t c = 0; c < CELLS; c += LANES)
            most = larger(most, mask_of(a, block.n(by, r), 1.0f, tile * CELLS + c));
        if (largest_of(most) > -INFINITY) bits |= (uint16_t)(1u << r);
    }
    return bits;
}

// A row's products of a tile into scores, in place. The largest of them and of most.
float settle(const hearth_attention_args &a, float *score, int64_t n, float slope, int64_t tile, float most) {
    floats largest = all(most);
    for (int64_t c = 0; c < CELLS; c += LANES) {
        floats v = load(score + c);
        if (a.softcap != 0) {
            const floats e = exponential(times(v, all(2.0f)));
            v = times(all(a.softcap), over(minus(e, all(1.0f)), plus(e, all(1.0f))));
        }
        v = plus_mask(v, mask_of(a, n, slope, tile * CELLS + c));
        largest = larger(v, largest);  // a NaN is left out; the weights will have it
        store(score + c, v);
    }
    return largest_of(largest);
}

// The rows of a block, scaled, in scratch.
void start(const hearth_attention_args &a, const Division &by, const Block &block, const Scratch &s) {
    for (int r = 0; r < block.rows; r++) {
        const float *q = (const float *)((const char *)a.q.data + block.n(by, r) * a.q.row_bytes +
                                         block.head(by, r) * a.q.head_bytes);
        for (int64_t d = 0; d < a.q.values; d += LANES)
            store(s.q + r * a.q.values + d, times(all(a.scale), load(q + d)));
    }
}

template <int R>
bool any_of(uint16_t seen, int r) { return (seen >> r & ((1 << R) - 1)) != 0; }

// The scores of a block for the tiles of a part.
void score_part(const hearth_attention_args &a, const Division &by, const Block &block, const Scratch &s,
                const Scores &to, int64_t part) {
    float *most = to.most + part * by.lines, slope[ROWS];
    for (int r = 0; r < block.rows; r++) {
        most[r] = -INFINITY;
        slope[r] = slope_of(a, block.head(by, r));
    }
    const int64_t end = std::min(by.tiles, (part + 1) * PART);
    for (int64_t tile = part * PART; tile < end; tile++) {
        const uint16_t seen = to.seen[tile] = seers(a, by, block, tile);
        if (seen == 0) continue;
        convert(a, a.k, block.head_kv, tile, 0, a.k.values, s.tile);
        int r = 0;
        for (; r + 4 <= block.rows; r += 4)
            if (any_of<4>(seen, r)) score<4>(s, to, tile, r, a.q.values);
        for (; r + 2 <= block.rows; r += 2)
            if (any_of<2>(seen, r)) score<2>(s, to, tile, r, a.q.values);
        for (; r < block.rows; r++)
            if (any_of<1>(seen, r)) score<1>(s, to, tile, r, a.q.values);
        for (r = 0; r < block.rows; r++)
            if (seen >> r & 1) most[r] = settle(a, to.row(tile, r), block.n(by, r), slope[r], tile, most[r]);
    }
}

// sum of rows r to r + R - 1 += their weights times the tile's values from first on; TOTAL: their
// totals too.
template <int R, int D, bool TOTAL>
void add_values(Scratch &s, int r, int64_t values, int64_t first) {
    floats sum[R][D], total[R];
    for (int i = 0; i < R; i++) {
        for (int j = 0; j < D; j++) sum[i][j] = load(s.sum + (r + i) * values + first + j * LANES);
        total[i] = load(s.total[r + i]);
    }
    for (int c = 0; c < CELLS; c++) {
        floats value[D];
        for (int j = 0; j < D; j++) value[j] = load(s.tile + c * values + first + j * LANES);
        for (int i = 0; i < R; i++) {
            const floats weight = all(s.weight[r + i][c]);
            for (int j = 0; j < D; j++) sum[i][j] = plus_product(weight, value[j], sum[i][j]);
            if (TOTAL) total[i] = plus(total[i], weight);
        }
    }
    for (int i = 0; i < R; i++) {
        for (int j = 0; j < D; j++) store(s.sum + (r + i) * values + first + j * LANES, sum[i][j]);
        if (TOTAL) store(s.total[r + i], total[i]);
    }
}

template <int R>
void add_values(Scratch &s, int r, int64_t values) {
    int64_t d = 4 * LANES;
    if (values >= d)
        add_values<R, 4, true>(s, r, values, 0);
    else
        add_values<R, 1, true>(s, r, values, 0), d = LANES;
    for (; d + 4 * LANES <= values; d += 4 * LANES) add_values<R, 4, false>(s, r, values, d);
    for (; d < values; d += LANES) add_values<R, 1, false>(s, r, values, d);
}

// The same for a tile with values that are not finite, which spoil only the rows that see them.
void add_seen_values(Scratch &s, int r, int64_t values) {
    for (int c = 0; c < CELLS; c++) {
        const floats weight = all(s.weight[r][c]);
        if (s.weight[r][c] == 0) continue;
        for (int64_t d = 0; d < values; d += LANES) {
            float *sum = s.sum + r * values + d;
            store(sum, plus_product(weight, load(s.tile + c * values + d), load(sum)));
        }
        store(s.total[r], plus(load(s.total[r]), weight));
    }
}

// A tile's weights of a row: 0 for a row that sees nothing of it.
void weigh(Scratch &s, const Scores &from, int64_t tile, int r, float most) {
    const bool sees = from.seen[tile] >> r & 1;
    for (int64_t c = 0; c < CELLS; c += LANES)
        store(s.weight[r] + c, sees ? exponential(minus(load(from.row(tile, r) + c), all(most))) : zeros());
}

// A row's sum divided by its total, the head's sink counted in. A row that sees nothing is 0.
void finish(const hearth_attention_args &a, const Division &by, const Block &block, const Scratch &s, int r,
            float most, int64_t first, int64_t count) {
    const int64_t head = block.head(by, r);
    float total = s.total[r][0];
    if (a.sinks) total += std::exp(a.sinks[head] - most);
    const floats by_total = all(total != 0 ? 1.0f / total : 0.0f);
    float *out = (float *)((char *)a.out + block.n(by, r) * a.out_row_bytes + head * a.out_head_bytes) + first;
    for (int64_t d = 0; d < count; d += LANES) store(out + d, times(by_total, load(s.sum + r * count + d)));
}

// Values first to first + count - 1 of a block's results.
void sum_up(const hearth_attention_args &a, const Division &by, const Block &block, Scratch &s,
            const Scores &from, int64_t first, int64_t count) {
    float most[ROWS];
    for (int r = 0; r < block.rows; r++) {
        most[r] = a.sinks ? a.sinks[block.head(by, r)] : -INFINITY;
        for (int64_t p = 0; p < by.parts; p++) most[r] = std::max(most[r], from.most[p * by.lines + r]);
        if (most[r] == -INFINITY) most[r] = 0;  // it sees nothing, or NaN
    }
    std::memset(s.sum, 0, block.rows * count * sizeof(float));
    std::memset(s.total, 0, sizeof s.total);
    for (int64_t tile = 0; tile < by.tiles; tile++) {
        if (from.seen[tile] == 0) continue;
        for (int r = 0; r < block.rows; r++) weigh(s, from, tile, r, most[r]);
        convert(a, a.v, block.head_kv, tile, first, count, s.tile);
        if (!all_finite(s.tile, CELLS * count)) {
            for (int r = 0; r < block.rows; r++) add_seen_values(s, r, count);
            continue;
        }
        int r = 0;
        for (; r + 4 <= block.rows; r += 4)
            if (any_of<4>(from.seen[tile], r)) add_values<4>(s, r, count);
        for (; r + 2 <= block.rows; r += 2)
            if (any_of<2>(from.seen[tile], r)) add_values<2>(s, r, count);
        for (; r < block.rows; r++)
            if (any_of<1>(from.seen[tile], r)) add_values<1>(s, r, count);
    }
    for (int r = 0; r < block.rows; r++) finish(a, by, block, s, r, most[r], first, count);
}

void whole(const hearth_attention_args &a, const Division &by, int64_t item, Scratch &s, const Scores &scores) {
    const Block block(by, item);
    start(a, by, block, s);
    for (int64_t part = 0; part < by.parts; part++) score_part(a, by, block, s, scores, part);
    sum_up(a, by, block, s, scores, 0, a.v.values);
}

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
    const Division by(*args);
    const size_t scores = (by.divided ? by.items : args->threads) * Scores::floats_for(by);
    return (args->threads * Scratch::floats_for(*args) + scores) * sizeof(float);
}

extern "C" void hearth_attention(const hearth_attention_args *args) {
    const hearth_attention_args &a = *args;
    const Division by(a);
    const size_t own = Scratch::floats_for(a), size = Scores::floats_for(by);
    float *memory = (float *)a.work, *scores = memory + a.threads * own;
#pragma omp parallel num_threads(a.threads)
    {
        const int thread = omp_get_thread_num();
        Scratch s(a, memory + thread * own);
        if (!by.divided) {
#pragma omp for schedule(dynamic, 1)
            for (int64_t item = 0; item < by.items; item++) whole(a, by, item, s, Scores(by, scores + thread * size));
        } else {
            int64_t begun = -1;
#pragma omp for schedule(static)
            for (int64_t i = 0; i < by.items * by.parts; i++) {
                const int64_t item = i / by.parts;
                const Block block(by, item);
                if (item != begun) start(a, by, block, s);
                begun = item;
                score_part(a, by, block, s, Scores(by, scores + item * size), i % by.parts);
            }
#pragma omp for schedule(static)
            for (int64_t i = 0; i < by.items * by.segments; i++) {
                const int64_t first = i % by.segments * SEGMENT;
                sum_up(a, by, Block(by, i / by.segments), s, Scores(by, scores + i / by.segments * size), first,
                       std::min(SEGMENT, a.v.values - first));
            }
        }
    }
}
