// ggml's types: their numbers, and how rows of plain numbers and of Q8_0 become registers.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "lanes.h"

namespace hearth {

enum Type {
    TYPE_F32 = 0, TYPE_F16 = 1, TYPE_Q4_0 = 2, TYPE_Q4_1 = 3, TYPE_Q5_0 = 6, TYPE_Q5_1 = 7, TYPE_Q8_0 = 8,
    TYPE_Q2_K = 10, TYPE_Q3_K = 11, TYPE_Q4_K = 12, TYPE_Q5_K = 13, TYPE_Q6_K = 14, TYPE_IQ4_NL = 20,
    TYPE_BF16 = 30, TYPE_MXFP4 = 39,
};

template <class T>
inline T read(const void *from) {
    T value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

inline float from_bfloat(uint16_t bits) {
    const uint32_t wide = (uint32_t)bits << 16;
    return read<float>(&wide);
}

// How a row of a type gives the LANES numbers from number i on, i a multiple of LANES, or one.
struct AsF32 {
    static const char *address(const char *row, int64_t i) { return row + 4 * i; }
    static floats some(const char *row, int64_t i) { return load((const float *)row + i); }
    static float one(const char *row, int64_t i) { return read<float>(row + 4 * i); }
};
struct AsBF16 {
    static const char *address(const char *row, int64_t i) { return row + 2 * i; }
    static floats some(const char *row, int64_t i) { return from_bf16(row + 2 * i); }
    static float one(const char *row, int64_t i) { return from_bfloat(read<uint16_t>(row + 2 * i)); }
};
struct AsF16 {
    static const char *address(const char *row, int64_t i) { return row + 2 * i; }
    static floats some(const char *row, int64_t i) { return from_halves(row + 2 * i); }
    static float one(const char *row, int64_t i) { return _cvtsh_ss(read<uint16_t>(row + 2 * i)); }
};
struct AsQ8 {  // blocks of a scale in float16 and 32 signed bytes
    static const char *address(const char *row, int64_t i) { return row + i / 32 * 34; }
    static float scale(const char *block) { return _cvtsh_ss(read<uint16_t>(block)); }
    static floats some(const char *row, int64_t i) {
        const char *block = row + i / 32 * 34;
        return times(from_bytes(block + 2 + i % 32), all(scale(block)));
    }
    static float one(const char *row, int64_t i) {
        const char *block = row + i / 32 * 34;
        return scale(block) * (float)(int8_t)block[2 + i % 32];
    }
};

}  // namespace hearth
