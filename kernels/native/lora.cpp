// Adapters of columns that are computed together. Each value is summed in the same order whichever
// columns there are, so that its bits are the same alone and with others.
#include "lora.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <vector>

#include "dot.h"
#include "simd.h"

namespace hearth {
namespace {

constexpr int64_t TILE = HEARTH_LORA_TILE;
constexpr int PARTS = TILE / LANES;
constexpr int64_t CHUNK = 4 * TILE;        // outputs that are summed at once
constexpr int64_t MIN_PARALLEL = 1 << 17;  // products, from which threads share a part of a map

// How the matrices of an adapter lie.
struct Halves {
    using Dot = F32Dot<F16Row>;
    static constexpr int64_t BYTES = 2;  // of a value of b
    static int64_t row_bytes(int64_t k) { return 2 * k; }
    static vec_f32 values(const char *b) { return load_f16(b); }
    static vec_f32 add_sum(vec_f32 y, vec_f32 sum, const float *) { return add(y, sum); }
};
struct Floats {
    using Dot = F32Dot<F32Row>;
    static constexpr int64_t BYTES = 4;
    static int64_t row_bytes(int64_t k) { return 4 * k; }
    static vec_f32 values(const char *b) { return load((const float *)b); }
    static vec_f32 add_sum(vec_f32 y, vec_f32 sum, const float *) { return add(y, sum); }
};
struct Bytes {
    using Dot = Q8_0Dot;
    static constexpr int64_t BYTES = 1;
    static int64_t row_bytes(int64_t k) { return k / Q8_0Row::BLOCK_SIZE * Q8_0Row::BLOCK_BYTES; }
    static vec_f32 values(const char *b) { return load_i8(b); }
    static vec_f32 add_sum(vec_f32 y, vec_f32 sum, const float *scale) {
        return fma(sum, load(scale), y);
    }
};

// hidden[first ..] = DOT_ROWS rows of a · x, or as many as there are.
template <class Format>
void shrink_rows(const hearth_lora_pair &pair, const float *x, int64_t first, float *hidden) {
    const int64_t row_bytes = Format::row_bytes(pair.in);
    const char *rows[DOT_ROWS];
    for (int64_t r = 0; r < DOT_ROWS; r++)
        rows[r] = (const char *)pair.a + std::min(first + r, pair.rank - 1) * row_bytes;
    float sums[1][DOT_ROWS];
    dot_tile<typename Format::Dot, 1>(rows, DOT_ROWS * row_bytes, (const char *)x, 0, pair.in,
                                      sums);
    const int64_t valid = std::min<int64_t>(DOT_ROWS, pair.rank - first);
    std::memcpy(hidden + first, sums[0], valid * sizeof(float));
}

// to[0 .. N tiles) += N tiles of b · hidden.
template <class Format, int N>
inline void add_tiles(const char *b, const float *scale, int64_t rank, const float *hidden,
                      float *to) {
    vec_f32 sums[N][PARTS];
    for (auto &tile : sums)
        for (auto &part : tile) part = zero_f32();
    for (int64_t j = 0; j < rank; j++) {
        const vec_f32 h = broadcast(hidden[j]);
        for (int n = 0; n < N; n++) {
            const char *values = b + (n * rank + j) * TILE * Format::BYTES;
            prefetch(values + N * rank * TILE * Format::BYTES);
            for (int p = 0; p < PARTS; p++)
                sums[n][p] = fma(Format::values(values + p * LANES * Format::BYTES), h, sums[n][p]);
        }
    }
    for (int n = 0; n < N; n++)
        for (int p = 0; p < PARTS; p++) {
            const int64_t at = n * TILE + p * LANES;
            store(to + at, Format::add_sum(load(to + at), sums[n][p], scale + at));
        }
}

// y[first .. end) += b · hidden, end - first at most CHUNK.
template <class Format>
void add_product(const hearth_lora_pair &pair, const float *hidden, int64_t first, int64_t end,
                 float *y) {
    const char *b = (const char *)pair.b + first * pair.rank * Format::BYTES;
    if (end - first == CHUNK)
        return add_tiles<Format, CHUNK / TILE>(b, pair.b_scale + first, pair.rank, hidden,
                                               y + first);
    for (int64_t at = first; at < end; at += TILE, b += TILE * pair.rank * Format::BYTES) {
        const int64_t valid = std::min(TILE, end - at);
        alignas(64) float tile[TILE] = {};
        std::memcpy(tile, y + at, valid * sizeof *tile);
        add_tiles<Format, 1>(b, pair.b_scale + at, pair.rank, hidden, tile);
        std::memcpy(y + at, tile, valid * sizeof *tile);
    }
}

// The uses of adapters with gains, by column.
std::vector<const hearth_lora_use *> uses_with_gains(const hearth_lora_use *uses, int64_t count) {
    std::vector<const hearth_lora_use *> found;
    for (int64_t i = 0; i < count; i++)
        if (uses[i].pair->gain != nullptr) found.push_back(uses + i);
    std::stable_sort(found.begin(), found.end(),
                     [](const auto *a, const auto *b) { return a->column < b->column; });
    return found;
}

// y [a tile] *= 1 + the sum of the gains from output `first` on of uses that have one column.
void scale_tile(const hearth_lora_use *const *uses, const hearth_lora_use *const *end,
                int64_t first, float *y) {
    for (int p = 0; p < PARTS; p++) {
        vec_f32 sum = zero_f32();
        for (const auto *use = uses; use != end; use++)
            sum = fma(broadcast((*use)->scale), load((*use)->pair->gain + first + p * LANES), sum);
        const vec_f32 value = load(y + p * LANES);
        store(y + p * LANES, fma(sum, value, value));
    }
}

// The same from output `start` to `stop` of all columns y.
void scale_columns(const std::vector<const hearth_lora_use *> &uses, int64_t start, int64_t stop,
                   float *const *y) {
    const hearth_lora_use *const *const end = uses.data() + uses.size();
    for (const hearth_lora_use *const *from = uses.data(), *const *next; from != end; from = next) {
        for (next = from + 1; next != end && (*next)->column == (*from)->column;) next++;
        float *to = y[(*from)->column];
        int64_t at = start;
        for (; at + TILE <= stop; at += TILE) scale_tile(from, next, at, to + at);
        if (at >= stop) continue;
        alignas(64) float tile[TILE] = {};
        std::memcpy(tile, to + at, (stop - at) * sizeof *tile);
        scale_tile(from, next, at, tile);
        std::memcpy(to + at, tile, (stop - at) * sizeof *tile);
    }
}

template <class Visit>
void with_format(const hearth_lora_pair &pair, Visit visit) {
    switch (pair.format) {
    case HEARTH_LORA_BYTES: return visit(Bytes{});
    case HEARTH_LORA_F32: return visit(Floats{});
    default: return visit(Halves{});
    }
}

// Where the uses end that have the adapter of the first one.
int64_t end_of_adapter(const hearth_lora_use *uses, int64_t first, int64_t count) {
    int64_t next = first + 1;
    while (next < count && uses[next].pair == uses[first].pair) next++;
    return next;
}

// The uses of a part, in columns of which there are n.
void find_uses(const hearth_lora_part &part, const hearth_lora_step &step, int64_t n,
               std::vector<hearth_lora_use> &uses) {
    uses.clear();
    for (int64_t i = 0; i < step.count; i++) {
        const hearth_lora_acting &acting = step.acting[i];
        if (acting.adapter >= part.count || part.pairs[acting.adapter].rank == 0) continue;
        const hearth_lora_pair *pair = part.pairs + acting.adapter;
        if (acting.column >= 0) {
            if (acting.column < n) uses.push_back({acting.column, pair, acting.scale});
            continue;
        }
        for (int64_t c = 0; c < n; c++) uses.push_back({c, pair, acting.scale});
    }
}

}  // namespace

void add_lora(const hearth_lora_part *parts, int64_t part_count, const hearth_lora_step &step,
              const float *x, int64_t x_stride, int64_t n, float *y, int64_t y_stride,
              int threads) {
    static thread_local std::vector<hearth_lora_use> uses;
    static thread_local std::vector<const float *> from;
    static thread_local std::vector<float *> to;
    static thread_local std::vector<float> hidden;
    from.clear();
    for (int64_t c = 0; c < n; c++) from.push_back(x + c * x_stride);
    for (const hearth_lora_part *part = parts; part < parts + part_count; part++) {
        find_uses(*part, step, n, uses);
        if (uses.empty()) continue;
        int64_t rank = 0, numbers = 0;
        for (const hearth_lora_use &use : uses) {
            rank = std::max(rank, use.pair->rank);
            numbers += use.pair->rank * (use.pair->in + use.pair->out);
        }
        const int64_t count = (int64_t)uses.size();
        const int used = numbers > MIN_PARALLEL ? threads : 1;
        to.clear();
        for (int64_t c = 0; c < n; c++) to.push_back(y + c * y_stride + part->offset);
        if ((int64_t)hidden.size() < count * rank) hidden.resize((size_t)(count * rank));
        hearth_lora_shrink(uses.data(), count, from.data(), rank, hidden.data(), used);
        hearth_lora_expand(uses.data(), count, hidden.data(), rank, n, part->out, to.data(),
                           to.data(), used);
    }
}

}  // namespace hearth

using namespace hearth;

extern "C" void hearth_lora_shrink(const hearth_lora_use *uses, int64_t count,
                                   const float *const *x, int64_t stride, float *hidden,
                                   int threads) {
    const int64_t blocks = ceil_div(stride, DOT_ROWS);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int64_t task = 0; task < count * blocks; task++) {
        const hearth_lora_use &use = uses[task / blocks];
        const hearth_lora_pair &pair = *use.pair;
        const int64_t first = task % blocks * DOT_ROWS;
        if (first >= pair.rank) continue;
        float *to = hidden + task / blocks * stride;
        with_format(pair, [&](auto format) {
            shrink_rows<decltype(format)>(pair, x[use.column], first, to);
        });
        const int64_t end = std::min<int64_t>(first + DOT_ROWS, pair.rank);
        for (int64_t j = first; j < end; j++) to[j] *= use.scale;
    }
}

extern "C" void hearth_lora_expand(const hearth_lora_use *uses, int64_t count, const float *hidden,
                                   int64_t stride, int64_t columns, int64_t out,
                                   const float *const *base, float *const *y, int threads) {
    const int64_t chunks = ceil_div(out, CHUNK);
    const auto gains = uses_with_gains(uses, count);
#pragma omp parallel for schedule(static) num_threads(threads) if (threads > 1)
    for (int part = 0; part < threads; part++) {
        const int64_t start = part * chunks / threads * CHUNK;
        const int64_t stop = std::min((part + 1) * chunks / threads * CHUNK, out);
        for (int64_t c = 0; c < columns; c++)
            if (base[c] != y[c] && stop > start)
                std::memcpy(y[c] + start, base[c] + start, (stop - start) * sizeof(float));
        scale_columns(gains, start, stop, y);
        for (int64_t at = 0, next; at < count; at = next) {
            next = end_of_adapter(uses, at, count);
            for (int64_t first = start; first < stop; first += CHUNK)
                for (int64_t i = at; i < next; i++)
                    with_format(*uses[i].pair, [&](auto format) {
                        add_product<decltype(format)>(*uses[i].pair, hidden + i * stride, first,
                                                      std::min(first + CHUNK, stop),
                                                      y[uses[i].column]);
                    });
        }
    }
}

extern "C" bool hearth_lora_add(const hearth_lora_part *parts, int64_t part_count,
                                const hearth_lora_step *step, const float *x, int64_t x_stride,
                                int64_t n, float *y, int64_t y_stride, int threads) try {
    add_lora(parts, part_count, *step, x, x_stride, n, y, y_stride, threads);
    return true;
} catch (const std::bad_alloc &) {
    return false;
}
