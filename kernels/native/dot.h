// Dot products of a few rows of weights with a few columns, both as they lie. Sums are in float32.
#pragma once

#include "types.h"

namespace hearth {

constexpr int DOT_ROWS = 4;  // rows that are multiplied together

// How weights are multiplied by inputs: STEP numbers of a row and of a column in a register each.
// INPUT_BYTES: of a number of a column, and of packed weights. MAX_COLUMNS: what the registers
// hold. The functions with an end take the last numbers, from i to k, fewer than STEP.
template <class Row>
struct F32Dot {
    using Register = vec_f32;
    static constexpr int STEP = LANES, INPUT_BYTES = 4, MAX_COLUMNS = LANES == 16 ? 6 : 2;
    static const char *address(const char *row, int64_t i) { return Row::address(row, i); }
    static vec_f32 weights(const char *row, int64_t i) { return Row::lanes(row, i); }
    static vec_f32 inputs(const char *x, int64_t i) { return load((const float *)x + i); }
    static vec_f32 last_weights(const char *row, int64_t i, int64_t k) {
        float rest[LANES] = {};
        for (int64_t at = i; at < k; at++) rest[at - i] = Row::scalar(row, at);
        return load(rest);
    }
    static vec_f32 last_inputs(const char *x, int64_t i, int64_t k) {
        return F32Dot<F32Row>::last_weights(x, i, k);
    }
    static vec_f32 accumulate(vec_f32 acc, vec_f32 w, vec_f32 x) { return fma(w, x, acc); }
    static vec_f32 accumulate(vec_f32 acc, vec_int w, vec_int x) {
        return fma(bitcast_f32(w), bitcast_f32(x), acc);
    }
};

// part = N registers of the inputs from i on.
template <int N>
inline void load_parts(vec_f32 (&part)[N], const char *x, int64_t i) {
    for (int p = 0; p < N; p++) part[p] = load((const float *)x + i + p * LANES);
}

template <int N>
inline vec_f32 sum_of_products(const vec_f32 (&w)[N], const vec_f32 (&x)[N]) {
    vec_f32 sum = mul(w[0], x[0]);
    for (int p = 1; p < N; p++) sum = fma(w[p], x[p], sum);
    return sum;
}

// A block of Q8_0 by 32 inputs, scaled once: faster than F32Dot<Q8_0Row> for up to two columns.
struct Q8_0Dot {
    static constexpr int STEP = Q8_0Row::BLOCK_SIZE, INPUT_BYTES = 4, MAX_COLUMNS = 2;
    struct Register {
        vec_f32 part[STEP / LANES], scale;
    };
    static const char *address(const char *row, int64_t i) { return Q8_0Row::address(row, i); }
    static Register weights(const char *row, int64_t i) {
        const char *block = address(row, i);
        Register w;
        for (int p = 0; p < STEP / LANES; p++) w.part[p] = load_i8(block + 2 + p * LANES);
        w.scale = broadcast(Q8_0Row::scale(block));
        return w;
    }
    static Register inputs(const char *x, int64_t i) {
        Register column;
        load_parts(column.part, x, i);
        return column;
    }
    static Register last_weights(const char *row, int64_t i, int64_t) { return weights(row, i); }
    static Register last_inputs(const char *x, int64_t i, int64_t) { return inputs(x, i); }
    static vec_f32 accumulate(vec_f32 acc, const Register &w, const Register &x) {
        return fma(sum_of_products(w.part, x.part), w.scale, acc);
    }
};

// Half a block of I4 by 32 inputs: the bytes are read once, the minimum multiplies the inputs' sum.
struct I4Dot {
    static constexpr int STEP = 32, INPUT_BYTES = 4, MAX_COLUMNS = 2, HALF = 16 / LANES;
    struct Register {
        vec_f32 part[STEP / LANES], scale, min;
    };
    struct Inputs {
        vec_f32 part[STEP / LANES], sum;
    };
    static const char *address(const char *row, int64_t i) { return I4Row::address(row, i); }
    static Register weights(const char *row, int64_t i) {
        const char *block = address(row, i), *bytes = I4Row::bytes(block, i);
        Register w;
        for (int p = 0; p < HALF; p++) {
            const vec_int v = load_u8(bytes + p * LANES);
            w.part[p] = cvt_f32(and_(v, broadcast((int32_t)15)));
            w.part[p + HALF] = cvt_f32(srl(v, 4));
        }
        w.scale = broadcast(I4Row::scale(block));
        w.min = broadcast(I4Row::min(block));
        return w;
    }
    static Inputs inputs(const char *x, int64_t i) {
        Inputs column;
        load_parts(column.part, x, i);
        column.sum = column.part[0];
        for (int p = 1; p < STEP / LANES; p++) column.sum = add(column.sum, column.part[p]);
        return column;
    }
    static Register last_weights(const char *row, int64_t i, int64_t) { return weights(row, i); }
    static Inputs last_inputs(const char *x, int64_t i, int64_t) { return inputs(x, i); }
    static vec_f32 accumulate(vec_f32 acc, const Register &w, const Inputs &x) {
        return fma(w.min, x.sum, fma(sum_of_products(w.part, x.part), w.scale, acc));
    }
};

// Weights and inputs in bfloat16, multiplied in pairs where the processor does that.
#if defined(__AVX512BF16__) && defined(__AVX512BW__)
constexpr bool HAS_BF16_DOT = true;
struct BF16Dot {
    using Register = __m512i;
    static constexpr int STEP = 32, INPUT_BYTES = 2, MAX_COLUMNS = 6;
    static const char *address(const char *row, int64_t i) { return row + 2 * i; }
    static vec_int weights(const char *row, int64_t i) { return load_int(row + 2 * i); }
    static vec_int inputs(const char *x, int64_t i) { return load_int(x + 2 * i); }
    static vec_int last_weights(const char *row, int64_t i, int64_t k) {
        return _mm512_maskz_loadu_epi16((1u << (k - i)) - 1, row + 2 * i);
    }
    static vec_int last_inputs(const char *x, int64_t i, int64_t k) {
        return last_weights(x, i, k);
    }
    static vec_f32 accumulate(vec_f32 acc, vec_int w, vec_int x) {
        return _mm512_dpbf16_ps(acc, (__m512bh)w, (__m512bh)x);
    }
};
#else
constexpr bool HAS_BF16_DOT = false;
using BF16Dot = F32Dot<BF16Row>;
#endif

// Writes LANES, or `count`, numbers rounded to bfloat16.
inline void store_bf16(uint16_t *to, vec_f32 v) {
#if defined(__AVX512BF16__)
    const __m256bh rounded = _mm512_cvtneps_pbh(v);
    std::memcpy(to, &rounded, sizeof rounded);
#else
    float numbers[LANES];
    store(numbers, v);
    for (int i = 0; i < LANES; i++) to[i] = f32_to_bf16(numbers[i]);
#endif
}
inline void store_bf16(uint16_t *to, const float *from, int64_t count) {
    int64_t i = 0;
    for (; i + LANES <= count; i += LANES) store_bf16(to + i, load(from + i));
    for (; i < count; i++) to[i] = f32_to_bf16(from[i]);
}

template <int C>
inline void store_sums(float (*out)[DOT_ROWS], const vec_f32 (*acc)[DOT_ROWS]) {
    for (int c = 0; c < C; c++) reduce_add4(acc[c][0], acc[c][1], acc[c][2], acc[c][3], out[c]);
}

// out [C][DOT_ROWS] = C columns, x_bytes apart, by DOT_ROWS rows of k weights, row after row as
// they lie in memory: one column takes 45 GB/s of one core so, and 35 where rows are taken
// together.
template <class Dot, int C>
inline void dot_row_by_row(const char *const *rows, const char *x, int64_t x_bytes, int64_t k,
                           float (*out)[DOT_ROWS]) {
    constexpr int UNROLL = C == 1 ? 4 : 2, PREFETCH_BYTES = 8 << 10;
    vec_f32 sums[C][DOT_ROWS];
    for (int r = 0; r < DOT_ROWS; r++) {
        vec_f32 acc[C][UNROLL];
        for (auto &column : acc)
            for (auto &one : column) one = zero_f32();
        int64_t i = 0;
        for (; i + UNROLL * Dot::STEP <= k; i += UNROLL * Dot::STEP)
            for (int u = 0; u < UNROLL; u++) {
                const int64_t at = i + u * Dot::STEP;
                const typename Dot::Register w = Dot::weights(rows[r], at);
                prefetch(Dot::address(rows[r], at) + PREFETCH_BYTES);
                for (int c = 0; c < C; c++)
                    acc[c][u] = Dot::accumulate(acc[c][u], w, Dot::inputs(x + c * x_bytes, at));
            }
        for (; i + Dot::STEP <= k; i += Dot::STEP)
            for (int c = 0; c < C; c++)
                acc[c][0] = Dot::accumulate(acc[c][0], Dot::weights(rows[r], i),
                                            Dot::inputs(x + c * x_bytes, i));
        if (i < k)
            for (int c = 0; c < C; c++)
                acc[c][1] = Dot::accumulate(acc[c][1], Dot::last_weights(rows[r], i, k),
                                            Dot::last_inputs(x + c * x_bytes, i, k));
        for (int c = 0; c < C; c++) {
            sums[c][r] = add(acc[c][0], acc[c][1]);
            for (int u = 2; u < UNROLL; u++) sums[c][r] = add(sums[c][r], acc[c][u]);
        }
    }
    store_sums<C>(out, sums);
}

// The same with TOGETHER of the rows taken together, and one register for each sum, so that its
// bits are the same whatever C and TOGETHER are. What lies prefetch_bytes behind is fetched.
template <class Dot, int C, int TOGETHER = DOT_ROWS>
inline void dot_tile(const char *const *rows, int64_t prefetch_bytes, const char *x,
                     int64_t x_bytes, int64_t k, float (*out)[DOT_ROWS]) {
    vec_f32 sums[C][DOT_ROWS];
    for (int first = 0; first < DOT_ROWS; first += TOGETHER) {
        vec_f32 acc[C][TOGETHER];
        for (auto &column : acc)
            for (auto &one : column) one = zero_f32();
        int64_t i = 0;
        for (; i + Dot::STEP <= k; i += Dot::STEP) {
            decltype(Dot::inputs(x, i)) column[C];
            for (int c = 0; c < C; c++) column[c] = Dot::inputs(x + c * x_bytes, i);
            for (int r = 0; r < TOGETHER; r++) {
                const char *row = rows[first + r];
                const typename Dot::Register w = Dot::weights(row, i);
                prefetch(Dot::address(row, i) + prefetch_bytes);
                for (int c = 0; c < C; c++) acc[c][r] = Dot::accumulate(acc[c][r], w, column[c]);
            }
        }
        if (i < k)
            for (int r = 0; r < TOGETHER; r++) {
                const typename Dot::Register w = Dot::last_weights(rows[first + r], i, k);
                for (int c = 0; c < C; c++)
                    acc[c][r] =
                        Dot::accumulate(acc[c][r], w, Dot::last_inputs(x + c * x_bytes, i, k));
            }
        for (int c = 0; c < C; c++)
            for (int r = 0; r < TOGETHER; r++) sums[c][first + r] = acc[c][r];
    }
    store_sums<C>(out, sums);
}

}  // namespace hearth
