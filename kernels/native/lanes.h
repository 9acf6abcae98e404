// The vector registers that the matrix products are written in: LANES rows of a weight panel side
// by side, dot() adds four products of an unsigned and a signed byte in each lane.
#pragma once

#include <immintrin.h>

#include <cstdint>

namespace hearth {

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VNNI__)

constexpr int LANES = 16;
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
inline ints dot(ints sum, ints bytes, int32_t four) {
    return _mm512_dpbusd_epi32(sum, bytes, _mm512_set1_epi32(four));
}
inline ints both(ints a, ints b) { return _mm512_and_si512(a, b); }
inline ints either(ints a, ints b) { return _mm512_or_si512(a, b); }
inline ints left(ints v, int bits) { return _mm512_sll_epi32(v, _mm_cvtsi32_si128(bits)); }
inline ints right(ints v, int bits) { return _mm512_srl_epi32(v, _mm_cvtsi32_si128(bits)); }
inline ints right_signed(ints v, int bits) { return _mm512_sra_epi32(v, _mm_cvtsi32_si128(bits)); }
inline floats low_halves(ints v) { return _mm512_cvtph_ps(_mm512_cvtepi32_epi16(v)); }
inline floats bits_to_floats(ints v) { return _mm512_castsi512_ps(v); }

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

#elif defined(__AVX2__) && (defined(__AVXVNNI__) || (defined(__AVX512VNNI__) && defined(__AVX512VL__)))

constexpr int LANES = 8;
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
inline ints dot(ints sum, ints bytes, int32_t four) {
#if defined(__AVXVNNI__)
    return _mm256_dpbusd_avx_epi32(sum, bytes, _mm256_set1_epi32(four));
#else
    return _mm256_dpbusd_epi32(sum, bytes, _mm256_set1_epi32(four));
#endif
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
#error "hearth's kernels need AVX-512 VNNI or AVX-VNNI"
#endif

}  // namespace hearth
