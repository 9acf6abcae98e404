// The vector registers that the kernels are written in: LANES rows of a weight panel side by side.
//
// dot() adds four products of a weight's byte and a column's in each lane. Columns have signed bytes
// from -127 to 127. Weights have unsigned ones; those that need all 256 values are moved by MIDDLE,
// which is 0 for processors that add products in 16 bits: there such weights are SIGNED.
#pragma once

#include <immintrin.h>

#include <cmath>
#include <cstdint>

namespace hearth {

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VNNI__)

constexpr int LANES = 16;
constexpr int MIDDLE = 128;
using ints = __m512i;
using floats = __m512;

inline ints load(const void *p) { return _mm512_loadu_si512(p); }
inline void store(void *p, ints v) { _mm512_storeu_si512(p, v); }
inline floats load(const float *p) { return _mm512_loadu_ps(p); }
inline void store(float *p, floats v) { _mm512_storeu_ps(p, v); }
inline ints all(int32_t v) { return _mm512_set1_epi32(v); }
inline floats all(float v) { return _mm512_set1_ps(v); }
inline floats zeros() { return _mm512_setzero_ps(); }
inline floats to_floats(ints v) { return _mm512_cvtepi32_ps(v); }
inline floats times(floats a, floats b) { return _mm512_mul_ps(a, b); }
inline floats plus_product(floats a, floats b, floats c) { return _mm512_fmadd_ps(a, b, c); }
inline floats minus_product(floats a, floats b, floats c) { return _mm512_fnmadd_ps(a, b, c); }
template <bool SIGNED>
ints dot(ints sum, ints bytes, ints column) {
    static_assert(!SIGNED);
    return _mm512_dpbusd_epi32(sum, bytes, column);
}
inline ints times(ints a, int32_t b) { return _mm512_mullo_epi32(a, all(b)); }
inline ints unlike_bits(ints a, ints b) { return _mm512_xor_si512(a, b); }
inline ints looked_up(const int8_t *table, ints bytes) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)table)), bytes);
}
inline ints both(ints a, ints b) { return _mm512_and_si512(a, b); }
inline ints either(ints a, ints b) { return _mm512_or_si512(a, b); }
inline ints left(ints v, int bits) { return _mm512_sll_epi32(v, _mm_cvtsi32_si128(bits)); }
inline ints right(ints v, int bits) { return _mm512_srl_epi32(v, _mm_cvtsi32_si128(bits)); }
inline ints right_signed(ints v, int bits) { return _mm512_sra_epi32(v, _mm_cvtsi32_si128(bits)); }
inline floats low_halves(ints v) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)); }
inline floats bits_to_floats(ints v) { return _mm512_castsi512_ps(v); }
inline floats plus(floats a, floats b) { return _mm512_add_ps(a, b); }
inline floats minus(floats a, floats b) { return _mm512_sub_ps(a, b); }
inline floats over(floats a, floats b) { return _mm512_div_ps(a, b); }
inline floats larger(floats a, floats b) { return _mm512_max_ps(a, b); }
inline floats smaller(floats a, floats b) { return _mm512_min_ps(a, b); }
inline float largest_of(floats v) { return _mm512_reduce_max_ps(v); }
inline floats rounded(floats v) { return _mm512_roundscale_ps(v, 0); }
inline ints whole(floats v) { return _mm512_cvtps_epi32(v); }
inline ints plus(ints a, ints b) { return _mm512_add_epi32(a, b); }
inline floats from_halves(const void *p) { return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)p)); }
inline floats from_bf16(const void *p) {
    const __m256i v = _mm256_loadu_si256((const __m256i *)p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(v), 16));
}
inline floats from_bytes(const void *p) {
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)p)));
}
// v + mask, and -infinity where the mask is that, whatever v is there.
inline floats plus_mask(floats v, floats mask) {
    const floats hidden = _mm512_set1_ps(-INFINITY);
    return _mm512_mask_add_ps(hidden, _mm512_cmp_ps_mask(mask, hidden, _CMP_NEQ_UQ), v, mask);
}
// v, and 0 where x is below low.
inline floats or_zero_below(floats low, floats x, floats v) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, low, _CMP_NLT_UQ), v);
}
// The larger of the sizes of v and of sizes, as the bits of floats: NaN is the largest of all.
inline ints largest_size(ints sizes, floats v) {
    return _mm512_max_epi32(sizes, _mm512_castps_si512(_mm512_abs_ps(v)));
}
inline bool all_sizes_below(ints sizes, float limit) {
    return _mm512_cmplt_epi32_mask(sizes, _mm512_castps_si512(all(limit))) == 0xffff;
}
// A bit for each of 64 numbers that is not the one given.
inline uint64_t unlike(const uint16_t *p, uint16_t one) {
    const __m512i same = _mm512_set1_epi16((short)one);
    const uint64_t low = _mm512_cmpneq_epi16_mask(_mm512_loadu_si512(p), same);
    return low | (uint64_t)_mm512_cmpneq_epi16_mask(_mm512_loadu_si512(p + 32), same) << 32;
}
using doubles = __m512d;  // half as many
inline doubles load(const double *p) { return _mm512_loadu_pd(p); }
inline void store(double *p, doubles v) { _mm512_storeu_pd(p, v); }
inline doubles all(double v) { return _mm512_set1_pd(v); }
inline doubles plus(doubles a, doubles b) { return _mm512_add_pd(a, b); }
inline ints bits_of(doubles v) { return _mm512_castpd_si512(v); }
inline ints plus_long(ints a, ints b) { return _mm512_add_epi64(a, b); }
inline int64_t sum_of_longs(ints v) { return _mm512_reduce_add_epi64(v); }
inline doubles low_half(floats v) { return _mm512_cvtps_pd(_mm512_castps512_ps256(v)); }
inline doubles high_half(floats v) { return _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1)); }
inline doubles plus_product(doubles a, doubles b, doubles c) { return _mm512_fmadd_pd(a, b, c); }
inline void store_wide(double *p, floats v) {
    store(p, low_half(v));
    store(p + 8, high_half(v));
}
inline __m128 folded(floats v) {
    const __m256 two = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    return _mm_add_ps(_mm256_castps256_ps128(two), _mm256_extractf128_ps(two, 1));
}
// The sums of four registers' lanes.
inline __m128 sums_of(floats a, floats b, floats c, floats d) {
    const floats ab = _mm512_add_ps(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    const floats cd = _mm512_add_ps(_mm512_unpacklo_ps(c, d), _mm512_unpackhi_ps(c, d));
    const __m512d lo = _mm512_unpacklo_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
    const __m512d hi = _mm512_unpackhi_pd(_mm512_castps_pd(ab), _mm512_castps_pd(cd));
    return folded(_mm512_add_ps(_mm512_castpd_ps(lo), _mm512_castpd_ps(hi)));
}

// rows[r]: 32 bytes of row r. Afterwards lane r of out[j] has bytes 4j to 4j + 3 of row r.
inline void turn(const __m256i *rows, ints *out) {
    ints t[2][4];
    for (int s = 0; s < 2; s++) {
        const __m256i *from = rows + 8 * s;
        ints a[4];
        for (int r = 0; r < 4; r++)
            a[r] = _mm512_inserti64x4(_mm512_castsi256_si512(from[r]), from[r + 4], 1);
        const ints ab = _mm512_unpacklo_epi32(a[0], a[1]), cd = _mm512_unpacklo_epi32(a[2], a[3]);
        const ints AB = _mm512_unpackhi_epi32(a[0], a[1]), CD = _mm512_unpackhi_epi32(a[2], a[3]);
        t[s][0] = _mm512_unpacklo_epi64(ab, cd);
        t[s][1] = _mm512_unpackhi_epi64(ab, cd);
        t[s][2] = _mm512_unpacklo_epi64(AB, CD);
        t[s][3] = _mm512_unpackhi_epi64(AB, CD);
    }
    for (int j = 0; j < 4; j++) {
        out[j] = _mm512_shuffle_i64x2(t[0][j], t[1][j], 0x88);
        out[j + 4] = _mm512_shuffle_i64x2(t[0][j], t[1][j], 0xDD);
    }
}

#elif defined(__AVX2__)

constexpr int LANES = 8;
#if defined(__AVXVNNI__)
constexpr int MIDDLE = 128;
#else
constexpr int MIDDLE = 0;
#endif
using ints = __m256i;
using floats = __m256;

inline ints load(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
inline void store(void *p, ints v) { _mm256_storeu_si256((__m256i *)p, v); }
inline floats load(const float *p) { return _mm256_loadu_ps(p); }
inline void store(float *p, floats v) { _mm256_storeu_ps(p, v); }
inline ints all(int32_t v) { return _mm256_set1_epi32(v); }
inline floats all(float v) { return _mm256_set1_ps(v); }
inline floats zeros() { return _mm256_setzero_ps(); }
inline floats to_floats(ints v) { return _mm256_cvtepi32_ps(v); }
inline floats times(floats a, floats b) { return _mm256_mul_ps(a, b); }
inline floats plus_product(floats a, floats b, floats c) { return _mm256_fmadd_ps(a, b, c); }
inline floats minus_product(floats a, floats b, floats c) { return _mm256_fnmadd_ps(a, b, c); }
template <bool SIGNED>
ints dot(ints sum, ints bytes, ints column) {
#if defined(__AVXVNNI__)
    static_assert(!SIGNED);
    return _mm256_dpbusd_avx_epi32(sum, bytes, column);
#else
    // Two products fit into 16 bits: 2 x 128 x 127, or 2 x 63 x 127 of weights that are not signed
    const ints two = SIGNED ? _mm256_maddubs_epi16(_mm256_abs_epi8(bytes), _mm256_sign_epi8(column, bytes))
                            : _mm256_maddubs_epi16(bytes, column);
    return _mm256_add_epi32(sum, _mm256_madd_epi16(two, _mm256_set1_epi16(1)));
#endif
}
inline ints times(ints a, int32_t b) { return _mm256_mullo_epi32(a, all(b)); }
inline ints unlike_bits(ints a, ints b) { return _mm256_xor_si256(a, b); }
inline ints looked_up(const int8_t *table, ints bytes) {
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table)), bytes);
}
inline ints both(ints a, ints b) { return _mm256_and_si256(a, b); }
inline ints either(ints a, ints b) { return _mm256_or_si256(a, b); }
inline ints left(ints v, int bits) { return _mm256_sll_epi32(v, _mm_cvtsi32_si128(bits)); }
inline ints right(ints v, int bits) { return _mm256_srl_epi32(v, _mm_cvtsi32_si128(bits)); }
inline ints right_signed(ints v, int bits) { return _mm256_sra_epi32(v, _mm_cvtsi32_si128(bits)); }
inline floats low_halves(ints v) {
    const __m256i halves = both(v, _mm256_set1_epi32(0xffff));
    return _mm256_cvtph_ps(_mm256_castsi256_si128(
        _mm256_permute4x64_epi64(_mm256_packus_epi32(halves, halves), 0x08)));
}
inline floats bits_to_floats(ints v) { return _mm256_castsi256_ps(v); }
inline floats plus(floats a, floats b) { return _mm256_add_ps(a, b); }
inline floats minus(floats a, floats b) { return _mm256_sub_ps(a, b); }
inline floats over(floats a, floats b) { return _mm256_div_ps(a, b); }
inline floats larger(floats a, floats b) { return _mm256_max_ps(a, b); }
inline floats smaller(floats a, floats b) { return _mm256_min_ps(a, b); }
inline floats rounded(floats v) { return _mm256_round_ps(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
inline ints whole(floats v) { return _mm256_cvtps_epi32(v); }
inline ints plus(ints a, ints b) { return _mm256_add_epi32(a, b); }
inline floats from_halves(const void *p) { return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p)); }
inline floats from_bf16(const void *p) {
    const __m128i v = _mm_loadu_si128((const __m128i *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16));
}
inline floats from_bytes(const void *p) {
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)p)));
}
inline floats plus_mask(floats v, floats mask) {
    const floats hidden = _mm256_set1_ps(-INFINITY);
    return _mm256_blendv_ps(_mm256_add_ps(v, mask), hidden, _mm256_cmp_ps(mask, hidden, _CMP_EQ_OQ));
}
inline floats or_zero_below(floats low, floats x, floats v) {
    return _mm256_and_ps(_mm256_cmp_ps(x, low, _CMP_NLT_UQ), v);
}
inline ints largest_size(ints sizes, floats v) {
    return _mm256_max_epi32(sizes, _mm256_castps_si256(_mm256_andnot_ps(all(-0.0f), v)));
}
inline bool all_sizes_below(ints sizes, float limit) {
    return _mm256_movemask_epi8(_mm256_cmpgt_epi32(_mm256_castps_si256(all(limit)), sizes)) == -1;
}
inline uint64_t unlike(const uint16_t *p, uint16_t one) {
    const __m256i same = _mm256_set1_epi16((short)one);
    const auto equal = [&](int at) { return _mm256_cmpeq_epi16(_mm256_loadu_si256((const __m256i *)(p + at)), same); };
    uint64_t bits = 0;
    for (int at = 0; at < 64; at += 32) {
        const __m256i bytes = _mm256_permute4x64_epi64(_mm256_packs_epi16(equal(at), equal(at + 16)), 0xD8);
        bits |= (uint64_t)(uint32_t)_mm256_movemask_epi8(bytes) << at;
    }
    return ~bits;
}
using doubles = __m256d;  // half as many
inline doubles load(const double *p) { return _mm256_loadu_pd(p); }
inline void store(double *p, doubles v) { _mm256_storeu_pd(p, v); }
inline doubles all(double v) { return _mm256_set1_pd(v); }
inline doubles plus(doubles a, doubles b) { return _mm256_add_pd(a, b); }
inline ints bits_of(doubles v) { return _mm256_castpd_si256(v); }
inline ints plus_long(ints a, ints b) { return _mm256_add_epi64(a, b); }
inline int64_t sum_of_longs(ints v) {
    const __m128i two = _mm_add_epi64(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    return _mm_cvtsi128_si64(_mm_add_epi64(two, _mm_unpackhi_epi64(two, two)));
}
inline doubles low_half(floats v) { return _mm256_cvtps_pd(_mm256_castps256_ps128(v)); }
inline doubles high_half(floats v) { return _mm256_cvtps_pd(_mm256_extractf128_ps(v, 1)); }
inline doubles plus_product(doubles a, doubles b, doubles c) { return _mm256_fmadd_pd(a, b, c); }
inline void store_wide(double *p, floats v) {
    store(p, low_half(v));
    store(p + 4, high_half(v));
}
inline __m128 folded(floats v) {
    return _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
}
inline __m128 sums_of(floats a, floats b, floats c, floats d) {
    return folded(_mm256_hadd_ps(_mm256_hadd_ps(a, b), _mm256_hadd_ps(c, d)));
}
inline float largest_of(floats v) {
    const __m128 four = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)));
}

inline void turn(const __m256i *rows, ints *out) {
    ints t[2][4];
    for (int s = 0; s < 2; s++) {
        const __m256i *a = rows + 4 * s;
        const ints ab = _mm256_unpacklo_epi32(a[0], a[1]), cd = _mm256_unpacklo_epi32(a[2], a[3]);
        const ints AB = _mm256_unpackhi_epi32(a[0], a[1]), CD = _mm256_unpackhi_epi32(a[2], a[3]);
        t[s][0] = _mm256_unpacklo_epi64(ab, cd);
        t[s][1] = _mm256_unpackhi_epi64(ab, cd);
        t[s][2] = _mm256_unpacklo_epi64(AB, CD);
        t[s][3] = _mm256_unpackhi_epi64(AB, CD);
    }
    for (int j = 0; j < 4; j++) {
        out[j] = _mm256_permute2x128_si256(t[0][j], t[1][j], 0x20);
        out[j + 4] = _mm256_permute2x128_si256(t[0][j], t[1][j], 0x31);
    }
}

#else
#error "hearth's kernels need AVX2"
#endif

// e^x within 2e-7 of it; 0 below -87. NaN stays NaN.
inline floats exponential(floats x) {
    const floats low = all(-87.3f), inside = larger(low, smaller(all(88.3f), x));
    const floats n = rounded(times(inside, all(1.44269504f)));
    floats r = minus_product(n, all(0.693359375f), inside);
    r = minus_product(n, all(-2.12194440e-4f), r);
    floats p = all(1.9875691500e-4f);
    for (const float c : {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 0.5f})
        p = plus_product(p, r, all(c));
    p = plus(plus_product(p, times(r, r), r), all(1.0f));
    const floats scale = bits_to_floats(left(plus(whole(n), all(127)), 23));
    return or_zero_below(low, x, times(p, scale));
}

}  // namespace hearth
