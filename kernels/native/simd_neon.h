// See simd.h: in NEON, two registers for each of AVX2's, so that the bits are those of AVX2. With
// the dot products of ARMv8.2 and the matrix products (i8mm) of ARMv8.6 where the compiler's flags
// have them.
#pragma once

#include <arm_neon.h>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace hearth {

constexpr int LANES = 8;
struct vec_int {  // of any width
    int32x4_t low, high;
};
struct vec_f32 {
    float32x4_t low, high;
};
struct vec_f64 {  // LANES / 2
    float64x2_t low, high;
};
using bytes_32 = vec_int;

// dot() takes signed weights; unsigned ones are below 64.
constexpr int SIGNED_ZERO_POINT = 0;

inline vec_int load_int(const void *p) {
    const uint8_t *bytes = (const uint8_t *)p;
    return {vreinterpretq_s32_u8(vld1q_u8(bytes)), vreinterpretq_s32_u8(vld1q_u8(bytes + 16))};
}
inline vec_f32 load(const float *p) { return {vld1q_f32(p), vld1q_f32(p + 4)}; }
inline vec_f64 load(const double *p) { return {vld1q_f64(p), vld1q_f64(p + 2)}; }
inline void store_int(void *p, vec_int v) {
    vst1q_u8((uint8_t *)p, vreinterpretq_u8_s32(v.low));
    vst1q_u8((uint8_t *)p + 16, vreinterpretq_u8_s32(v.high));
}
inline void store(float *p, vec_f32 v) {
    vst1q_f32(p, v.low);
    vst1q_f32(p + 4, v.high);
}
inline void store(double *p, vec_f64 v) {
    vst1q_f64(p, v.low);
    vst1q_f64(p + 2, v.high);
}

inline vec_int broadcast(int32_t v) { return {vdupq_n_s32(v), vdupq_n_s32(v)}; }
inline vec_f32 broadcast(float v) { return {vdupq_n_f32(v), vdupq_n_f32(v)}; }
inline vec_f64 broadcast(double v) { return {vdupq_n_f64(v), vdupq_n_f64(v)}; }
inline vec_f32 zero_f32() { return broadcast(0.0f); }

// An operation on both registers.
#define HEARTH_UNARY(name, type, f) \
    inline type name(type a) { return {f(a.low), f(a.high)}; }
#define HEARTH_BINARY(name, type, f) \
    inline type name(type a, type b) { return {f(a.low, b.low), f(a.high, b.high)}; }
#define HEARTH_TERNARY(name, type, f) /* f takes what is added first */ \
    inline type name(type a, type b, type c) {                          \
        return {f(c.low, a.low, b.low), f(c.high, a.high, b.high)};     \
    }
HEARTH_BINARY(add, vec_f32, vaddq_f32)
HEARTH_BINARY(sub, vec_f32, vsubq_f32)
HEARTH_BINARY(mul, vec_f32, vmulq_f32)
HEARTH_BINARY(div, vec_f32, vdivq_f32)
HEARTH_BINARY(add, vec_f64, vaddq_f64)
HEARTH_TERNARY(fma, vec_f32, vfmaq_f32)
HEARTH_TERNARY(fnma, vec_f32, vfmsq_f32)
HEARTH_TERNARY(fma, vec_f64, vfmaq_f64)
HEARTH_BINARY(add_i32, vec_int, vaddq_s32)
HEARTH_BINARY(and_, vec_int, vandq_s32)
HEARTH_BINARY(or_, vec_int, vorrq_s32)
HEARTH_BINARY(xor_, vec_int, veorq_s32)
HEARTH_UNARY(round, vec_f32, vrndnq_f32)
#undef HEARTH_UNARY
#undef HEARTH_BINARY
#undef HEARTH_TERNARY

inline vec_f32 max(vec_f32 a, vec_f32 b) {
    return {vbslq_f32(vcgtq_f32(a.low, b.low), a.low, b.low),
            vbslq_f32(vcgtq_f32(a.high, b.high), a.high, b.high)};
}
inline vec_f32 min(vec_f32 a, vec_f32 b) {
    return {vbslq_f32(vcltq_f32(a.low, b.low), a.low, b.low),
            vbslq_f32(vcltq_f32(a.high, b.high), a.high, b.high)};
}
inline vec_int add_i64(vec_int a, vec_int b) {
    const auto sum = [](int32x4_t x, int32x4_t y) {
        return vreinterpretq_s32_s64(vaddq_s64(vreinterpretq_s64_s32(x), vreinterpretq_s64_s32(y)));
    };
    return {sum(a.low, b.low), sum(a.high, b.high)};
}
inline vec_int mul_i32(vec_int a, int32_t b) {
    return {vmulq_n_s32(a.low, b), vmulq_n_s32(a.high, b)};
}
// Shifts of 32-bit lanes: left, right, right with the sign.
inline vec_int sll(vec_int v, int n) {
    const int32x4_t count = vdupq_n_s32(n);
    return {vshlq_s32(v.low, count), vshlq_s32(v.high, count)};
}
inline vec_int srl(vec_int v, int n) {
    const int32x4_t count = vdupq_n_s32(-n);
    return {vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(v.low), count)),
            vreinterpretq_s32_u32(vshlq_u32(vreinterpretq_u32_s32(v.high), count))};
}
inline vec_int sra(vec_int v, int n) { return sll(v, -n); }

inline vec_f32 cvt_f32(vec_int v) { return {vcvtq_f32_s32(v.low), vcvtq_f32_s32(v.high)}; }
inline vec_int cvt_i32(vec_f32 v) {  // to the nearest
    return {vcvtnq_s32_f32(v.low), vcvtnq_s32_f32(v.high)};
}
inline vec_f32 bitcast_f32(vec_int v) {
    return {vreinterpretq_f32_s32(v.low), vreinterpretq_f32_s32(v.high)};
}
inline vec_int bitcast_int(vec_f64 v) {
    return {vreinterpretq_s32_f64(v.low), vreinterpretq_s32_f64(v.high)};
}
inline vec_f64 cvt_f64_low(vec_f32 v) {
    return {vcvt_f64_f32(vget_low_f32(v.low)), vcvt_high_f64_f32(v.low)};
}
inline vec_f64 cvt_f64_high(vec_f32 v) {
    return {vcvt_f64_f32(vget_low_f32(v.high)), vcvt_high_f64_f32(v.high)};
}

inline float f16_to_f32(uint16_t bits) {
    __fp16 number;
    std::memcpy(&number, &bits, sizeof number);
    return (float)number;
}
inline uint16_t f32_to_f16(float number) {  // to the nearest
    const __fp16 rounded = (__fp16)number;
    uint16_t bits;
    std::memcpy(&bits, &rounded, sizeof bits);
    return bits;
}
inline vec_f32 cvt_f16(uint16x4_t low, uint16x4_t high) {
    return {vcvt_f32_f16(vreinterpret_f16_u16(low)), vcvt_f32_f16(vreinterpret_f16_u16(high))};
}
// The low 16 bits of each lane, an f16.
inline vec_f32 cvt_f16(vec_int v) {
    return cvt_f16(vmovn_u32(vreinterpretq_u32_s32(v.low)),
                   vmovn_u32(vreinterpretq_u32_s32(v.high)));
}
inline uint16x8_t load_8_words(const void *p) {
    return vreinterpretq_u16_u8(vld1q_u8((const uint8_t *)p));
}
// The 16-bit floats at an offset in each of LANES rows.
inline vec_f32 gather_f16(const uint8_t *const *rows, int offset) {
    uint16_t words[LANES];
    for (int r = 0; r < LANES; r++) std::memcpy(words + r, rows[r] + offset, sizeof *words);
    return cvt_f16(vld1_u16(words), vld1_u16(words + 4));
}
// LANES numbers of another type.
inline vec_f32 load_f16(const void *p) {
    const uint16x8_t words = load_8_words(p);
    return cvt_f16(vget_low_u16(words), vget_high_u16(words));
}
inline vec_f32 load_bf16(const void *p) {
    const uint16x8_t words = load_8_words(p);
    return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(words), 16)),
            vreinterpretq_f32_u32(vshll_n_u16(vget_high_u16(words), 16))};
}
inline vec_f32 load_i8(const void *p) {
    const int16x8_t words = vmovl_s8(vld1_s8((const int8_t *)p));
    return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(words))),
            vcvtq_f32_s32(vmovl_s16(vget_high_s16(words)))};
}
inline vec_int load_u8(const void *p) {
    const uint16x8_t words = vmovl_u8(vld1_u8((const uint8_t *)p));
    return {vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(words))),
            vreinterpretq_s32_u32(vmovl_u16(vget_high_u16(words)))};
}
inline bytes_32 load_32_bytes(const void *p) { return load_int(p); }
// 16 bytes, shifted down by SHIFT, and zeros behind them.
template <int SHIFT>
bytes_32 load_16_bytes(const void *p) {
    const uint8x16_t zeros = vdupq_n_u8(0);
    return {vreinterpretq_s32_u8(vextq_u8(vld1q_u8((const uint8_t *)p), zeros, SHIFT)),
            vreinterpretq_s32_u8(zeros)};
}

// In each 128 bits the 16 bytes at an offset in every fourth row.
inline vec_int load_quarters(const uint8_t *const *rows, int offset) {
    return {vreinterpretq_s32_u8(vld1q_u8(rows[0] + offset)),
            vreinterpretq_s32_u8(vld1q_u8(rows[4] + offset))};
}
inline vec_int broadcast_16_bytes(const void *p) {
    const int32x4_t v = vreinterpretq_s32_u8(vld1q_u8((const uint8_t *)p));
    return {v, v};
}
// The 32-bit words at an offset in every row.
inline vec_int gather_u32(const uint8_t *const *rows, int offset) {
    uint32_t word[LANES];
    for (int r = 0; r < LANES; r++) std::memcpy(word + r, rows[r] + offset, sizeof *word);
    return load_int(word);
}
// Of word i in each 128 bits the 16 bits of a half, each as bit 4 of a byte.
inline vec_int spread_half(vec_int words, int i, int half) {
    const auto spread = [&](int32x4_t v) {
        const uint8x8_t second = vdup_n_u8((uint8_t)(4 * i + 2 * half + 1));
        const uint8x16_t from = vcombine_u8(vdup_n_u8((uint8_t)(4 * i + 2 * half)), second);
        const uint8x16_t bit = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
        const uint8x16_t set = vtstq_u8(vqtbl1q_u8(vreinterpretq_u8_s32(v), from), bit);
        return vreinterpretq_s32_u8(vandq_u8(set, vdupq_n_u8(16)));
    };
    return {spread(words.low), spread(words.high)};
}

// acc + in each lane the four products of bytes of weights and of a column, which are -127 to 127.
inline int32x4_t dot(int32x4_t acc, int8x16_t weights, int8x16_t column) {
#if defined(__ARM_FEATURE_DOTPROD)
    return vdotq_s32(acc, weights, column);
#else
    const int16x8_t low = vmull_s8(vget_low_s8(weights), vget_low_s8(column));
    const int16x8_t high = vmull_high_s8(weights, column);
    return vaddq_s32(acc, vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high)));
#endif
}
template <bool SIGNED>
vec_int dot(vec_int acc, vec_int weights, vec_int column) {
    return {dot(acc.low, vreinterpretq_s8_s32(weights.low), vreinterpretq_s8_s32(column.low)),
            dot(acc.high, vreinterpretq_s8_s32(weights.high), vreinterpretq_s8_s32(column.high))};
}

#if defined(__ARM_FEATURE_MATMUL_INT8)
#define HEARTH_I8MM
// acc[c][0] += the products of a row in each lane with column c: WORDS words of four bytes of each
// row, LANES of them side by side, and of each column, NR of them side by side. One instruction
// multiplies eight values of two rows with those of two columns.
template <int WORDS, int NR, int N>
void dot_words(const uint8_t *weights, const int8_t *columns, vec_int (&acc)[N][1]) {
    constexpr int PAIRS = (N + 1) / 2;
    static_assert(WORDS % 2 == 0 && NR % 2 == 0);
    int32x4_t sums[PAIRS][4];  // row 2p by columns 0 and 1 of the pair, row 2p + 1 by these
    for (auto &pair : sums)
        for (auto &sum : pair) sum = vdupq_n_s32(0);
    for (int j = 0; j < WORDS; j += 2) {
        const vec_int w0 = load_int(weights + j * 4 * LANES);
        const vec_int w1 = load_int(weights + (j + 1) * 4 * LANES);
        const int32x4_t rows[4] = {vzip1q_s32(w0.low, w1.low), vzip2q_s32(w0.low, w1.low),
                                   vzip1q_s32(w0.high, w1.high), vzip2q_s32(w0.high, w1.high)};
        for (int c = 0; c < PAIRS; c++) {
            const int8_t *at = columns + (j * NR + 2 * c) * 4;
            const int32x2_t x0 = vreinterpret_s32_s8(vld1_s8(at));
            const int32x2_t x1 = vreinterpret_s32_s8(vld1_s8(at + NR * 4));
            const int8x16_t x =
                vreinterpretq_s8_s32(vcombine_s32(vzip1_s32(x0, x1), vzip2_s32(x0, x1)));
            for (int p = 0; p < 4; p++)
                sums[c][p] = vmmlaq_s32(sums[c][p], vreinterpretq_s8_s32(rows[p]), x);
        }
    }
    for (int c = 0; c < N; c++) {
        const int32x4_t *from = sums[c / 2];
        const vec_int all =
            c % 2 ? vec_int{vuzp2q_s32(from[0], from[1]), vuzp2q_s32(from[2], from[3])}
                  : vec_int{vuzp1q_s32(from[0], from[1]), vuzp1q_s32(from[2], from[3])};
        acc[c][0] = add_i32(acc[c][0], all);
    }
}
#endif

// table[b] for every byte b from 0 to 15.
inline vec_int lookup(const int8_t (&table)[16], vec_int bytes) {
    const int8x16_t entries = vld1q_s8(table);
    const auto find = [&](int32x4_t v) {
        return vreinterpretq_s32_s8(vqtbl1q_s8(entries, vreinterpretq_u8_s32(v)));
    };
    return {find(bytes.low), find(bytes.high)};
}
// v + mask, and -infinity where the mask is that, whatever v is there.
inline vec_f32 add_mask(vec_f32 v, vec_f32 mask) {
    const float32x4_t hidden = vdupq_n_f32(-INFINITY);
    const auto masked = [&](float32x4_t x, float32x4_t m) {
        return vbslq_f32(vceqq_f32(m, hidden), hidden, vaddq_f32(x, m));
    };
    return {masked(v.low, mask.low), masked(v.high, mask.high)};
}
// v, and 0 where x < low.
inline vec_f32 zero_where_below(vec_f32 x, vec_f32 low, vec_f32 v) {
    const auto kept = [](float32x4_t x, float32x4_t limit, float32x4_t v) {
        return vreinterpretq_f32_u32(vbicq_u32(vreinterpretq_u32_f32(v), vcltq_f32(x, limit)));
    };
    return {kept(x.low, low.low, v.low), kept(x.high, low.high, v.high)};
}
// The larger of |v| and `bits`, both as the bits of floats: NaN is the largest of all.
inline vec_int max_abs_bits(vec_int bits, vec_f32 v) {
    return {vmaxq_s32(bits.low, vreinterpretq_s32_f32(vabsq_f32(v.low))),
            vmaxq_s32(bits.high, vreinterpretq_s32_f32(vabsq_f32(v.high)))};
}
inline bool all_below(vec_int abs_bits, float limit) {
    int32_t limit_bits;
    std::memcpy(&limit_bits, &limit, sizeof limit_bits);
    return vmaxvq_s32(vmaxq_s32(abs_bits.low, abs_bits.high)) < limit_bits;
}
// Bit i: p[i] != value, of 64 numbers.
inline uint64_t cmpneq_mask(const uint16_t *p, uint16_t value) {
    static constexpr uint8_t BITS[8] = {1, 2, 4, 8, 16, 32, 64, 128};
    uint64_t equal = 0;
    for (int i = 0; i < 64; i += 8) {
        const uint16x8_t same = vceqq_u16(load_8_words(p + i), vdupq_n_u16(value));
        equal |= (uint64_t)vaddv_u8(vand_u8(vmovn_u16(same), vld1_u8(BITS))) << i;
    }
    return ~equal;
}

inline float reduce_max(vec_f32 v) { return vmaxvq_f32(vmaxq_f32(v.low, v.high)); }
inline int64_t reduce_add_i64(vec_int v) {
    return vaddvq_s64(vaddq_s64(vreinterpretq_s64_s32(v.low), vreinterpretq_s64_s32(v.high)));
}
// out [4]: the horizontal sums of four registers.
inline void reduce_add4(vec_f32 a, vec_f32 b, vec_f32 c, vec_f32 d, float *out) {
    const float32x4_t low = vpaddq_f32(vpaddq_f32(a.low, b.low), vpaddq_f32(c.low, d.low));
    const float32x4_t high = vpaddq_f32(vpaddq_f32(a.high, b.high), vpaddq_f32(c.high, d.high));
    vst1q_f32(out, vaddq_f32(low, high));
}

// v [4]. Lane i of each 128 bits: the sum of the four lanes there of v[i].
inline vec_int reduce_add_quarters(const vec_int *v) {
    return {vpaddq_s32(vpaddq_s32(v[0].low, v[1].low), vpaddq_s32(v[2].low, v[3].low)),
            vpaddq_s32(vpaddq_s32(v[0].high, v[1].high), vpaddq_s32(v[2].high, v[3].high))};
}

// rows [LANES]: 32 bytes of each row. out [8]: lane r of out[j] has bytes 4j to 4j + 3 of row r.
inline void transpose(const bytes_32 *rows, vec_int *out) {
    const auto four = [](int32x4_t a, int32x4_t b, int32x4_t c, int32x4_t d, int32x4_t *to) {
        const int64x2_t low01 = vreinterpretq_s64_s32(vzip1q_s32(a, b));
        const int64x2_t low23 = vreinterpretq_s64_s32(vzip1q_s32(c, d));
        const int64x2_t high01 = vreinterpretq_s64_s32(vzip2q_s32(a, b));
        const int64x2_t high23 = vreinterpretq_s64_s32(vzip2q_s32(c, d));
        to[0] = vreinterpretq_s32_s64(vzip1q_s64(low01, low23));
        to[1] = vreinterpretq_s32_s64(vzip2q_s64(low01, low23));
        to[2] = vreinterpretq_s32_s64(vzip1q_s64(high01, high23));
        to[3] = vreinterpretq_s32_s64(vzip2q_s64(high01, high23));
    };
    int32x4_t lanes[2][8];  // of rows 0 to 3, 4 to 7
    for (int half = 0; half < 2; half++) {
        const bytes_32 *from = rows + 4 * half;
        four(from[0].low, from[1].low, from[2].low, from[3].low, lanes[half]);
        four(from[0].high, from[1].high, from[2].high, from[3].high, lanes[half] + 4);
    }
    for (int j = 0; j < 8; j++) out[j] = {lanes[0][j], lanes[1][j]};
}

// Quantizes 32 numbers to signed bytes with one scale, which is returned. values [8]: four bytes
// each. sums [2]: of 16 bytes each.
inline float quantize_32(const float *x, int32_t *values, uint32_t *sums) {
    float32x4_t max_abs = vdupq_n_f32(0);  // NaN where there is one
    for (int i = 0; i < 32; i += 4) max_abs = vmaxq_f32(max_abs, vabsq_f32(vld1q_f32(x + i)));
    const float largest = vmaxvq_f32(max_abs);
    const float32x4_t inverse = vdupq_n_f32(largest > 0 ? 127.0f / largest : 0.0f);
    for (int half = 0; half < 2; half++, x += 16) {
        int32x4_t q[4];
        for (int i = 0; i < 4; i++) q[i] = vcvtnq_s32_f32(vmulq_f32(vld1q_f32(x + 4 * i), inverse));
        const int16x8_t low = vcombine_s16(vqmovn_s32(q[0]), vqmovn_s32(q[1]));
        const int16x8_t high = vcombine_s16(vqmovn_s32(q[2]), vqmovn_s32(q[3]));
        vst1q_s8((int8_t *)(values + 4 * half), vcombine_s8(vqmovn_s16(low), vqmovn_s16(high)));
        sums[half] = (uint32_t)vaddvq_s32(vaddq_s32(vaddq_s32(q[0], q[1]), vaddq_s32(q[2], q[3])));
    }
    return largest / 127.0f;
}

}  // namespace hearth
