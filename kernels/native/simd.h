// SIMD operations under one name each, in AVX-512, AVX2 or NEON as the compiler's flags say.
//
// A register has LANES lanes of 32 bits; in the products of block formats each lane is a row of the
// weights. Loads and stores take any address. Where an operation has the name of an instruction, it
// treats NaN as x86 does: max(a, b) and min(a, b) are b where one of them is NaN. What has as many
// lanes computes the same bits.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>

#if defined(__aarch64__)
#include "simd_neon.h"
#else
#include "simd_x86.h"
#endif

namespace hearth {

// Moves what lies there into the first-level cache; any address.
inline void prefetch(const void *p) { __builtin_prefetch(p); }

// LANES numbers in double precision.
inline void store_f64(double *p, vec_f32 v) {
    store(p, cvt_f64_low(v));
    store(p + LANES / 2, cvt_f64_high(v));
}

inline float reduce_add(vec_f32 v) {
    float sums[4];
    reduce_add4(v, zero_f32(), zero_f32(), zero_f32(), sums);
    return sums[0];
}

#if !defined(HEARTH_AVX512)
inline vec_f32 load_eight(const float *p) { return load(p); }
inline void store_eights(float *p, int, vec_f32 v) { store(p, v); }
inline void reduce_add_eights(const vec_f32 *v, float *out) {
    reduce_add4(v[0], v[1], v[2], v[3], out);
}
#endif

// e^x with a relative error of 2e-7; 0 below -87. NaN stays NaN.
inline vec_f32 exp(vec_f32 x) {
    const vec_f32 low = broadcast(-87.3f), clamped = max(low, min(broadcast(88.3f), x));
    const vec_f32 n = round(mul(clamped, broadcast(1.44269504f)));
    vec_f32 r = fnma(n, broadcast(0.693359375f), clamped);
    r = fnma(n, broadcast(-2.12194440e-4f), r);
    vec_f32 p = broadcast(1.9875691500e-4f);
    for (const float c :
         {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 0.5f})
        p = fma(p, r, broadcast(c));
    p = add(fma(p, mul(r, r), r), broadcast(1.0f));
    const vec_f32 power = bitcast_f32(sll(add_i32(cvt_i32(n), broadcast(127)), 23));
    return zero_where_below(x, low, mul(p, power));
}

}  // namespace hearth
