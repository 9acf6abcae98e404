// Flash attention on the processor: what the cells have is converted to floats once for all rows
// that look at them, rows of all heads that share a key among them.
//
// Query rows are taken in blocks of ROWS. The cells that they see are gathered from the mask, since
// a cache mixes those of many sequences, and taken in tiles of CELLS: cells that all rows of a block
// see together, the others for each row apart, or all of them together where that is less work.
// First all scores of a block, with the largest of each row, then the sums of the values, not in one
// pass with corrections as on a GPU: a row's result has the same bits whatever other rows are
// computed with it, and wherever its cells lie. To that end the sums are whole numbers of STEP, in
// 64 bits: added in any order they are the same.
// Few blocks and many threads: the scores are divided by cells, the sums by values.
#include "attention.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "lanes.h"
#include "selection.h"
#include "types.h"

namespace hearth {
namespace {

constexpr int VALUE_CELLS = 16;  // so many, as doubles, leave room in the first-level cache
constexpr int GROUP = 4;        // rows, and cells, that are multiplied together
constexpr int64_t MOST_VALUES = 256;

// A product is rounded to STEP by adding ROUNDER, of whose last bit it is the size; the bits are added.
// A weight is 1 at most. Values from LARGE on are added apart, in floating point; with less and up to
// MANY cells no sum is too long.
constexpr double STEP = 0x1p-35, ROUNDER = 0x1.8p17;
constexpr float LARGE = 1024;
constexpr int64_t MANY = (int64_t)1 << 18;

// What the first half leaves for the second: the scores of a tile's rows, the largest of each row of
// the block in each part.
struct Scores {
    float *score;  // [lines of all tiles][CELLS]
    float *most;   // [parts][lines of the block]

    static size_t floats_for(const Division &by) {
        return (by.most_lines() * CELLS + by.parts * by.lines + 15) / 16 * 16;
    }
    Scores(const Division &by, float *memory) {
        score = memory;
        most = score + by.most_lines() * CELLS;
    }
    float *row(const Selection::Tile &tile, int r) const { return score + (tile.line + r - tile.row) * CELLS; }
};

// A thread's memory. Lines are as long as the vectors.
struct Scratch {
    float *q, *k;         // [ROWS], [CELLS] vectors
    double *v;        // [VALUE_CELLS] vectors
    int64_t *sum;     // [ROWS] vectors, of STEP
    double *large;    // [ROWS] vectors: what is added apart
    alignas(64) double weight[ROWS][CELLS];
    alignas(64) float mask[CELLS];  // what one row of it has for a tile
    int64_t total[ROWS];  // of weights, of STEP
    int64_t added[ROWS];  // products in each sum
    bool any_large;
    uint32_t spoiled;     // bit r: row r has a NaN among its weights

    static size_t floats_for(const hearth_attention_args &a) {
        return ((ROWS + CELLS) * a.q.values + 2 * (2 * ROWS + VALUE_CELLS) * a.v.values + 15) / 16 * 16;
    }
    Scratch(const hearth_attention_args &a, float *memory) {
        v = (double *)memory;
        sum = (int64_t *)(v + VALUE_CELLS * a.v.values);
        large = (double *)(sum + ROWS * a.v.values);
        q = (float *)(large + ROWS * a.v.values);
        k = q + ROWS * a.q.values;
    }
    void clear(int64_t values) {
        std::memset(sum, 0, values * sizeof *sum);
        std::memset(large, 0, values * sizeof *large);
        std::memset(total, 0, sizeof total);
        std::memset(added, 0, sizeof added);
        any_large = false;
        spoiled = 0;
    }
};

float large_of(const hearth_attention_args &a) { return a.cells <= MANY ? LARGE : LARGE * MANY / a.cells; }

const char *start_of(const hearth_vectors &from, int64_t head, int32_t cell) {
    return (const char *)from.data + cell * from.row_bytes + head * from.head_bytes;
}

// Asks for a vector of a cell that comes soon. Those of a head lie far apart, which the processor does
// not foresee.
template <class T>
void prefetch(const hearth_vectors &from, int64_t head, int32_t cell, int64_t first, int64_t count) {
    if (cell < 0) return;
    const char *p = T::address(start_of(from, head, cell), first);
    const char *end = T::address(start_of(from, head, cell), first + count);
    for (; p < end; p += 64) _mm_prefetch(p, _MM_HINT_T0);
}

// The keys of CELLS cells as floats, zeros for those that are none.
template <class T>
void convert_keys(const hearth_attention_args &a, int64_t head, const int32_t *cells, float *to) {
    const int64_t count = a.k.values;
    for (int c = 0; c < CELLS; c++, to += count) {
        prefetch<T>(a.k, head, cells[c + SOON], 0, count);
        if (cells[c] < 0) {
            std::memset(to, 0, count * sizeof(float));
            continue;
        }
        const char *p = start_of(a.k, head, cells[c]);
        for (int64_t i = 0; i < count; i += LANES) store(to + i, T::some(p, i));
    }
}

void convert_keys(const hearth_attention_args &a, int64_t head, const int32_t *cells, float *to) {
    switch (a.k.type) {
    case TYPE_F32: return convert_keys<AsF32>(a, head, cells, to);
    case TYPE_F16: return convert_keys<AsF16>(a, head, cells, to);
    case TYPE_BF16: return convert_keys<AsBF16>(a, head, cells, to);
    default: return convert_keys<AsQ8>(a, head, cells, to);
    }
}

// Values first to first + count - 1 of VALUE_CELLS cells as doubles, zeros for those that are none. Bit
// c of the result: some of cell c are LARGE or no numbers.
template <class T>
uint32_t convert_values(const hearth_attention_args &a, int64_t head, const int32_t *cells, int64_t first,
                        int64_t count, double *to) {
    const float large = large_of(a);
    uint32_t apart = 0;
    for (int c = 0; c < VALUE_CELLS; c++, to += count) {
        prefetch<T>(a.v, head, cells[c + SOON], first, count);
        if (cells[c] < 0) {
            std::memset(to, 0, count * sizeof(double));
            continue;
        }
        const char *p = start_of(a.v, head, cells[c]);
        ints sizes = all(0);
        for (int64_t i = 0; i < count; i += LANES) {
            const floats v = T::some(p, first + i);
            sizes = largest_size(sizes, v);
            store_wide(to + i, v);
        }
        apart |= (uint32_t)!all_sizes_below(sizes, large) << c;
    }
    return apart;
}

uint32_t convert_values(const hearth_attention_args &a, int64_t head, const int32_t *cells, int64_t first,
                        int64_t count, double *to) {
    switch (a.v.type) {
    case TYPE_F32: return convert_values<AsF32>(a, head, cells, first, count, to);
    case TYPE_F16: return convert_values<AsF16>(a, head, cells, first, count, to);
    case TYPE_BF16: return convert_values<AsBF16>(a, head, cells, first, count, to);
    default: return convert_values<AsQ8>(a, head, cells, first, count, to);
    }
}

// Products of rows r to r + R - 1 with all cells of the tile in scratch.
template <int R>
void score(const Scratch &s, const Scores &to, const Selection::Tile &tile, int r, int64_t values) {
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
            _mm_storeu_ps(to.row(tile, r + i) + c, sums_of(sum[i][0], sum[i][1], sum[i][2], sum[i][3]));
    }
}

float slope_of(const hearth_attention_args &a, int64_t head) {
    if (a.max_bias <= 0) return 1.0f;
    const int64_t power = (int64_t)1 << (int)std::floor(std::log2((double)a.heads));
    return head < power ? std::pow(std::exp2(-a.max_bias / power), (float)(head + 1))
                        : std::pow(std::exp2(-a.max_bias / 2 / power), (float)(2 * (head - power) + 1));
}

// What row n of the mask has for a tile's cells; -infinity for those that are none.
void read_mask(const hearth_attention_args &a, int64_t n, const int32_t *cells, float *to) {
    const uint16_t *m = a.mask != nullptr ? mask_row(a, n) : nullptr;
    if (cells[CELLS - 1] >= 0 && (m == nullptr || cells[CELLS - 1] - cells[0] == CELLS - 1)) {  // in one piece
        for (int c = 0; c < CELLS; c += LANES) store(to + c, m != nullptr ? from_halves(m + cells[0] + c) : zeros());
        return;
    }
    for (int c = 0; c < CELLS; c++) to[c] = cells[c] < 0 ? -INFINITY : m != nullptr ? _cvtsh_ss(m[cells[c]]) : 0.0f;
}

// A row's products of a tile into scores, in place. The largest of them and of most.
float settle(const hearth_attention_args &a, float *score, const float *mask, float slope, float most) {
    floats largest = all(most);
    for (int c = 0; c < CELLS; c += LANES) {
        floats v = load(score + c), add = load(mask + c);
        if (a.softcap != 0) {
            const floats e = exponential(times(v, all(2.0f)));
            v = times(all(a.softcap), over(minus(e, all(1.0f)), plus(e, all(1.0f))));
        }
        if (a.max_bias > 0) add = times(add, all(slope));
        v = plus_mask(v, add);
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

// The scores of a block for the tiles of a part.
void score_part(const hearth_attention_args &a, const Division &by, const Block &block, const Selection &chosen,
                Scratch &s, const Scores &to, int64_t part) {
    float *most = to.most + part * by.lines, slope[ROWS];
    for (int r = 0; r < block.rows; r++) {
        most[r] = -INFINITY;
        slope[r] = slope_of(a, block.head(by, r));
    }
    const int64_t end = std::min<int64_t>(chosen.tiles.size(), (part + 1) * PART);
    for (int64_t t = part * PART; t < end; t++) {
        const Selection::Tile &tile = chosen.tiles[t];
        const int32_t *cells = chosen.cells.data() + t * CELLS;
        convert_keys(a, block.head_kv, cells, s.k);
        int r = tile.row;
        const int last = tile.row + tile.rows;
        for (; r + 4 <= last; r += 4) score<4>(s, to, tile, r, a.q.values);
        for (; r + 2 <= last; r += 2) score<2>(s, to, tile, r, a.q.values);
        for (; r < last; r++) score<1>(s, to, tile, r, a.q.values);
        for (r = tile.row; r < last; r++) {
            if (r == tile.row || block.n(by, r) != block.n(by, r - 1)) read_mask(a, block.n(by, r), cells, s.mask);
            most[r] = settle(a, to.row(tile, r), s.mask, slope[r], most[r]);
        }
    }
}

// sum of rows r to r + R - 1 += their weights times the tile's values, D registers from first on.
template <int R, int D>
void add_values(Scratch &s, int r, int cell, int64_t values, int64_t first) {
    const doubles rounder = all(ROUNDER);
    ints sum[R][D];
    for (int i = 0; i < R; i++)
        for (int j = 0; j < D; j++) sum[i][j] = load((const void *)(s.sum + (r + i) * values + first + j * LANES / 2));
    for (int c = 0; c < VALUE_CELLS; c++) {
        doubles value[D];
        for (int j = 0; j < D; j++) value[j] = load(s.v + c * values + first + j * LANES / 2);
        for (int i = 0; i < R; i++) {
            const doubles weight = all(s.weight[r + i][cell + c]);
            for (int j = 0; j < D; j++)
                sum[i][j] = plus_long(sum[i][j], bits_of(plus_product(weight, value[j], rounder)));
        }
    }
    for (int i = 0; i < R; i++)
        for (int j = 0; j < D; j++) store((void *)(s.sum + (r + i) * values + first + j * LANES / 2), sum[i][j]);
}

template <int R>
void add_values(Scratch &s, int r, int cell, int64_t values) {
    int64_t d = 0;
    for (; d + 2 * LANES <= values; d += 2 * LANES) add_values<R, 4>(s, r, cell, values, d);
    for (; d < values; d += LANES / 2) add_values<R, 1>(s, r, cell, values, d);
    for (int i = 0; i < R; i++) s.added[r + i] += VALUE_CELLS;
}

// Takes what is not below a limit out of a cell's values, to the sums apart of the rows that see it.
void add_apart(Scratch &s, const Selection::Tile &tile, int cell, int c, int64_t values, double limit) {
    double *v = s.v + c * values;
    for (int64_t d = 0; d < values; d++) {
        if (std::fabs(v[d]) < limit) continue;
        for (int r = tile.row; r < tile.row + tile.rows; r++) {
            const double weight = s.weight[r][cell + c];
            if (weight != 0) s.large[r * values + d] += weight * v[d];
        }
        v[d] = 0;
    }
}

int64_t pattern(double number) {
    int64_t bits;
    std::memcpy(&bits, &number, sizeof bits);
    return bits;
}

// A tile's weights of a row and their part of its total. False: there is a NaN among them.
bool weigh(Scratch &s, const float *score, int r, float most) {
    ints total = all(0), sizes = all(0);
    for (int64_t c = 0; c < CELLS; c += LANES) {
        const floats weight = exponential(minus(load(score + c), all(most)));
        sizes = largest_size(sizes, weight);
        const doubles low = low_half(weight), high = high_half(weight);
        store(s.weight[r] + c, low);
        store(s.weight[r] + c + LANES / 2, high);
        total = plus_long(total, bits_of(plus(low, all(ROUNDER))));
        total = plus_long(total, bits_of(plus(high, all(ROUNDER))));
    }
    s.total[r] += (int64_t)((uint64_t)sum_of_longs(total) - CELLS * (uint64_t)pattern(ROUNDER));
    return all_sizes_below(sizes, LARGE);
}

// A row's sum divided by its total, the head's sink counted in. A row that sees nothing is 0.
void finish(const hearth_attention_args &a, const Division &by, const Block &block, const Scratch &s, int r,
            float most, int64_t first, int64_t count) {
    const int64_t head = block.head(by, r);
    const uint64_t none = (uint64_t)s.added[r] * (uint64_t)pattern(ROUNDER);
    double total = (double)s.total[r] * STEP;
    if (a.sinks) total += std::exp((double)a.sinks[head] - most);
    if (s.spoiled >> r & 1) total = NAN;
    const double by_total = total != 0 ? 1 / total : 0;
    float *out = (float *)((char *)a.out + block.n(by, r) * a.out_row_bytes + head * a.out_head_bytes) + first;
    for (int64_t d = 0; d < count; d++) {
        double sum = (double)(int64_t)((uint64_t)s.sum[r * count + d] - none) * STEP;
        if (s.any_large) sum += s.large[r * count + d];
        out[d] = (float)(sum * by_total);
    }
}

// The sums of a tile's rows += the weights from one of its cells on times their values.
void add_cells(const hearth_attention_args &a, int64_t head, Scratch &s, const Selection::Tile &tile,
               const int32_t *cells, int cell, int64_t first, int64_t count) {
    const uint32_t apart = convert_values(a, head, cells + cell, first, count, s.v);
    for (int c = 0; apart >> c != 0; c++)
        if (apart >> c & 1) add_apart(s, tile, cell, c, count, large_of(a));
    s.any_large = s.any_large || apart != 0;
    int r = tile.row;
    const int last = tile.row + tile.rows;
    for (; r + 4 <= last; r += 4) add_values<4>(s, r, cell, count);
    for (; r + 2 <= last; r += 2) add_values<2>(s, r, cell, count);
    for (; r < last; r++) add_values<1>(s, r, cell, count);
}

// Values first to first + count - 1 of a block's results.
void sum_up(const hearth_attention_args &a, const Division &by, const Block &block, const Selection &chosen,
            Scratch &s, const Scores &from, int64_t first, int64_t count) {
    float most[ROWS];
    for (int r = 0; r < block.rows; r++) {
        // without the sink: far below it the weights would be less than STEP
        most[r] = -INFINITY;
        for (int64_t p = 0; p < chosen.parts(); p++) most[r] = std::max(most[r], from.most[p * by.lines + r]);
        if (most[r] == -INFINITY) most[r] = 0;  // it sees nothing, or NaN
    }
    s.clear(block.rows * count);
    for (size_t t = 0; t < chosen.tiles.size(); t++) {
        const Selection::Tile &tile = chosen.tiles[t];
        for (int r = tile.row; r < tile.row + tile.rows; r++)
            if (!weigh(s, from.row(tile, r), r, most[r])) s.spoiled |= 1u << r;
        for (int cell = 0; cell < CELLS; cell += VALUE_CELLS)
            add_cells(a, block.head_kv, s, tile, chosen.cells.data() + t * CELLS, cell, first, count);
    }
    for (int r = 0; r < block.rows; r++) finish(a, by, block, s, r, most[r], first, count);
}

void whole(const hearth_attention_args &a, const Division &by, int64_t item, Scratch &s, const Scores &scores,
           Selection &chosen) {
    const Block block(by, item);
    chosen.choose(a, by, block);
    start(a, by, block, s);
    for (int64_t part = 0; part < chosen.parts(); part++) score_part(a, by, block, chosen, s, scores, part);
    sum_up(a, by, block, chosen, s, scores, 0, a.v.values);
}

// One of the parts of all items' scores, or of the segments of their sums.
struct Share {
    int64_t item, at;
    Share(int64_t i, int64_t each) : item(i / each), at(i % each) {}
};

}  // namespace
}  // namespace hearth

using namespace hearth;

extern "C" bool hearth_attention_takes(int type_k, int type_v, int64_t values, int64_t values_v) {
    const auto known = [](int type, int64_t count) {
        return (type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16 || (type == TYPE_Q8_0 && count % 32 == 0)) &&
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
        static thread_local Selection chosen;  // keeps its memory
        if (!by.divided) {
#pragma omp for schedule(dynamic, 1)
            for (int64_t item = 0; item < by.items; item++) whole(a, by, item, s, Scores(by, scores + thread * size), chosen);
        } else {
            int64_t begun = -1;
#pragma omp for schedule(static)
            for (int64_t i = 0; i < by.items * by.parts; i++) {
                const Share part(i, by.parts);
                const Block block(by, part.item);
                if (part.item != begun) {
                    chosen.choose(a, by, block);
                    start(a, by, block, s);
                    begun = part.item;
                }
                if (part.at < chosen.parts())
                    score_part(a, by, block, chosen, s, Scores(by, scores + part.item * size), part.at);
            }
#pragma omp for schedule(static)
            for (int64_t i = 0; i < by.items * by.segments; i++) {
                const Share segment(i, by.segments);
                const Block block(by, segment.item);
                if (segment.item != begun) chosen.choose(a, by, block);
                begun = segment.item;
                const int64_t first = segment.at * SEGMENT;
                sum_up(a, by, block, chosen, s, Scores(by, scores + segment.item * size), first,
                       std::min(SEGMENT, a.v.values - first));
            }
        }
    }
}
