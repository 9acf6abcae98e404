// hearth_lora_shrink() and hearth_lora_expand(): the adapters that adapters.py may put, and the
// uses that a batch may have of them.
#include "kernels/native/lora.h"

#include <algorithm>

#include "tests/kernels/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz::Input input(data, size);
    const bool narrow = input.flag();
    int64_t in = input.size(1, 100, 1100);
    if (narrow) in = (in + 31) / 32 * 32;
    const int64_t out = input.size(1, 80, 600),
                  tiles = (out + HEARTH_LORA_TILE - 1) / HEARTH_LORA_TILE;
    const int64_t columns = input.size(1, 6, 40);

    std::vector<fuzz::Memory> memory;
    const auto take = [&](int64_t bytes) {
        memory.push_back(input.memory((size_t)bytes));
        return memory.back().data();
    };
    std::vector<hearth_lora_pair> pairs;
    int64_t stride = 0;
    for (int64_t left = input.number(1, 3); left > 0; left--) {
        const int64_t rank = input.size(1, 20, 130);
        const int64_t format = input.number(0, 2);
        if (format == HEARTH_LORA_BYTES && in % 32) continue;
        const int64_t of_a[] = {in * 2, in / 32 * 34, in * 4}, of_b[] = {2, 1, 4};
        const char *a = take(rank * of_a[format]);
        const char *b = take(tiles * rank * HEARTH_LORA_TILE * of_b[format]);
        const auto *scale = (const float *)take(tiles * HEARTH_LORA_TILE * 4);
        const auto *gain =
            input.flag() ? (const float *)take(tiles * HEARTH_LORA_TILE * 4) : nullptr;
        pairs.push_back({in, out, rank, format, a, b, scale, gain});
        stride = std::max(stride, rank);
    }
    std::vector<const float *> x, base;
    std::vector<float *> y;
    for (int64_t c = 0; c < columns; c++) {
        x.push_back((const float *)take(in * 4));
        y.push_back((float *)take(out * 4));
        base.push_back(input.flag() ? y.back() : (const float *)take(out * 4));
    }
    std::vector<hearth_lora_use> uses;
    for (const hearth_lora_pair &pair : pairs)
        for (int64_t left = input.size(0, 4, 12); left > 0; left--)
            uses.push_back({input.number(0, columns - 1), &pair, input.real()});
    const auto count = (int64_t)uses.size();
    const int threads = (int)input.number(1, 3);
    fuzz::Memory hidden((size_t)(count * stride) * sizeof(float));
    hearth_lora_shrink(uses.data(), count, x.data(), stride, hidden.floats(), threads);
    hearth_lora_expand(uses.data(), count, hidden.floats(), stride, columns, out, base.data(),
                       y.data(), threads);
    return 0;
}
