// Flash attention on the processor: what the cells have is converted to floats once for all rows
// that look at them, rows of all heads that share a key among them.
//
// Query rows are taken in blocks of BLOCK_ROWS, the cells that these see in tiles of TILE_CELLS
// (visible_cells.h). First all scores of a block, with the largest of each row, then the sums of
// the values, not in one pass with corrections as on a GPU: a row's result has the same bits
// whatever other rows are computed with it, and wherever its cells lie. To that end the sums are
// fixed-point: whole numbers of UNIT in 64 bits, which are the same added in any order. Few blocks
// and many threads: the scores are divided by cells, the sums by dimensions.
#include "attention.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "simd.h"
#include "types.h"
#include "visible_cells.h"

namespace hearth {
namespace {

constexpr int VALUE_CELLS = 16;  // whose values, as doubles, leave space in the first-level cache
// A score is added in eight lanes at every level, so that it has the same bits: a wider register
// has the keys of PACKED_CELLS cells, eight numbers of each.
constexpr int PACKED_CELLS = LANES / 8;
constexpr int SCORE_CELLS = 4 * PACKED_CELLS;  // whose keys are multiplied together
constexpr int MAX_ROWS = LANES == 16 ? 4 : 2;  // taken together: so many sums fit into registers
constexpr int64_t MAX_HEAD_DIM = 256;

// A product is rounded to UNIT by adding ROUNDER, of whose last bit it is the size; the bits of the
// sum are added as integers. A softmax weight is 1 at most. Values from MAX_FIXED_POINT on are
// added apart, in floating point; with smaller ones and up to MAX_FIXED_POINT_CELLS no sum
// overflows.
constexpr double UNIT = 0x1p-35, ROUNDER = 0x1.8p17;
constexpr float MAX_FIXED_POINT = 1024;
constexpr int64_t MAX_FIXED_POINT_CELLS = (int64_t)1 << 18;

// What the first half leaves for the second.
struct Scores {
    float *score;    // [score rows of all tiles][TILE_CELLS]
    float *row_max;  // [tile splits][rows of the block]

    static size_t size(const Partition &by) {
        return ceil_div(by.max_score_rows() * TILE_CELLS + by.tile_splits * by.block_rows, 16) * 16;
    }
    Scores(const Partition &by, float *memory)
        : score(memory), row_max(memory + by.max_score_rows() * TILE_CELLS) {}
    float *row(const VisibleCells::Tile &tile, int r) const {
        return score + (tile.score_row + r - tile.row) * TILE_CELLS;
    }
};

// A thread's memory, of size() floats. Vectors are of k's head_dim, or of the part of v's.
struct ThreadScratch {
    float *q, *k;       // [BLOCK_ROWS], [TILE_CELLS] vectors
    double *v;          // [VALUE_CELLS] vectors
    int64_t *sum;       // [BLOCK_ROWS] vectors, of UNIT
    double *large_sum;  // [BLOCK_ROWS] vectors: what is added apart
    alignas(64) double weight[BLOCK_ROWS][TILE_CELLS];
    alignas(64) float mask[TILE_CELLS];  // what one row of it has for a tile
    int64_t weight_sum[BLOCK_ROWS];      // of UNIT
    int64_t products[BLOCK_ROWS];        // in each sum
    bool any_large;
    uint32_t nan_rows;  // bit r: row r has a NaN among its weights

    static size_t size(const hearth_attention_args &a) {
        const int64_t q_and_k = (BLOCK_ROWS + TILE_CELLS) * a.q.head_dim;
        return ceil_div(q_and_k + 2 * (2 * BLOCK_ROWS + VALUE_CELLS) * a.v.head_dim, 16) * 16;
    }
    ThreadScratch(const hearth_attention_args &a, float *memory) {
        v = (double *)memory;
        sum = (int64_t *)(v + VALUE_CELLS * a.v.head_dim);
        large_sum = (double *)(sum + BLOCK_ROWS * a.v.head_dim);
        q = (float *)(large_sum + BLOCK_ROWS * a.v.head_dim);
        k = q + BLOCK_ROWS * a.q.head_dim;
    }
    void clear_sums(int64_t count) {
        std::memset(sum, 0, count * sizeof *sum);
        std::memset(large_sum, 0, count * sizeof *large_sum);
        std::memset(weight_sum, 0, sizeof weight_sum);
        std::memset(products, 0, sizeof products);
        any_large = false;
        nan_rows = 0;
    }
};

float max_fixed_point(const hearth_attention_args &a) {
    return a.cells <= MAX_FIXED_POINT_CELLS ? MAX_FIXED_POINT
                                            : MAX_FIXED_POINT * MAX_FIXED_POINT_CELLS / a.cells;
}

const char *vector_address(const hearth_vectors &from, int64_t head, int32_t cell) {
    return (const char *)from.data + cell * from.row_bytes + head * from.head_bytes;
}

// Fetches `count` numbers of a cell's vector. Those of a head lie far apart, which the processor
// does not foresee.
template <class Row>
void prefetch_vector(const hearth_vectors &from, int64_t head, int32_t cell, int64_t first,
                     int64_t count) {
    if (cell < 0) return;
    const char *vector = vector_address(from, head, cell);
    const char *end = Row::address(vector, first + count);
    for (const char *p = Row::address(vector, first); p < end; p += 64) prefetch(p);
}

// The keys of TILE_CELLS cells as floats, zeros for those that are none: to [TILE_CELLS /
// PACKED_CELLS][head_dim / 8][PACKED_CELLS][8].
template <class Row>
void load_keys(const hearth_attention_args &a, int64_t head, const int32_t *cells, float *to) {
    const int64_t count = a.k.head_dim;
    for (int c = 0; c < TILE_CELLS; c++) {
        prefetch_vector<Row>(a.k, head, cells[c + PREFETCH_CELLS], 0, count);
        float *key = to + (c - c % PACKED_CELLS) * count + c % PACKED_CELLS * 8;
        const char *p = cells[c] < 0 ? nullptr : vector_address(a.k, head, cells[c]);
        for (int64_t i = 0; i < count; i += LANES)
            store_eights(key + i * PACKED_CELLS, LANES, p ? Row::lanes(p, i) : zero_f32());
    }
}

// Numbers first to first + count - 1 of the values of VALUE_CELLS cells as doubles, zeros for cells
// that are none. Bit c of the result: some of cell c are too large for fixed point, or not finite.
template <class Row>
uint32_t load_values(const hearth_attention_args &a, int64_t head, const int32_t *cells,
                     int64_t first, int64_t count, double *to) {
    const float limit = max_fixed_point(a);
    uint32_t large = 0;
    for (int c = 0; c < VALUE_CELLS; c++, to += count) {
        prefetch_vector<Row>(a.v, head, cells[c + PREFETCH_CELLS], first, count);
        if (cells[c] < 0) {
            std::memset(to, 0, count * sizeof(double));
            continue;
        }
        const char *p = vector_address(a.v, head, cells[c]);
        vec_int abs_bits = broadcast(0);
        for (int64_t i = 0; i < count; i += LANES) {
            const vec_f32 v = Row::lanes(p, first + i);
            abs_bits = max_abs_bits(abs_bits, v);
            store_f64(to + i, v);
        }
        large |= (uint32_t)!all_below(abs_bits, limit) << c;
    }
    return large;
}

// Calls f(r, R) for the tile's rows, R of them at a time as a compile-time constant: MAX_ROWS, 2 or
// 1.
template <class F>
void for_rows(const VisibleCells::Tile &tile, F f) {
    int r = tile.row;
    const int last = tile.row + tile.rows;
    for (; r + MAX_ROWS <= last; r += MAX_ROWS) f(r, std::integral_constant<int, MAX_ROWS>{});
    for (; r + 2 <= last; r += 2) f(r, std::integral_constant<int, 2>{});
    for (; r < last; r++) f(r, std::integral_constant<int, 1>{});
}

// Products of rows r to r + R - 1 with the keys of the tile in scratch.
template <int R>
void multiply_keys(const ThreadScratch &s, const Scores &to, const VisibleCells::Tile &tile, int r,
                   int64_t head_dim) {
    const float *q = s.q + r * head_dim;
    for (int c = 0; c < TILE_CELLS; c += SCORE_CELLS) {
        const float *k = s.k + c * head_dim;
        vec_f32 acc[R][4];
        for (int i = 0; i < R; i++)
            for (int j = 0; j < 4; j++) acc[i][j] = zero_f32();
        for (int64_t d = 0; d < head_dim; d += 8) {
            vec_f32 key[4];
            for (int j = 0; j < 4; j++) key[j] = load(k + (j * head_dim + d) * PACKED_CELLS);
            for (int i = 0; i < R; i++) {
                const vec_f32 query = load_eight(q + i * head_dim + d);
                for (int j = 0; j < 4; j++) acc[i][j] = fma(query, key[j], acc[i][j]);
            }
        }
        for (int i = 0; i < R; i++) reduce_add_eights(acc[i], to.row(tile, r + i) + c);
    }
}

// A head's factor of the mask (ALiBi, Press et al. 2021), as in GGUF models.
float alibi_slope(const hearth_attention_args &a, int64_t head) {
    if (a.max_bias <= 0) return 1.0f;
    const int64_t power = (int64_t)1 << (int)std::floor(std::log2((double)a.heads));
    return head < power
               ? std::pow(std::exp2(-a.max_bias / power), (float)(head + 1))
               : std::pow(std::exp2(-a.max_bias / 2 / power), (float)(2 * (head - power) + 1));
}

// What a row of the mask has for a tile's cells; -infinity for those that are none.
void load_mask(const hearth_attention_args &a, int64_t row, const int32_t *cells, float *to) {
    const uint16_t *m = a.mask != nullptr ? mask_row(a, row) : nullptr;
    const int32_t last = cells[TILE_CELLS - 1];
    if (last >= 0 && (m == nullptr || last - cells[0] == TILE_CELLS - 1)) {  // in one piece
        for (int c = 0; c < TILE_CELLS; c += LANES)
            store(to + c, m != nullptr ? load_f16(m + cells[0] + c) : zero_f32());
        return;
    }
    for (int c = 0; c < TILE_CELLS; c++)
        to[c] = cells[c] < 0 ? -INFINITY : m != nullptr ? f16_to_f32(m[cells[c]]) : 0.0f;
}

// Applies softcap and mask to a row's products with a tile, in place. The largest of them and of
// row_max.
float finish_scores(const hearth_attention_args &a, float *score, const float *mask, float slope,
                    float row_max) {
    vec_f32 largest = broadcast(row_max);
    for (int c = 0; c < TILE_CELLS; c += LANES) {
        vec_f32 v = load(score + c), bias = load(mask + c);
        if (a.softcap != 0) {  // softcap * tanh(v)
            const vec_f32 e = exp(mul(v, broadcast(2.0f)));
            v = mul(broadcast(a.softcap), div(sub(e, broadcast(1.0f)), add(e, broadcast(1.0f))));
        }
        if (a.max_bias > 0) bias = mul(bias, broadcast(slope));
        v = add_mask(v, bias);
        largest = max(v, largest);  // a NaN is left out; the weights will have it
        store(score + c, v);
    }
    return reduce_max(largest);
}

// Sums of rows r to r + R - 1 += their weights times the values in scratch, D registers from
// dimension `first` on. cell: the first of the values' cells in the tile.
template <int R, int D>
void add_products(ThreadScratch &s, int r, int cell, int64_t head_dim, int64_t first) {
    const vec_f64 rounder = broadcast(ROUNDER);
    const auto sum_address = [&](int i, int j) {
        return s.sum + (r + i) * head_dim + first + j * LANES / 2;
    };
    vec_int acc[R][D];
    for (int i = 0; i < R; i++)
        for (int j = 0; j < D; j++) acc[i][j] = load_int(sum_address(i, j));
    for (int c = 0; c < VALUE_CELLS; c++) {
        vec_f64 value[D];
        for (int j = 0; j < D; j++) value[j] = load(s.v + c * head_dim + first + j * LANES / 2);
        for (int i = 0; i < R; i++) {
            const vec_f64 weight = broadcast(s.weight[r + i][cell + c]);
            for (int j = 0; j < D; j++)
                acc[i][j] = add_i64(acc[i][j], bitcast_int(fma(weight, value[j], rounder)));
        }
    }
    for (int i = 0; i < R; i++)
        for (int j = 0; j < D; j++) store_int(sum_address(i, j), acc[i][j]);
}

// The same of all dimensions.
template <int R>
void add_products(ThreadScratch &s, int r, int cell, int64_t head_dim) {
    int64_t d = 0;
    for (; d + 2 * LANES <= head_dim; d += 2 * LANES) add_products<R, 4>(s, r, cell, head_dim, d);
    for (; d < head_dim; d += LANES / 2) add_products<R, 1>(s, r, cell, head_dim, d);
    for (int i = 0; i < R; i++) s.products[r + i] += VALUE_CELLS;
}

// Moves what is not below `limit` from the values of cell c in scratch to large_sum of the rows
// that see it.
void add_large_values(ThreadScratch &s, const VisibleCells::Tile &tile, int cell, int c,
                      int64_t head_dim, double limit) {
    double *v = s.v + c * head_dim;
    for (int64_t d = 0; d < head_dim; d++) {
        if (std::fabs(v[d]) < limit) continue;
        for (int r = tile.row; r < tile.row + tile.rows; r++) {
            const double weight = s.weight[r][cell + c];
            if (weight != 0) s.large_sum[r * head_dim + d] += weight * v[d];
        }
        v[d] = 0;
    }
}

// What `count` additions of ROUNDER put into a sum of bits.
uint64_t rounder_bits(int64_t count) { return (uint64_t)count * read<uint64_t>(&ROUNDER); }

// The weights e^(score - row_max) of a row for a tile, in scratch, and their part of weight_sum.
// False: there is a NaN among them.
bool compute_weights(ThreadScratch &s, const float *score, int r, float row_max) {
    vec_int sum = broadcast(0), abs_bits = broadcast(0);
    for (int64_t c = 0; c < TILE_CELLS; c += LANES) {
        const vec_f32 weight = exp(sub(load(score + c), broadcast(row_max)));
        abs_bits = max_abs_bits(abs_bits, weight);
        const vec_f64 low = cvt_f64_low(weight), high = cvt_f64_high(weight);
        store(s.weight[r] + c, low);
        store(s.weight[r] + c + LANES / 2, high);
        sum = add_i64(sum, bitcast_int(add(low, broadcast(ROUNDER))));
        sum = add_i64(sum, bitcast_int(add(high, broadcast(ROUNDER))));
    }
    // the bits of a NaN wrap around
    const uint64_t added = (uint64_t)reduce_add_i64(sum) - rounder_bits(TILE_CELLS);
    s.weight_sum[r] = (int64_t)((uint64_t)s.weight_sum[r] + added);
    return all_below(abs_bits, MAX_FIXED_POINT);
}

// A block of query rows, by one thread; several may share it, each with scratch and cells of its
// own.
struct BlockAttention {
    const hearth_attention_args &a;
    const Partition &by;
    RowBlock block;
    ThreadScratch &s;
    VisibleCells &visible;
    Scores scores;

    BlockAttention(const hearth_attention_args &args, const Partition &partition, int64_t task,
                   ThreadScratch &scratch, VisibleCells &cells, float *scores_memory)
        : a(args),
          by(partition),
          block(partition, task),
          s(scratch),
          visible(cells),
          scores(partition, scores_memory) {}

    void find_cells() { visible.find(a, by, block); }

    // The rows, scaled, in scratch.
    void load_queries() {
        for (int r = 0; r < block.rows; r++) {
            const char *row = vector_address(a.q, block.head(by, r), (int32_t)block.row(by, r));
            for (int64_t d = 0; d < a.q.head_dim; d += LANES)
                store(s.q + r * a.q.head_dim + d,
                      mul(broadcast(a.scale), load((const float *)row + d)));
        }
    }

    // The scores of a split's tiles. Needs the cells and the queries.
    void compute_scores(int64_t split) {
        float *row_max = scores.row_max + split * by.block_rows, slope[BLOCK_ROWS];
        for (int r = 0; r < block.rows; r++) {
            row_max[r] = -INFINITY;
            slope[r] = alibi_slope(a, block.head(by, r));
        }
        const int64_t end = std::min<int64_t>(visible.tiles.size(), (split + 1) * SPLIT_TILES);
        for (int64_t t = split * SPLIT_TILES; t < end; t++) {
            const VisibleCells::Tile &tile = visible.tiles[t];
            const int32_t *cells = visible.cells.data() + t * TILE_CELLS;
            with_row(a.k.type,
                     [&](auto row) { load_keys<decltype(row)>(a, block.head_kv, cells, s.k); });
            for_rows(tile, [&](int r, auto rows) {
                multiply_keys<decltype(rows)::value>(s, scores, tile, r, a.q.head_dim);
            });
            for (int r = tile.row; r < tile.row + tile.rows; r++) {
                if (r == tile.row || block.row(by, r) != block.row(by, r - 1))
                    load_mask(a, block.row(by, r), cells, s.mask);
                row_max[r] = finish_scores(a, scores.row(tile, r), s.mask, slope[r], row_max[r]);
            }
        }
    }

    // Numbers first to first + count - 1 of the results. Needs the cells and all scores.
    void compute_output(int64_t first, int64_t count) {
        float row_max[BLOCK_ROWS];
        for (int r = 0; r < block.rows; r++) {
            // without the sink: far below it the weights would be less than UNIT
            row_max[r] = -INFINITY;
            for (int64_t split = 0; split < visible.tile_splits(); split++)
                row_max[r] = std::max(row_max[r], scores.row_max[split * by.block_rows + r]);
            if (row_max[r] == -INFINITY) row_max[r] = 0;  // it sees nothing, or NaN
        }
        s.clear_sums(block.rows * count);
        for (size_t t = 0; t < visible.tiles.size(); t++) {
            const VisibleCells::Tile &tile = visible.tiles[t];
            for (int r = tile.row; r < tile.row + tile.rows; r++)
                if (!compute_weights(s, scores.row(tile, r), r, row_max[r])) s.nan_rows |= 1u << r;
            const int32_t *cells = visible.cells.data() + t * TILE_CELLS;
            for (int cell = 0; cell < TILE_CELLS; cell += VALUE_CELLS)
                add_values(tile, cells + cell, cell, first, count);
        }
        for (int r = 0; r < block.rows; r++) write_row(r, row_max[r], first, count);
    }

private:
    // Sums of a tile's rows += their weights times the values of VALUE_CELLS cells, which are the
    // tile's from `cell` on.
    void add_values(const VisibleCells::Tile &tile, const int32_t *cells, int cell, int64_t first,
                    int64_t count) {
        const uint32_t large = with_row(a.v.type, [&](auto row) {
            return load_values<decltype(row)>(a, block.head_kv, cells, first, count, s.v);
        });
        for (int c = 0; large >> c != 0; c++)
            if (large >> c & 1) add_large_values(s, tile, cell, c, count, max_fixed_point(a));
        s.any_large = s.any_large || large != 0;
        for_rows(tile,
                 [&](int r, auto rows) { add_products<decltype(rows)::value>(s, r, cell, count); });
    }

    // A row's sum divided by that of its weights, the head's sink counted in; 0 for a row that sees
    // nothing.
    void write_row(int r, float row_max, int64_t first, int64_t count) {
        const int64_t head = block.head(by, r);
        const uint64_t bias = rounder_bits(s.products[r]);
        double weight_sum = (double)s.weight_sum[r] * UNIT;
        if (a.sinks) weight_sum += std::exp((double)a.sinks[head] - row_max);
        if (s.nan_rows >> r & 1) weight_sum = NAN;
        const double inverse = weight_sum != 0 ? 1 / weight_sum : 0;
        char *row = (char *)a.out + block.row(by, r) * a.out_row_bytes + head * a.out_head_bytes;
        float *out = (float *)row + first;
        for (int64_t d = 0; d < count; d++) {
            double sum = (double)(int64_t)((uint64_t)s.sum[r * count + d] - bias) * UNIT;
            if (s.any_large) sum += s.large_sum[r * count + d];
            out[d] = (float)(sum * inverse);
        }
    }
};

// All blocks by the threads of the team together: every split of every block's scores, then of its
// output. scores: `size` floats for each task.
void attend_split(const hearth_attention_args &a, const Partition &by, ThreadScratch &s,
                  VisibleCells &visible, float *scores, size_t size) {
    int64_t found = -1;  // the task whose cells are in visible
#pragma omp for schedule(static)
    for (int64_t i = 0; i < by.tasks * by.tile_splits; i++) {
        const int64_t task = i / by.tile_splits, split = i % by.tile_splits;
        BlockAttention attention(a, by, task, s, visible, scores + task * size);
        if (task != found) {
            attention.find_cells();
            attention.load_queries();
            found = task;
        }
        if (split < visible.tile_splits()) attention.compute_scores(split);
    }
#pragma omp for schedule(static)
    for (int64_t i = 0; i < by.tasks * by.dim_splits; i++) {
        const int64_t task = i / by.dim_splits, first = i % by.dim_splits * SPLIT_DIMS;
        BlockAttention attention(a, by, task, s, visible, scores + task * size);
        if (task != found) attention.find_cells();
        found = task;
        attention.compute_output(first, std::min(SPLIT_DIMS, a.v.head_dim - first));
    }
}

}  // namespace
}  // namespace hearth

using namespace hearth;

extern "C" bool hearth_attention_supports(int k_type, int v_type, int64_t k_head_dim,
                                          int64_t v_head_dim) {
    const auto supported = [](int type, int64_t head_dim) {
        return (type == TYPE_F32 || type == TYPE_F16 || type == TYPE_BF16 ||
                (type == TYPE_Q8_0 && head_dim % 32 == 0)) &&
               head_dim > 0 && head_dim <= MAX_HEAD_DIM && head_dim % LANES == 0;
    };
    return supported(k_type, k_head_dim) && supported(v_type, v_head_dim);
}

extern "C" size_t hearth_attention_workspace_bytes(const hearth_attention_args *args) {
    const Partition by(*args);
    const size_t scores = (by.split ? by.tasks : args->threads) * Scores::size(by);
    return (args->threads * ThreadScratch::size(*args) + scores) * sizeof(float);
}

extern "C" void hearth_attention(const hearth_attention_args *args) {
    const hearth_attention_args &a = *args;
    const Partition by(a);
    const size_t scratch_size = ThreadScratch::size(a), scores_size = Scores::size(by);
    float *scratch = (float *)a.workspace, *scores = scratch + a.threads * scratch_size;
#pragma omp parallel num_threads(a.threads)
    {
        const int thread = omp_get_thread_num();
        ThreadScratch s(a, scratch + thread * scratch_size);
        static thread_local VisibleCells visible;  // keeps its memory
        if (by.split) {
            attend_split(a, by, s, visible, scores, scores_size);
        } else {
#pragma omp for schedule(dynamic, 1)
            for (int64_t task = 0; task < by.tasks; task++) {
                BlockAttention attention(a, by, task, s, visible, scores + thread * scores_size);
                attention.find_cells();
                attention.load_queries();
                for (int64_t split = 0; split < visible.tile_splits(); split++)
                    attention.compute_scores(split);
                attention.compute_output(0, a.v.head_dim);
            }
        }
    }
}
