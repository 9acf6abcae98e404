// See simd.h: in AVX-512, or in AVX2 with VNNI or without, as the compiler's flags say.
#pragma once

#include <immintrin.h>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace hearth {

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VNNI__)
#define HEARTH_AVX512
#define HEARTH_MM(name) _mm512_##name
#define HEARTH_MM_SI(name) _mm512_##name##_si512
constexpr int LANES = 16;
using vec_int = __m512i;  // of any width
using vec_f32 = __m512;
using vec_f64 = __m512d;  // LANES / 2
#elif defined(__AVX2__)
#define HEARTH_MM(name) _mm256_##name
#define HEARTH_MM_SI(name) _mm256_##name##_si256
constexpr int LANES = 8;
using vec_int = __m256i;
using vec_f32 = __m256;
using vec_f64 = __m256d;
#else
#error "hearth's kernels need AVX2"
#endif

using bytes_32 = __m256i;

// The zero point that dot() needs signed weights to be moved by; 0: it takes them signed.
#if defined(HEARTH_AVX512) || defined(__AVXVNNI__)
constexpr int SIGNED_ZERO_POINT = 128;
#else
constexpr int SIGNED_ZERO_POINT = 0;
#endif

inline vec_int load_int(const void *p) { return HEARTH_MM_SI(loadu)((const vec_int *)p); }
inline vec_f32 load(const float *p) { return HEARTH_MM(loadu_ps)(p); }
inline vec_f64 load(const double *p) { return HEARTH_MM(loadu_pd)(p); }
inline void store_int(void *p, vec_int v) { HEARTH_MM_SI(storeu)((vec_int *)p, v); }
inline void store(float *p, vec_f32 v) { HEARTH_MM(storeu_ps)(p, v); }
inline void store(double *p, vec_f64 v) { HEARTH_MM(storeu_pd)(p, v); }

inline vec_int broadcast(int32_t v) { return HEARTH_MM(set1_epi32)(v); }
inline vec_f32 broadcast(float v) { return HEARTH_MM(set1_ps)(v); }
inline vec_f64 broadcast(double v) { return HEARTH_MM(set1_pd)(v); }
inline vec_f32 zero_f32() { return HEARTH_MM(setzero_ps)(); }

inline vec_f32 add(vec_f32 a, vec_f32 b) { return HEARTH_MM(add_ps)(a, b); }
inline vec_f32 sub(vec_f32 a, vec_f32 b) { return HEARTH_MM(sub_ps)(a, b); }
inline vec_f32 mul(vec_f32 a, vec_f32 b) { return HEARTH_MM(mul_ps)(a, b); }
inline vec_f32 div(vec_f32 a, vec_f32 b) { return HEARTH_MM(div_ps)(a, b); }
inline vec_f32 max(vec_f32 a, vec_f32 b) { return HEARTH_MM(max_ps)(a, b); }
inline vec_f32 min(vec_f32 a, vec_f32 b) { return HEARTH_MM(min_ps)(a, b); }
inline vec_f32 fma(vec_f32 a, vec_f32 b, vec_f32 c) { return HEARTH_MM(fmadd_ps)(a, b, c); }
inline vec_f32 fnma(vec_f32 a, vec_f32 b, vec_f32 c) { return HEARTH_MM(fnmadd_ps)(a, b, c); }
inline vec_f64 add(vec_f64 a, vec_f64 b) { return HEARTH_MM(add_pd)(a, b); }
inline vec_f64 fma(vec_f64 a, vec_f64 b, vec_f64 c) { return HEARTH_MM(fmadd_pd)(a, b, c); }

inline vec_int add_i32(vec_int a, vec_int b) { return HEARTH_MM(add_epi32)(a, b); }
inline vec_int add_i64(vec_int a, vec_int b) { return HEARTH_MM(add_epi64)(a, b); }
inline vec_int mul_i32(vec_int a, int32_t b) { return HEARTH_MM(mullo_epi32)(a, broadcast(b)); }
inline vec_int and_(vec_int a, vec_int b) { return HEARTH_MM_SI (and)(a, b); }
inline vec_int or_(vec_int a, vec_int b) { return HEARTH_MM_SI(or)(a, b); }
inline vec_int xor_(vec_int a, vec_int b) { return HEARTH_MM_SI(xor)(a, b); }
// Shifts of 32-bit lanes: left, right, right with the sign.
inline vec_int sll(vec_int v, int n) { return HEARTH_MM(sll_epi32)(v, _mm_cvtsi32_si128(n)); }
inline vec_int srl(vec_int v, int n) { return HEARTH_MM(srl_epi32)(v, _mm_cvtsi32_si128(n)); }
inline vec_int sra(vec_int v, int n) { return HEARTH_MM(sra_epi32)(v, _mm_cvtsi32_si128(n)); }

inline vec_f32 cvt_f32(vec_int v) { return HEARTH_MM(cvtepi32_ps)(v); }
inline vec_int cvt_i32(vec_f32 v) { return HEARTH_MM(cvtps_epi32)(v); }  // to the nearest

inline float f16_to_f32(uint16_t bits) { return _cvtsh_ss(bits); }
inline uint16_t f32_to_f16(float number) { return _cvtss_sh(number, 0); }  // to the nearest

// 16 bits at an offset in each of eight rows, inserted one by one: written to memory, they would
// have to arrive there before they are read.
inline __m128i gather_8_words(const uint8_t *const *rows, int offset) {
    const auto at = [&](int r) {
        short word;
        std::memcpy(&word, rows[r] + offset, sizeof word);
        return word;
    };
    return _mm_setr_epi16(at(0), at(1), at(2), at(3), at(4), at(5), at(6), at(7));
}

inline bytes_32 load_32_bytes(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
// 16 bytes, shifted down by SHIFT, and zeros behind them.
template <int SHIFT>
bytes_32 load_16_bytes(const void *p) {
    return _mm256_zextsi128_si256(_mm_srli_si128(_mm_loadu_si128((const __m128i *)p), SHIFT));
}

inline __m128i load_16_bytes(const void *p) { return _mm_loadu_si128((const __m128i *)p); }

#if defined(HEARTH_AVX512)

// In each 128 bits the 16 bytes at an offset in every fourth row.
inline vec_int load_quarters(const uint8_t *const *rows, int offset) {
    const __m256i low =
        _mm256_inserti128_si256(_mm256_castsi128_si256(load_16_bytes(rows[0] + offset)),
                                load_16_bytes(rows[4] + offset), 1);
    const __m512i three =
        _mm512_inserti32x4(_mm512_castsi256_si512(low), load_16_bytes(rows[8] + offset), 2);
    return _mm512_inserti32x4(three, load_16_bytes(rows[12] + offset), 3);
}
inline vec_int broadcast_16_bytes(const void *p) {
    return _mm512_broadcast_i32x4(load_16_bytes(p));
}
// The 32-bit words at an offset in every row, each broadcast and blended: no shuffles.
inline vec_int gather_u32(const uint8_t *const *rows, int offset) {
    const auto four = [&](int first) {
        __m512i v = _mm512_setzero_si512();
        for (int r = first; r < first + 4; r++) {
            int word;
            std::memcpy(&word, rows[r] + offset, sizeof word);
            v = _mm512_mask_set1_epi32(v, (__mmask16)(1 << r), word);
        }
        return v;
    };
    return or_(or_(four(0), four(4)), or_(four(8), four(12)));
}
// Of word i in each 128 bits the 16 bits of a half, each as bit 4 of a byte.
inline vec_int spread_half(vec_int words, int i, int half) {
    const __m512i two = _mm512_set1_epi16((short)((4 * i + 2 * half) * 0x0101));
    const __m512i from = _mm512_add_epi8(two, _mm512_set4_epi32(0x01010101, 0x01010101, 0, 0));
    const __m512i bit = _mm512_set1_epi64((int64_t)0x8040201008040201);
    const __mmask64 set = _mm512_test_epi8_mask(_mm512_shuffle_epi8(words, from), bit);
    return _mm512_maskz_mov_epi8(set, _mm512_set1_epi8(16));
}

inline vec_f32 bitcast_f32(vec_int v) { return _mm512_castsi512_ps(v); }
inline vec_int bitcast_int(vec_f64 v) { return _mm512_castpd_si512(v); }
// The low 16 bits of each lane, an f16.
inline vec_f32 cvt_f16(vec_int v) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)); }
// The 16-bit floats at an offset in each of LANES rows.
inline vec_f32 gather_f16(const uint8_t *const *rows, int offset) {
    return _mm512_cvtph_ps(
        _mm256_set_m128i(gather_8_words(rows + 8, offset), gather_8_words(rows, offset)));
}
// LANES numbers of another type.
inline vec_f32 load_f16(const void *p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p));
}
inline vec_f32 load_bf16(const void *p) {
    const __m256i v = _mm256_loadu_si256((const __m256i *)p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}
inline vec_f32 load_i8(const void *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
inline vec_int load_u8(const void *p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)p));
}
inline vec_f64 cvt_f64_low(vec_f32 v) { return _mm512_cvtps_pd(_mm512_castps512_ps256(v)); }
inline vec_f64 cvt_f64_high(vec_f32 v) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1)); }
inline vec_f32 round(vec_f32 v) { return _mm512_roundscale_ps(v, 0); }

// acc + in each lane the four products of bytes of weights and signed bytes of a column, which are
// -127 to 127. The weights are unsigned, or SIGNED where SIGNED_ZERO_POINT is 0.
template <bool SIGNED>
vec_int dot(vec_int acc, vec_int weights, vec_int column) {
    static_assert(!SIGNED);
    return _mm512_dpbusd_epi32(acc, weights, column);
}
// table[b] for every byte b from 0 to 15.
inline vec_int lookup(const int8_t (&table)[16], vec_int bytes) {
    const __m128i entries = _mm_loadu_si128((const __m128i *)table);
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(entries), bytes);
}
// v + mask, and -infinity where the mask is that, whatever v is there.
inline vec_f32 add_mask(vec_f32 v, vec_f32 mask) {
    const vec_f32 hidden = _mm512_set1_ps(-INFINITY);
    return _mm512_mask_add_ps(hidden, _mm512_cmp_ps_mask(mask, hidden, _CMP_NEQ_UQ), v, mask);
}
// v, and 0 where x < low.
inline vec_f32 zero_where_below(vec_f32 x, vec_f32 low, vec_f32 v) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, low, _CMP_NLT_UQ), v);
}
// The larger of |v| and `bits`, both as the bits of floats: NaN is the largest of all.
inline vec_int max_abs_bits(vec_int bits, vec_f32 v) {
    return _mm512_max_epi32(bits, _mm512_castps_si512(_mm512_abs_ps(v)));
}
inline bool all_below(vec_int abs_bits, float limit) {
    const vec_int limit_bits = _mm512_castps_si512(broadcast(limit));
    return _mm512_cmplt_epi32_mask(abs_bits, limit_bits) == 0xffff;
}
// Bit i: p[i] != value, of 64 numbers.
inline uint64_t cmpneq_mask(const uint16_t *p, uint16_t value) {
    const __m512i other = _mm512_set1_epi16((short)value);
    const uint64_t low = _mm512_cmpneq_epi16_mask(_mm512_loadu_si512(p), other);
    return low | (uint64_t)_mm512_cmpneq_epi16_mask(_mm512_loadu_si512(p + 32), other) << 32;
}

inline float reduce_max(vec_f32 v) { return _mm512_reduce_max_ps(v); }
inline int64_t reduce_add_i64(vec_int v) { return _mm512_reduce_add_epi64(v); }
inline __m128 add_quarters(vec_f32 v) {
    const __m256 half = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    return _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1));
}
// out [4]: the horizontal sums of four registers.
inline void reduce_add4(__m256 a, __m256 b, __m256 c, __m256 d, float *out) {
    const __m256 sums = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1)));
}
inline void reduce_add4(vec_f32 a, vec_f32 b, vec_f32 c, vec_f32 d, float *out) {
    const vec_f32 ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const vec_f32 cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    const __m512d low = _mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
    const __m512d high = _mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
    _mm_storeu_ps(out, add_quarters(_mm512_add_ps(_mm512_castpd_ps(low), _mm512_castpd_ps(high))));
}
// The eight numbers at p in each eight lanes.
inline vec_f32 load_eight(const float *p) { return _mm512_broadcast_f32x8(_mm256_loadu_ps(p)); }
// Eight lanes each, `distance` numbers apart.
inline void store_eights(float *p, int distance, vec_f32 v) {
    _mm256_storeu_ps(p, _mm512_castps512_ps256(v));
    _mm256_storeu_ps(p + distance, _mm512_extractf32x8_ps(v, 1));
}
// out [LANES / 2]: the horizontal sums of the eights in four registers.
inline void reduce_add_eights(const vec_f32 *v, float *out) {
    const auto low = [&](int i) { return _mm512_castps512_ps256(v[i]); };
    const auto high = [&](int i) { return _mm512_extractf32x8_ps(v[i], 1); };
    reduce_add4(low(0), high(0), low(1), high(1), out);
    reduce_add4(low(2), high(2), low(3), high(3), out + 4);
}

#else

inline vec_int load_quarters(const uint8_t *const *rows, int offset) {
    return _mm256_inserti128_si256(_mm256_castsi128_si256(load_16_bytes(rows[0] + offset)),
                                   load_16_bytes(rows[4] + offset), 1);
}
inline vec_int broadcast_16_bytes(const void *p) {
    return _mm256_broadcastsi128_si256(load_16_bytes(p));
}
inline vec_int gather_u32(const uint8_t *const *rows, int offset) {
    const auto word = [&](int r) {
        int bits;
        std::memcpy(&bits, rows[r] + offset, sizeof bits);
        return broadcast(bits);
    };
    const __m256i pairs[4] = {
        _mm256_blend_epi32(word(0), word(1), 0x02), _mm256_blend_epi32(word(2), word(3), 0x08),
        _mm256_blend_epi32(word(4), word(5), 0x20), _mm256_blend_epi32(word(6), word(7), 0x80)};
    return _mm256_blend_epi32(_mm256_blend_epi32(pairs[0], pairs[1], 0x0c),
                              _mm256_blend_epi32(pairs[2], pairs[3], 0xc0), 0xf0);
}
inline vec_int spread_half(vec_int words, int i, int half) {
    const __m256i two = _mm256_set1_epi16((short)((4 * i + 2 * half) * 0x0101));
    const __m256i second =
        _mm256_setr_epi32(0, 0, 0x01010101, 0x01010101, 0, 0, 0x01010101, 0x01010101);
    const __m256i bit = _mm256_set1_epi64x((int64_t)0x8040201008040201);
    const __m256i v = and_(_mm256_shuffle_epi8(words, _mm256_add_epi8(two, second)), bit);
    return and_(_mm256_cmpeq_epi8(v, bit), _mm256_set1_epi8(16));
}

inline vec_f32 bitcast_f32(vec_int v) { return _mm256_castsi256_ps(v); }
inline vec_int bitcast_int(vec_f64 v) { return _mm256_castpd_si256(v); }
inline vec_f32 cvt_f16(vec_int v) {
    const __m256i low = and_(v, _mm256_set1_epi32(0xffff));
    const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(low, low), 0x08);
    return _mm256_cvtph_ps(_mm256_castsi256_si128(packed));
}
inline vec_f32 gather_f16(const uint8_t *const *rows, int offset) {
    return _mm256_cvtph_ps(gather_8_words(rows, offset));
}
inline vec_f32 load_f16(const void *p) {
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
inline vec_f32 load_bf16(const void *p) {
    const __m128i v = _mm_loadu_si128((const __m128i *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}
inline vec_f32 load_i8(const void *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
inline vec_int load_u8(const void *p) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)p));
}
inline vec_f64 cvt_f64_low(vec_f32 v) { return _mm256_cvtps_pd(_mm256_castps256_ps128(v)); }
inline vec_f64 cvt_f64_high(vec_f32 v) { return _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)); }
inline vec_f32 round(vec_f32 v) {
    return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}

template <bool SIGNED>
vec_int dot(vec_int acc, vec_int weights, vec_int column) {
#if defined(__AVXVNNI__)
    static_assert(!SIGNED);
    return _mm256_dpbusd_avx_epi32(acc, weights, column);
#else
    // Two products fit into 16 bits: 2 x 128 x 127, or 2 x 63 x 127 of weights that are unsigned
    const vec_int pairs =
        SIGNED ? _mm256_maddubs_epi16(_mm256_abs_epi8(weights), _mm256_sign_epi8(column, weights))
               : _mm256_maddubs_epi16(weights, column);
    return _mm256_add_epi32(acc, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
#endif
}
inline vec_int lookup(const int8_t (&table)[16], vec_int bytes) {
    const __m128i entries = _mm_loadu_si128((const __m128i *)table);
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(entries), bytes);
}
inline vec_f32 add_mask(vec_f32 v, vec_f32 mask) {
    const vec_f32 hidden = _mm256_set1_ps(-INFINITY);
    const vec_f32 is_hidden = _mm256_cmp_ps(mask, hidden, _CMP_EQ_OQ);
    return _mm256_blendv_ps(_mm256_add_ps(v, mask), hidden, is_hidden);
}
inline vec_f32 zero_where_below(vec_f32 x, vec_f32 low, vec_f32 v) {
    return _mm256_and_ps(_mm256_cmp_ps(x, low, _CMP_NLT_UQ), v);
}
inline vec_int max_abs_bits(vec_int bits, vec_f32 v) {
    const vec_f32 abs = _mm256_andnot_ps(broadcast(-0.0f), v);
    return _mm256_max_epi32(bits, _mm256_castps_si256(abs));
}
inline bool all_below(vec_int abs_bits, float limit) {
    const vec_int limit_bits = _mm256_castps_si256(broadcast(limit));
    return _mm256_movemask_epi8(_mm256_cmpgt_epi32(limit_bits, abs_bits)) == -1;
}
inline uint64_t cmpneq_mask(const uint16_t *p, uint16_t value) {
    const __m256i other = _mm256_set1_epi16((short)value);
    const auto equal = [&](int i) {
        return _mm256_cmpeq_epi16(_mm256_loadu_si256((const __m256i *)(p + i)), other);
    };
    uint64_t bits = 0;
    for (int i = 0; i < 64; i += 32) {
        const __m256i packed = _mm256_packs_epi16(equal(i), equal(i + 16));
        const __m256i bytes = _mm256_permute4x64_epi64(packed, 0xD8);
        bits |= (uint64_t)(uint32_t)_mm256_movemask_epi8(bytes) << i;
    }
    return ~bits;
}

inline float reduce_max(vec_f32 v) {
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}
inline int64_t reduce_add_i64(vec_int v) {
    const __m128i two = _mm_add_epi64(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    return _mm_cvtsi128_si64(_mm_add_epi64(two, _mm_unpackhi_epi64(two, two)));
}
inline void reduce_add4(vec_f32 a, vec_f32 b, vec_f32 c, vec_f32 d, float *out) {
    const vec_f32 sums = _mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d));
    _mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1)));
}

#endif

// Transposes four registers of four 32-bit elements within each 128 bits.
inline void transpose_4x4(const vec_int *rows, vec_int *out) {
    const vec_int low01 = HEARTH_MM(unpacklo_epi32)(rows[0], rows[1]);
    const vec_int low23 = HEARTH_MM(unpacklo_epi32)(rows[2], rows[3]);
    const vec_int high01 = HEARTH_MM(unpackhi_epi32)(rows[0], rows[1]);
    const vec_int high23 = HEARTH_MM(unpackhi_epi32)(rows[2], rows[3]);
    out[0] = HEARTH_MM(unpacklo_epi64)(low01, low23);
    out[1] = HEARTH_MM(unpackhi_epi64)(low01, low23);
    out[2] = HEARTH_MM(unpacklo_epi64)(high01, high23);
    out[3] = HEARTH_MM(unpackhi_epi64)(high01, high23);
}

// v [4]. Lane i of each 128 bits: the sum of the four lanes there of v[i].
inline vec_int reduce_add_quarters(const vec_int *v) {
    const auto pair = [](vec_int a, vec_int b) {
        return add_i32(HEARTH_MM(unpacklo_epi32)(a, b), HEARTH_MM(unpackhi_epi32)(a, b));
    };
    const vec_int low = pair(v[0], v[1]), high = pair(v[2], v[3]);
    return add_i32(HEARTH_MM(unpacklo_epi64)(low, high), HEARTH_MM(unpackhi_epi64)(low, high));
}

// rows [LANES]: 32 bytes of each row. out [8]: lane r of out[j] has bytes 4j to 4j + 3 of row r.
inline void transpose(const bytes_32 *rows, vec_int *out) {
    vec_int t[2][4];
#if defined(HEARTH_AVX512)
    for (int half = 0; half < 2; half++) {
        const bytes_32 *from = rows + 8 * half;
        vec_int pairs[4];
        for (int r = 0; r < 4; r++)
            pairs[r] = _mm512_inserti64x4(_mm512_castsi256_si512(from[r]), from[r + 4], 1);
        transpose_4x4(pairs, t[half]);
    }
    for (int j = 0; j < 4; j++) {
        out[j] = _mm512_shuffle_i64x2(t[0][j], t[1][j], 0x88);
        out[j + 4] = _mm512_shuffle_i64x2(t[0][j], t[1][j], 0xDD);
    }
#else
    for (int half = 0; half < 2; half++) transpose_4x4(rows + 4 * half, t[half]);
    for (int j = 0; j < 4; j++) {
        out[j] = _mm256_permute2x128_si256(t[0][j], t[1][j], 0x20);
        out[j + 4] = _mm256_permute2x128_si256(t[0][j], t[1][j], 0x31);
    }
#endif
}

// Quantizes 32 numbers to signed bytes with one scale, which is returned. values [8]: four bytes
// each. sums [2]: of 16 bytes each.
inline float quantize_32(const float *x, int32_t *values, uint32_t *sums) {
    __m256 v[4];
    __m256 max_abs = _mm256_setzero_ps(), unordered = max_abs;
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + 8 * i);
        unordered = _mm256_or_ps(unordered, _mm256_cmp_ps(v[i], v[i], _CMP_UNORD_Q));
        max_abs = _mm256_max_ps(max_abs, _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v[i]));
    }
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(max_abs), _mm256_extractf128_ps(max_abs, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    m = _mm_max_ss(m, _mm_movehdup_ps(m));
    const float largest = _mm_cvtss_f32(m);
    const __m256 inverse = _mm256_set1_ps(largest > 0 ? 127.0f / largest : 0.0f);
    __m256i q[4];
    for (int i = 0; i < 4; i++) q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse));
    const __m256i low = _mm256_packs_epi32(q[0], q[1]), high = _mm256_packs_epi32(q[2], q[3]);
    // packing works within halves of a register: put the fours back in order
    const __m256i packed = _mm256_permutevar8x32_epi32(_mm256_packs_epi16(low, high),
                                                       _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)values, packed);
    for (int half = 0; half < 2; half++) {
        const __m256i eight = _mm256_add_epi32(q[2 * half], q[2 * half + 1]);
        const __m128i four =
            _mm_add_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
        const __m128i two = _mm_add_epi32(four, _mm_unpackhi_epi64(four, four));
        sums[half] = (uint32_t)_mm_cvtsi128_si32(two) + (uint32_t)_mm_extract_epi32(two, 1);
    }
    // a byte cannot be NaN, the scale can: it must not vanish here
    return _mm256_movemask_ps(unordered) ? NAN : largest / 127.0f;
}

}  // namespace hearth
