// See linear.h. Weights and inputs in bfloat16 are multiplied in pairs where the processor does that;
// all else is widened to float32 on the way.
#include "linear.h"

#include <algorithm>
#include <new>
#include <vector>

#include "rows.h"

namespace hearth {
namespace {

constexpr int FEW = 32;  // columns, up to which rows are multiplied as they lie
constexpr int ROUNDED = 7;  // columns, from which rounding weights costs less than it saves
constexpr int64_t NEAR_BYTES = 24 << 10, SHORTEST = 512;  // of columns; weights of a row
constexpr int64_t LONG = 1024;  // weights, from which rows are read one after the other
constexpr int PANEL = 2 * LANES, TILE = LANES == 16 ? 12 : 4;  // rows and columns of many
constexpr int64_t STRETCH = 1024;  // weights of a row that are turned at a time
constexpr int64_t SPAN = 504;  // columns, whole tiles, that pass over a panel before it is turned again

// y of one matrix, whose rows stand from offset on.
struct Outputs {
    const hearth_product &p;
    int64_t offset;

    void put(int64_t column, int64_t row, const float *values, int64_t count) const {
        const int64_t at = column * p.y_stride + offset + row;
        if (p.y_type == TYPE_F32) {
            std::memcpy((float *)p.y + at, values, (size_t)count * sizeof(float));
        } else {
            narrow(values, count, (uint16_t *)p.y + at);
        }
    }
};

const char *weight_at(int type, const char *row, int64_t i) {
    return row + (type == TYPE_Q8_0 ? i / 32 * 34 : i * (type == TYPE_F32 ? 4 : 2));
}

template <class W>
void round_as(const char *row, int64_t k, uint16_t *out) {
    int64_t i = 0;
    for (; i + LANES <= k; i += LANES) narrow(W::some(row, i), out + i);
    for (; i < k; i++) out[i] = to_bfloat(W::one(row, i));
}

void round_row(int type, const char *row, int64_t k, uint16_t *out) {
    switch (type) {
    case TYPE_F32: return round_as<AsF32>(row, k, out);
    case TYPE_F16: return round_as<AsF16>(row, k, out);
    case TYPE_Q8_0: return round_as<AsQ8>(row, k, out);
    }
}

// tile() for `count` columns.
template <class K>
void tiles(int count, const char *const *rows, int64_t ahead, const char *x, int64_t x_bytes, int64_t k,
           float (*out)[ROWS]) {
    switch (count) {
    case 1:
        if (k >= LONG) return lines<K, 1>(rows, x, x_bytes, k, out);
        return tile<K, 1>(rows, ahead, x, x_bytes, k, out);
    case 2:
        if (k >= LONG) return lines<K, 2>(rows, x, x_bytes, k, out);
        return tile<K, std::min(2, K::COLUMNS)>(rows, ahead, x, x_bytes, k, out);
    case 3:
        if (k >= LONG) return lines<K, std::min(3, K::COLUMNS)>(rows, x, x_bytes, k, out);
        return tile<K, std::min(3, K::COLUMNS)>(rows, ahead, x, x_bytes, k, out);
    case 4: return tile<K, std::min(4, K::COLUMNS)>(rows, ahead, x, x_bytes, k, out);
    case 5: return tile<K, std::min(5, K::COLUMNS)>(rows, ahead, x, x_bytes, k, out);
    default: return tile<K, K::COLUMNS>(rows, ahead, x, x_bytes, k, out);
    }
}

// Weights from to from + k of ROWS rows, rounded to bfloat16 where K takes that and they are not.
template <class K>
void take(const hearth_matrix &m, const char **rows, int64_t k, uint16_t (*copies)[NEAR_BYTES / 2]) {
    if (K::BYTES != 2 || m.type == TYPE_BF16) return;
    for (int r = 0; r < ROWS; r++) {
        round_row(m.type, rows[r], k, copies[r]);
        rows[r] = (const char *)copies[r];
    }
}

// Rows first to last of m, PANEL at most, by few columns x, x_bytes apart. A part of the columns passes
// over all the rows, such that it stays in the first-level cache.
template <class K>
void few(const hearth_matrix &m, int64_t first, int64_t last, const char *x, int64_t x_bytes, const Outputs &to) {
    const hearth_product &p = to.p;
    const int64_t passes = (p.n + K::COLUMNS - 1) / K::COLUMNS, at_once = (p.n + passes - 1) / passes;
    const int64_t part = std::max<int64_t>(SHORTEST, NEAR_BYTES / (p.n * K::BYTES) / 32 * 32);
    static thread_local uint16_t copies[ROWS][NEAR_BYTES / 2];
    float out[6][ROWS], sums[FEW][PANEL] = {};
    for (int64_t from = 0; from < p.k; from += part) {
        const int64_t k = std::min(part, p.k - from);
        for (int64_t row = first; row < last; row += ROWS) {
            const char *rows[ROWS];
            for (int r = 0; r < ROWS; r++)
                rows[r] = weight_at(m.type, (const char *)m.data + std::min(row + r, last - 1) * m.stride, from);
            take<K>(m, rows, k, copies);
            for (int64_t c = 0; c < p.n; c += at_once) {
                const int count = (int)std::min(at_once, p.n - c);
                tiles<K>(count, rows, c ? 0 : ROWS * m.stride, x + c * x_bytes + from * K::BYTES, x_bytes, k, out);
                for (int i = 0; i < count; i++)
                    for (int r = 0; r < ROWS; r++) sums[c + i][row - first + r] += out[i][r];
            }
        }
    }
    for (int64_t c = 0; c < p.n; c++) to.put(c, first, sums[c], last - first);
}

// STRETCH weights of PANEL rows, of which four bytes of all rows stand side by side.
struct Panel {
    alignas(64) int32_t turned[STRETCH * PANEL];
    char rows[LANES][STRETCH * sizeof(float)];
};

// Weights from to from + count of the row as bytes of `width` each; where they lie if they are that.
const char *plain(const hearth_matrix &m, int64_t row, int64_t from, int64_t count, int width, char *copy) {
    const char *at = weight_at(m.type, (const char *)m.data + row * m.stride, from);
    if (m.type == (width == 2 ? TYPE_BF16 : TYPE_F32)) return at;
    if (width == 2) round_row(m.type, at, count, (uint16_t *)copy);
    else widen(m.type, at, count, (float *)copy);
    return copy;
}

void fill(Panel &panel, const hearth_matrix &m, int64_t row, int64_t from, int64_t count, int width) {
    const int64_t bytes = count * width, whole = bytes / 32, ahead = PANEL * m.stride;
    const bool direct = m.type == (width == 2 ? TYPE_BF16 : TYPE_F32);
    for (int side = 0; side < 2; side++) {
        const char *rows[LANES];
        for (int r = 0; r < LANES; r++)
            rows[r] = plain(m, std::min(row + side * LANES + r, m.rows - 1), from, count, width, panel.rows[r]);
        int32_t *out = panel.turned + side * LANES;
        for (int64_t s = 0; s * 32 < bytes; s++) {
            __m256i taken[LANES];
            char rest[32] = {};
            for (int r = 0; r < LANES; r++) {
                const char *at = rows[r] + 32 * s;
                if (s % 2 == 0 && direct) _mm_prefetch(at + ahead, _MM_HINT_T0);
                if (s == whole) std::memcpy(rest, at, (size_t)(bytes - 32 * s));
                taken[r] = read<__m256i>(s == whole ? rest : at);
            }
            ints turned[8];
            turn(taken, turned);
            for (int j = 0; j < 8; j++, out += PANEL) store(out, turned[j]);
        }
    }
}

// sums[column][row] += a panel by N columns, both as `words` times 4 bytes.
template <class K, int N>
void multiply(const int32_t *panel, const int32_t *x, int64_t words, float (*sums)[PANEL]) {
    floats total[N][2];
    for (int c = 0; c < N; c++)
        for (int side = 0; side < 2; side++) total[c][side] = load(sums[c] + side * LANES);
    for (int64_t i = 0; i < words; i++, panel += PANEL, x += TILE) {
        const ints low = load((const void *)panel), high = load((const void *)(panel + LANES));
        for (int c = 0; c < N; c++) {
            const ints column = all(x[c]);
            total[c][0] = K::add(total[c][0], low, column);
            total[c][1] = K::add(total[c][1], high, column);
        }
    }
    for (int c = 0; c < N; c++)
        for (int side = 0; side < 2; side++) store(sums[c] + side * LANES, total[c][side]);
}

int64_t words_of(int64_t k, int width) { return (k * width + 31) / 32 * 8; }

// PANEL rows from `row` on by all columns, which x holds in tiles; see Columns.
template <class K>
void many(const hearth_matrix &m, int64_t row, const int32_t *x, const Outputs &to) {
    static thread_local Panel panel;
    static thread_local float sums[SPAN][PANEL];
    const hearth_product &p = to.p;
    const int64_t tile_words = words_of(p.k, K::BYTES) * TILE;
    for (int64_t first = 0; first < p.n; first += SPAN) {
        const int64_t columns = std::min(SPAN, p.n - first);
        std::memset(sums, 0, (size_t)((columns + TILE - 1) / TILE * TILE) * sizeof *sums);
        for (int64_t from = 0; from < p.k; from += STRETCH) {
            const int64_t count = std::min(STRETCH, p.k - from), words = words_of(count, K::BYTES);
            fill(panel, m, row, from, count, K::BYTES);
            for (int64_t c = 0; c < columns; c += TILE) {
                const int32_t *at = x + (first + c) / TILE * tile_words + from * K::BYTES / 4 * TILE;
                const int64_t left = columns - c;
                if (left <= 4) multiply<K, 4>(panel.turned, at, words, sums + c);
                else if (left <= 8 && TILE > 8) multiply<K, TILE == 12 ? 8 : 4>(panel.turned, at, words, sums + c);
                else multiply<K, TILE>(panel.turned, at, words, sums + c);
            }
        }
        for (int64_t c = 0; c < columns; c++)
            to.put(first + c, row, sums[c], std::min<int64_t>(PANEL, m.rows - row));
    }
}

template <class W>
void widen_as(const char *row, int64_t k, float *out) {
    int64_t i = 0;
    for (; i + LANES <= k; i += LANES) store(out + i, W::some(row, i));
    for (; i < k; i++) out[i] = W::one(row, i);
}

// Whether rows of m are multiplied with x in bfloat16.
bool takes_pairs(const hearth_product &p, const hearth_matrix &m) {
    if (!PAIRS) return false;
    if (m.type == TYPE_BF16) return p.x_type == TYPE_BF16 || p.narrow;
    return p.narrow && p.n >= ROUNDED;
}

// The columns of a product as numbers of one type, and where there are many, turned: four bytes of
// each column of a tile side by side.
struct Columns {
    std::vector<char> rows, turned;

    // Bytes between columns, as few() takes them.
    static int64_t stride(const hearth_product &p, int width) {
        const int own = p.x_type == TYPE_BF16 ? 2 : 4;
        return width == own ? p.x_stride * width : words_of(p.k, width) * 4;
    }

    const char *make(const hearth_product &p, int width) {
        if (p.n > FEW) return turn_all(p, width);
        if (width == (p.x_type == TYPE_BF16 ? 2 : 4)) return (const char *)p.x;
        const int64_t bytes = stride(p, width);
        rows.resize((size_t)(bytes * p.n));
        for (int64_t c = 0; c < p.n; c++) convert(p, c, width, rows.data() + c * bytes);
        return rows.data();
    }

    // Column c in numbers of this width.
    static void convert(const hearth_product &p, int64_t c, int width, char *to) {
        const int own = p.x_type == TYPE_BF16 ? 2 : 4;
        const char *from = (const char *)p.x + c * p.x_stride * own;
        if (width == own) std::memcpy(to, from, (size_t)(p.k * width));
        else if (width == 4) widen(TYPE_BF16, from, p.k, (float *)to);
        else narrow((const float *)from, p.k, (uint16_t *)to);
    }

    const char *turn_all(const hearth_product &p, int width) {
        const int64_t words = words_of(p.k, width), tiles = (p.n + TILE - 1) / TILE;
        turned.resize((size_t)(tiles * TILE * words * 4));
        char *const to = turned.data();
#pragma omp parallel for schedule(static) num_threads(p.threads) if (p.threads > 1)
        for (int64_t t = 0; t < tiles; t++) turn_tile(p, t, width, words, (int32_t *)to + t * TILE * words);
        return to;
    }

    static void turn_tile(const hearth_product &p, int64_t t, int width, int64_t words, int32_t *to) {
        static thread_local std::vector<int32_t> lines;
        lines.assign((size_t)(TILE * words), 0);
        for (int64_t c = t * TILE; c < std::min(p.n, (t + 1) * TILE); c++)
            convert(p, c, width, (char *)(lines.data() + (c - t * TILE) * words));
        for (int64_t i = 0; i < words; i++)
            for (int c = 0; c < TILE; c++) *to++ = lines[(size_t)(c * words + i)];
    }
};

void rows_of(const hearth_matrix &m, int64_t first, int64_t last, const char *x, bool pairs, const Outputs &to) {
    const hearth_product &p = to.p;
    if (p.n > FEW) {
        for (int64_t row = first; row < last; row += PANEL)
            if (pairs) many<Pairs>(m, row, (const int32_t *)x, to);
            else many<Floats<AsF32>>(m, row, (const int32_t *)x, to);
        return;
    }
    const int64_t bytes = Columns::stride(p, pairs ? 2 : 4);
    if (pairs) return few<Pairs>(m, first, last, x, bytes, to);
    switch (m.type) {
    case TYPE_F32: return few<Floats<AsF32>>(m, first, last, x, bytes, to);
    case TYPE_F16: return few<Floats<AsF16>>(m, first, last, x, bytes, to);
    case TYPE_Q8_0:
        if (p.n <= 2) return few<Blocks>(m, first, last, x, bytes, to);
        return few<Floats<AsQ8>>(m, first, last, x, bytes, to);
    default: return few<Floats<AsBF16>>(m, first, last, x, bytes, to);
    }
}

}  // namespace

void widen(int type, const char *row, int64_t k, float *out) {
    switch (type) {
    case TYPE_F32: return widen_as<AsF32>(row, k, out);
    case TYPE_F16: return widen_as<AsF16>(row, k, out);
    case TYPE_Q8_0: return widen_as<AsQ8>(row, k, out);
    case TYPE_BF16: return widen_as<AsBF16>(row, k, out);
    }
}

}  // namespace hearth

using namespace hearth;

extern "C" bool hearth_linear(const hearth_product *product) try {
    const hearth_product &p = *product;
    static thread_local Columns columns[2];
    const char *x[2] = {nullptr, nullptr};
    int64_t offset = 0;
    for (int64_t i = 0; i < p.count; i++) {
        const hearth_matrix &m = p.matrices[i];
        const bool pairs = takes_pairs(p, m);
        if (!x[pairs]) x[pairs] = columns[pairs].make(p, pairs ? 2 : 4);
        const char *own = x[pairs];
        const Outputs to{p, offset};
        const int64_t panels = (m.rows + PANEL - 1) / PANEL;
        const int chunk = (int)std::max<int64_t>(1, std::min<int64_t>(8, panels / (p.threads * 4)));
#pragma omp parallel for schedule(dynamic, chunk) num_threads(p.threads) if (p.threads > 1 && panels > 1)
        for (int64_t panel = 0; panel < panels; panel++)
            rows_of(m, panel * PANEL, std::min(m.rows, (panel + 1) * PANEL), own, pairs, to);
        offset += m.rows;
    }
    return true;
} catch (const std::bad_alloc &) {
    return false;
}
