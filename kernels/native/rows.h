// The product of a few rows of weights with a few columns. Sums are in float32.
#pragma once

#include "types.h"

namespace hearth {

constexpr int ROWS = 4;  // of one tile of registers

inline uint16_t to_bfloat(float number) {
    const uint32_t bits = read<uint32_t>(&number);
    return number != number ? 0x7fc0 : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// What is multiplied with what: weights by inputs, STEP at a time in a register.
template <class W>
struct Floats {
    using Register = floats;
    static constexpr int STEP = LANES, BYTES = 4, COLUMNS = LANES == 16 ? 6 : 2;
    static const char *address(const char *row, int64_t i) { return W::address(row, i); }
    static floats weights(const char *row, int64_t i) { return W::some(row, i); }
    static floats inputs(const char *x, int64_t i) { return load((const float *)x + i); }
    static floats weights(const char *row, int64_t i, int64_t k) {
        float rest[LANES] = {};
        for (int64_t at = i; at < k; at++) rest[at - i] = W::one(row, at);
        return load(rest);
    }
    static floats inputs(const char *x, int64_t i, int64_t k) { return Floats<AsF32>::weights(x, i, k); }
    static floats add(floats total, floats w, floats x) { return plus_product(w, x, total); }
    static floats add(floats total, ints w, ints x) { return plus_product(bits_to_floats(w), bits_to_floats(x), total); }
};
// A block of Q8_0 by 32 inputs, scaled once: the faster way for up to two columns.
struct Blocks {
    struct Register {
        floats part[32 / LANES], scale;
    };
    static constexpr int STEP = 32, BYTES = 4, COLUMNS = 2;
    static const char *address(const char *row, int64_t i) { return AsQ8::address(row, i); }
    static Register weights(const char *row, int64_t i) {
        const char *block = row + i / 32 * 34;
        Register w;
        for (int at = 0; at < 32 / LANES; at++) w.part[at] = from_bytes(block + 2 + at * LANES);
        w.scale = all(AsQ8::scale(block));
        return w;
    }
    static Register inputs(const char *x, int64_t i) {
        Register column;
        for (int at = 0; at < 32 / LANES; at++) column.part[at] = load((const float *)x + i + at * LANES);
        return column;
    }
    static Register weights(const char *row, int64_t i, int64_t) { return weights(row, i); }
    static Register inputs(const char *x, int64_t i, int64_t) { return inputs(x, i); }
    static floats add(floats total, const Register &w, const Register &x) {
        floats sum = times(w.part[0], x.part[0]);
        for (int at = 1; at < 32 / LANES; at++) sum = plus_product(w.part[at], x.part[at], sum);
        return plus_product(sum, w.scale, total);
    }
};
#if defined(__AVX512BF16__) && defined(__AVX512BW__)
constexpr bool PAIRS = true;
struct Pairs {
    using Register = __m512i;
    static constexpr int STEP = 32, BYTES = 2, COLUMNS = 6;
    static const char *address(const char *row, int64_t i) { return row + 2 * i; }
    static ints weights(const char *row, int64_t i) { return load((const void *)(row + 2 * i)); }
    static ints inputs(const char *x, int64_t i) { return load((const void *)(x + 2 * i)); }
    static ints weights(const char *row, int64_t i, int64_t k) {
        return _mm512_maskz_loadu_epi16((1u << (k - i)) - 1, row + 2 * i);
    }
    static ints inputs(const char *x, int64_t i, int64_t k) { return weights(x, i, k); }
    static floats add(floats total, ints w, ints x) {
        return _mm512_dpbf16_ps(total, (__m512bh)w, (__m512bh)x);
    }
};
#else
constexpr bool PAIRS = false;
using Pairs = Floats<AsBF16>;
#endif

// Numbers rounded to bfloat16.
inline void narrow(floats from, uint16_t *to) {
#if defined(__AVX512BF16__)
    const __m256bh rounded = _mm512_cvtneps_pbh(from);
    std::memcpy(to, &rounded, sizeof rounded);
#else
    float numbers[LANES];
    store(numbers, from);
    for (int i = 0; i < LANES; i++) to[i] = to_bfloat(numbers[i]);
#endif
}

inline void narrow(const float *from, int64_t count, uint16_t *to) {
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) narrow(load(from + i), to + i);
    for (; i < count; i++) to[i] = to_bfloat(from[i]);
}

// ROWS rows by C columns, row after row as they lie in memory: one column takes 45 GB/s of one core so,
// and 35 where rows are taken together. What lies FAR bytes behind is fetched.
template <class K, int C>
inline void lines(const char *const *rows, const char *x, int64_t x_bytes, int64_t k, float (*out)[ROWS]) {
    constexpr int UNROLLED = C == 1 ? 4 : 2, FAR = 8 << 10;
    floats total[C][ROWS];
    for (int r = 0; r < ROWS; r++) {
        floats parts[C][UNROLLED];
        for (auto &column : parts)
            for (auto &one : column) one = zeros();
        int64_t i = 0;
        for (; i + UNROLLED * K::STEP <= k; i += UNROLLED * K::STEP)
            for (int u = 0; u < UNROLLED; u++) {
                const int64_t at = i + u * K::STEP;
                const typename K::Register w = K::weights(rows[r], at);
                _mm_prefetch(K::address(rows[r], at) + FAR, _MM_HINT_T0);
                for (int c = 0; c < C; c++) parts[c][u] = K::add(parts[c][u], w, K::inputs(x + c * x_bytes, at));
            }
        for (; i + K::STEP <= k; i += K::STEP)
            for (int c = 0; c < C; c++)
                parts[c][0] = K::add(parts[c][0], K::weights(rows[r], i), K::inputs(x + c * x_bytes, i));
        if (i < k)
            for (int c = 0; c < C; c++)
                parts[c][1] = K::add(parts[c][1], K::weights(rows[r], i, k), K::inputs(x + c * x_bytes, i, k));
        for (int c = 0; c < C; c++) {
            total[c][r] = plus(parts[c][0], parts[c][1]);
            for (int u = 2; u < UNROLLED; u++) total[c][r] = plus(total[c][r], parts[c][u]);
        }
    }
    for (int c = 0; c < C; c++) _mm_storeu_ps(out[c], sums_of(total[c][0], total[c][1], total[c][2], total[c][3]));
}

// ROWS rows by C columns that lie x_bytes apart. What lies `ahead` bytes behind is fetched.
template <class K, int C>
inline void tile(const char *const *rows, int64_t ahead, const char *x, int64_t x_bytes, int64_t k, float (*out)[ROWS]) {
    floats total[C][ROWS];
    for (auto &column : total)
        for (auto &one : column) one = zeros();
    int64_t i = 0;
    for (; i + K::STEP <= k; i += K::STEP) {
        typename K::Register column[C];
        for (int c = 0; c < C; c++) column[c] = K::inputs(x + c * x_bytes, i);
        for (int r = 0; r < ROWS; r++) {
            const typename K::Register w = K::weights(rows[r], i);
            _mm_prefetch(K::address(rows[r], i) + ahead, _MM_HINT_T0);
            for (int c = 0; c < C; c++) total[c][r] = K::add(total[c][r], w, column[c]);
        }
    }
    if (i < k)
        for (int r = 0; r < ROWS; r++) {
            const typename K::Register w = K::weights(rows[r], i, k);
            for (int c = 0; c < C; c++) total[c][r] = K::add(total[c][r], w, K::inputs(x + c * x_bytes, i, k));
        }
    for (int c = 0; c < C; c++) _mm_storeu_ps(out[c], sums_of(total[c][0], total[c][1], total[c][2], total[c][3]));
}

}  // namespace hearth
