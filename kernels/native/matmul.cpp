// Matrix products of GGUF's block formats for several columns.
//
// The columns are quantized to signed bytes, 32 with one scale, as llama.cpp does. The weights are
// taken in panels of LANES rows: a panel's next STRETCH values are put into bytes, turned so that a
// register holds four values of every row, and stay in the first-level cache while the columns, in
// tiles of TILE, pass over them. Weights are read once, from where they lie in the file.
#include "matmul.h"

#include <omp.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "formats.h"
#include "lanes.h"
#include "types.h"

namespace hearth {
namespace {

constexpr int PANELS = LANES == 16 ? 2 : 1;  // that are multiplied together
constexpr int TILE = LANES == 16 ? 4 : 8;    // columns that are: a load for each, shared by the panels
constexpr int STRETCH = 512;                 // values of a row that are unpacked at a time

// TILE columns of x in the order in which they are read: byte j of value 4i + j of column c lies at
// values[(i * TILE + c) * 4 + j]; what belongs to group g of it at [g * TILE + c].
struct Tile {
    int8_t *values;
    float *scale;    // of 32 values
    float *sum;      // scale x sum of GROUP values
    int32_t *start;  // -OFFSET x sum of GROUP values
};

struct Layout {
    size_t values, scale, sum, start, tile;
    explicit Layout(int64_t k) {
        values = 0;
        scale = values + TILE * k;
        sum = scale + TILE * k / 32 * sizeof(float);
        start = sum + TILE * k / 16 * sizeof(float);
        tile = (start + TILE * k / 16 * sizeof(int32_t) + 63) / 64 * 64;
    }
    Tile at(void *work, int64_t t) const {
        char *p = (char *)work + t * tile;
        return {(int8_t *)(p + values), (float *)(p + scale), (float *)(p + sum), (int32_t *)(p + start)};
    }
};

// One column of x into column c of a tile.
template <class F>
void quantize(const float *x, int64_t k, const Tile &tile, int c) {
    for (int64_t g = 0; g < k / 32; g++, x += 32) {
        __m256 v[4];
        __m256 most = _mm256_setzero_ps(), unordered = most;
        for (int i = 0; i < 4; i++) {
            v[i] = _mm256_loadu_ps(x + 8 * i);
            unordered = _mm256_or_ps(unordered, _mm256_cmp_ps(v[i], v[i], _CMP_UNORD_Q));
            most = _mm256_max_ps(most, _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v[i]));
        }
        __m128 m = _mm_max_ps(_mm256_castps256_ps128(most), _mm256_extractf128_ps(most, 1));
        m = _mm_max_ps(m, _mm_movehl_ps(m, m));
        m = _mm_max_ss(m, _mm_movehdup_ps(m));
        const float largest = _mm_cvtss_f32(m);
        // a byte cannot be NaN, the scale can: it must not vanish here
        const float scale = _mm256_movemask_ps(unordered) ? NAN : largest / 127.0f;
        const __m256 by = _mm256_set1_ps(largest > 0 ? 127.0f / largest : 0.0f);
        __m256i q[4];
        for (int i = 0; i < 4; i++) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], by));
        const __m256i low = _mm256_packs_epi32(q[0], q[1]), high = _mm256_packs_epi32(q[2], q[3]);
        // packing works within halves of a register: put the fours back in order
        const __m256i packed = _mm256_permutevar8x32_epi32(
            _mm256_packs_epi16(low, high), _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
        int32_t fours[8];
        _mm256_storeu_si256((__m256i *)fours, packed);
        for (int i = 0; i < 8; i++)
            std::memcpy(tile.values + ((g * 8 + i) * TILE + c) * 4, &fours[i], 4);
        int sums[2] = {0, 0};
        for (int s = 0; s < 2; s++) {
            const __m256i four = _mm256_add_epi32(q[2 * s], q[2 * s + 1]);
            __m128i two = _mm_add_epi32(_mm256_castsi256_si128(four), _mm256_extracti128_si256(four, 1));
            two = _mm_add_epi32(two, _mm_unpackhi_epi64(two, two));
            sums[s] = _mm_cvtsi128_si32(two) + _mm_extract_epi32(two, 1);
        }
        tile.scale[g * TILE + c] = scale;
        if (F::GROUP == 32) sums[0] += sums[1];
        for (int part = 0; part < 32 / F::GROUP; part++) {
            const int64_t at = (g * (32 / F::GROUP) + part) * TILE + c;
            tile.start[at] = -F::OFFSET * sums[part];
            if (F::LEAST) tile.sum[at] = scale * (float)sums[part];
        }
    }
}

// STRETCH values of LANES rows, unpacked.
struct Panel {
    alignas(64) uint8_t bytes[STRETCH * LANES];
    alignas(64) float scale[STRETCH / 16 * LANES];
    alignas(64) float least[STRETCH / 16 * LANES];
};

// The processor's own prefetching does not follow LANES rows at once: ask for the same share of the
// panel that comes some panels later, which lies there in one piece.
template <class F>
void prefetch(const uint8_t *w, size_t row_bytes, int64_t block, int later) {
    const uint8_t *next = w + LANES * (later * row_bytes + block * F::BYTES);
    for (int i = 0; i < LANES * F::BYTES; i += 64) _mm_prefetch((const char *)next + i, _MM_HINT_T0);
}

// Values from to from + count of the rows at w; beyond valid rows the last one again.
template <class F>
void unpack(const uint8_t *w, size_t row_bytes, int valid, int64_t from, int count, int later, Panel &panel) {
    const uint8_t *rows[LANES];
    for (int r = 0; r < LANES; r++)
        rows[r] = w + std::min(r, valid - 1) * row_bytes + from / F::BLOCK * F::BYTES;
    constexpr int GROUPS = F::BLOCK / F::GROUP;
    for (int b = 0; b < count / F::BLOCK; b++) {
        float *scale = panel.scale + b * GROUPS * LANES;
        float *least = panel.least + b * GROUPS * LANES;
        prefetch<F>(w, row_bytes, from / F::BLOCK + b, later);
        F::scales(rows, scale, least);
        F::values(rows, panel.bytes + b * F::BLOCK * LANES);
        for (int r = 0; r < LANES; r++) rows[r] += F::BYTES;
    }
}

// The sums of panels' rows, a line for each column.
using Sums = float (*)[PANELS][LANES];

// sums[c][p] += the rows of panel p times column c of the tile, for the first N columns and P panels,
// values from to from + count.
template <class F, int N, int P>
void multiply(const Panel *panels, const Tile &tile, int64_t from, int count, Sums sums) {
    floats total[N][P];
    for (int c = 0; c < N; c++)
        for (int p = 0; p < P; p++) total[c][p] = load(sums[c][p]);
    const int8_t *x = tile.values + from * TILE;
    const float *x_scale = tile.scale + from / 32 * TILE, *x_sum = tile.sum + from / F::GROUP * TILE;
    const int32_t *start = tile.start + from / F::GROUP * TILE;
    int bytes = 0, scale = 0;
    for (int g = 0; g < count / 32; g++) {
        for (int part = 0; part < 32 / F::GROUP; part++) {
            ints sum[N][P];
            for (int c = 0; c < N; c++)
                for (int p = 0; p < P; p++) sum[c][p] = all(start[c]);
            for (int j = 0; j < F::GROUP / 4; j++) {
                ints w[P];
                for (int p = 0; p < P; p++) w[p] = load(panels[p].bytes + bytes);
                for (int c = 0; c < N; c++) {
                    int32_t four;
                    std::memcpy(&four, x + 4 * c, 4);
                    const ints column = all(four);
                    for (int p = 0; p < P; p++) sum[c][p] = dot<F::SIGNED>(sum[c][p], w[p], column);
                }
                bytes += 4 * LANES;
                x += 4 * TILE;
            }
            for (int p = 0; p < P; p++) {
                const floats s = load(panels[p].scale + scale);
                for (int c = 0; c < N; c++)
                    total[c][p] = plus_product(to_floats(sum[c][p]), times(s, all(x_scale[c])), total[c][p]);
                if (!F::LEAST) continue;
                const floats m = load(panels[p].least + scale);
                for (int c = 0; c < N; c++) total[c][p] = minus_product(m, all(x_sum[c]), total[c][p]);
            }
            scale += LANES;
            start += TILE;
            x_sum += TILE;
        }
        x_scale += TILE;
    }
    for (int c = 0; c < N; c++)
        for (int p = 0; p < P; p++) store(sums[c][p], total[c][p]);
}

template <class F, int P>
void multiply(int n, const Panel *panels, const Tile &tile, int64_t from, int count, Sums sums) {
    switch (n) {
    case 1: return multiply<F, 1, P>(panels, tile, from, count, sums);
    case 2: return multiply<F, 2, P>(panels, tile, from, count, sums);
    case 3: return multiply<F, 3, P>(panels, tile, from, count, sums);
    case 4: return multiply<F, 4, P>(panels, tile, from, count, sums);
    case 5: return multiply<F, std::min(5, TILE), P>(panels, tile, from, count, sums);
    case 6: return multiply<F, std::min(6, TILE), P>(panels, tile, from, count, sums);
    case 7: return multiply<F, std::min(7, TILE), P>(panels, tile, from, count, sums);
    default: return multiply<F, TILE, P>(panels, tile, from, count, sums);
    }
}

constexpr int SPAN = 64 * TILE;  // columns that pass over panels before they are unpacked again
constexpr int HEIGHT = PANELS * LANES;

// What a thread needs.
struct Room {
    Panel panels[PANELS];
    alignas(64) float sums[SPAN][PANELS][LANES];
};

int64_t tiles_of(int64_t columns) { return (columns + TILE - 1) / TILE; }

// What is multiplied: rows of a matrix, from w on, with columns of a set whose tiles begin at work.
struct Piece {
    const hearth_matmul_matrix &matrix;
    const Layout &layout;
    void *work;
    int64_t k, first;  // values; the first column
    int columns;
};

// P panels, the first valid rows of them, from w on.
template <class F, int P>
void panels_of(const Piece &piece, const uint8_t *w, int valid, Panel *panels, Sums sums) {
    const size_t row_bytes = piece.matrix.row_bytes;
    for (int64_t from = 0; from < piece.k; from += STRETCH) {
        const int count = (int)std::min<int64_t>(STRETCH, piece.k - from);
        for (int p = 0; p < P; p++)
            unpack<F>(w + p * LANES * row_bytes, row_bytes, std::min(LANES, valid - p * LANES), from, count, P,
                      panels[p]);
        for (int c = 0; c < piece.columns; c += TILE)
            multiply<F, P>(std::min(TILE, piece.columns - c), panels,
                           piece.layout.at(piece.work, (piece.first + c) / TILE), from, count, sums + c);
    }
}

// Rows row to row + HEIGHT - 1. With few columns one panel after the other, which the memory likes.
template <class F>
void rows_of(const Piece &piece, int64_t row, Room &room) {
    const int valid = (int)std::min<int64_t>(HEIGHT, piece.matrix.rows - row);
    const uint8_t *w = (const uint8_t *)piece.matrix.w + row * piece.matrix.row_bytes;
    std::memset(room.sums, 0, sizeof(room.sums[0]) * piece.columns);
    if (piece.columns > TILE && valid > HEIGHT - LANES) {
        panels_of<F, PANELS>(piece, w, valid, room.panels, room.sums);
    } else {
        for (int p = 0; p * LANES < valid; p++)
            panels_of<F, 1>(piece, w + p * LANES * piece.matrix.row_bytes, valid - p * LANES, room.panels,
                            (Sums)room.sums[0][p]);
    }
    for (int c = 0; c < piece.columns; c++)
        std::memcpy(piece.matrix.y[piece.first + c] + row, room.sums[c], valid * sizeof(float));
}

// Few values are quantized by each thread for itself: that takes less time than waiting for others.
constexpr int64_t FEW_VALUES = 4096;

bool few(int64_t k, int64_t columns) { return k * columns <= FEW_VALUES; }

size_t tiles_bytes(int64_t k, int64_t columns, int64_t sets) { return Layout(k).tile * (columns / TILE + sets); }

template <class F>
void quantize(const hearth_matmul_args &a, const hearth_matmul_columns &set, const Layout &layout, void *work,
              int64_t c) {
    quantize<F>(a.x[set.first + c], a.k, layout.at(work, c / TILE), (int)(c % TILE));
}

// The tiles of every set, one behind the other, and where each begins.
template <class F>
void quantize(const hearth_matmul_args &a, const Layout &layout, bool each, void *work, void **starts) {
    for (int64_t s = 0; s < a.sets; s++) {
        const int64_t count = a.set[s].count;
        starts[s] = work;
        if (each) {
            for (int64_t c = 0; c < count; c++) quantize<F>(a, a.set[s], layout, work, c);
        } else {
#pragma omp for schedule(static) nowait
            for (int64_t c = 0; c < count; c++) quantize<F>(a, a.set[s], layout, work, c);
        }
        work = (char *)work + tiles_of(count) * layout.tile;
    }
    if (!each) {
#pragma omp barrier
    }
}

template <class F>
void matmul(const hearth_matmul_args &a) {
    const Layout layout(a.k);
    int64_t columns = 0;
    for (int64_t s = 0; s < a.sets; s++) columns += a.set[s].count;
    const bool each = few(a.k, columns);
#pragma omp parallel num_threads(a.threads)
    {
        Room room;
        std::vector<void *> starts(a.sets);
        char *work = (char *)a.work;
        if (each) work += omp_get_thread_num() * tiles_bytes(a.k, columns, a.sets);
        quantize<F>(a, layout, each, work, starts.data());
        for (int64_t m = 0; m < a.matrices; m++) {
            const hearth_matmul_matrix &matrix = a.matrix[m];
            const int64_t panels = (matrix.rows + HEIGHT - 1) / HEIGHT, count = a.set[matrix.columns].count;
            const int chunk = (int)std::max<int64_t>(1, std::min<int64_t>(16, panels / (a.threads * 4)));
#pragma omp for schedule(dynamic, chunk) nowait
            for (int64_t p = 0; p < panels; p++)
                for (int64_t first = 0; first < count; first += SPAN) {
                    const int span = (int)std::min<int64_t>(SPAN, count - first);
                    const Piece piece = {matrix, layout, starts[matrix.columns], a.k, first, span};
                    rows_of<F>(piece, p * HEIGHT, room);
                }
        }
    }
}

}  // namespace
}  // namespace hearth

using namespace hearth;

extern "C" bool hearth_matmul_takes(int type, int64_t k) {
    switch (type) {
    case TYPE_Q4_0:
    case TYPE_Q4_1:
    case TYPE_Q5_0:
    case TYPE_Q5_1:
    case TYPE_Q8_0:
    case TYPE_IQ4_NL:
    case TYPE_MXFP4: return k > 0 && k % 32 == 0;
    case TYPE_Q2_K:
    case TYPE_Q3_K:
    case TYPE_Q4_K:
    case TYPE_Q5_K:
    case TYPE_Q6_K: return k > 0 && k % 256 == 0;
    default: return false;
    }
}

extern "C" size_t hearth_matmul_work(int64_t k, int64_t columns, int64_t sets, int threads) {
    return tiles_bytes(k, columns, sets) * (few(k, columns) ? threads : 1);
}

extern "C" void hearth_matmul(const hearth_matmul_args *args) {
    switch (args->type) {
    case TYPE_Q4_0: return matmul<Q4_0>(*args);
    case TYPE_Q4_1: return matmul<Q4_1>(*args);
    case TYPE_Q5_0: return matmul<Q5_0>(*args);
    case TYPE_Q5_1: return matmul<Q5_1>(*args);
    case TYPE_Q8_0: return matmul<Q8_0>(*args);
    case TYPE_Q2_K: return matmul<Q2_K>(*args);
    case TYPE_Q3_K: return matmul<Q3_K>(*args);
    case TYPE_Q4_K: return matmul<Q4_K>(*args);
    case TYPE_Q5_K: return matmul<Q5_K>(*args);
    case TYPE_Q6_K: return matmul<Q6_K>(*args);
    case TYPE_IQ4_NL: return matmul<IQ4_NL>(*args);
    case TYPE_MXFP4: return matmul<MXFP4>(*args);
    }
}
