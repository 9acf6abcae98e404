// hearth_attention(): what ggml_backend.cpp and attention.py may pass.
#include "kernels/native/attention.h"

#include "kernels/native/types.h"
#include "tests/kernels/fuzz/input.h"

namespace {

constexpr int TYPES[] = {hearth::TYPE_F32, hearth::TYPE_F16, hearth::TYPE_BF16, hearth::TYPE_Q8_0};

size_t vector_bytes(int type, int64_t head_dim) {
    if (type == hearth::TYPE_Q8_0) return (size_t)head_dim / 32 * 34;
    return (size_t)head_dim * (type == hearth::TYPE_F32 ? 4 : 2);
}

// Vectors of `count` rows or cells and `heads`, either of them the outer one, as a permuted view
// has them.
hearth_vectors vectors(fuzz::Input &input, std::vector<fuzz::Memory> &memory, int type,
                       int64_t head_dim, int64_t count, int64_t heads) {
    const size_t tight = vector_bytes(type, head_dim), gap = (size_t)input.number(0, 1) * 64;
    const bool heads_outside = input.flag();
    const size_t inner = tight + gap, outer = inner * (size_t)(heads_outside ? count : heads);
    const size_t row_bytes = heads_outside ? inner : outer;
    const size_t head_bytes = heads_outside ? outer : inner;
    const size_t size =
        count ? (size_t)(count - 1) * row_bytes + (size_t)(heads - 1) * head_bytes + tight : 0;
    memory.push_back(input.memory(size));
    return {memory.back().data(), row_bytes, head_bytes, type, head_dim};
}

// A mask that hides cells as a causal one does, runs of them or single ones, with numbers between.
void hide_cells(fuzz::Input &input, char *mask, size_t row_bytes, int64_t rows, int64_t cells) {
    const int64_t kind = input.number(0, 3), first = input.number(0, 300);
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < cells; c++) {
            const bool hidden = kind == 0   ? c > first + r
                                : kind == 1 ? (c + r) % 7 < first % 8
                                : kind == 2 ? c / 32 % 3 == first % 3
                                            : false;
            const uint16_t value = hidden ? 0xfc00 : 0;
            if (hidden || kind < 2) std::memcpy(mask + r * row_bytes + 2 * c, &value, 2);
        }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz::Input input(data, size);
    const int k_type = input.choice(TYPES), v_type = input.choice(TYPES);
    const int64_t k_dim = input.flag() ? input.number(1, 8) * 32 : input.number(-1, 300);
    const int64_t v_dim = input.flag() ? k_dim : input.number(-1, 300);
    if (!hearth_attention_supports(k_type, v_type, k_dim, v_dim)) return 0;

    std::vector<fuzz::Memory> memory;
    hearth_attention_args args = {};
    args.rows = input.size(0, 6, 60);
    args.cells = input.size(0, 80, 700);
    args.heads_kv = input.number(1, 3);
    args.heads = args.heads_kv * input.size(1, 4, 20);
    args.q = vectors(input, memory, hearth::TYPE_F32, k_dim, args.rows, args.heads);
    args.k = vectors(input, memory, k_type, k_dim, args.cells, args.heads_kv);
    args.v = vectors(input, memory, v_type, v_dim, args.cells, args.heads_kv);
    if (input.flag()) {
        args.mask_row_bytes = (size_t)(args.cells + input.number(0, 40)) * 2;
        memory.push_back(
            input.memory(args.rows ? (args.rows - 1) * args.mask_row_bytes + args.cells * 2 : 0));
        args.mask = memory.back().data();
        hide_cells(input, memory.back().data(), args.mask_row_bytes, args.rows, args.cells);
    }
    if (input.flag()) {
        memory.push_back(input.memory(args.heads * sizeof(float)));
        args.sinks = memory.back().floats();
    }
    const bool heads_outside = input.flag();
    const size_t inner = (size_t)v_dim * sizeof(float);
    args.out_head_bytes = heads_outside ? inner * (size_t)args.rows : inner;
    args.out_row_bytes = heads_outside ? inner : inner * (size_t)args.heads;
    memory.emplace_back(inner * (size_t)(args.rows * args.heads));
    args.out = memory.back().floats();
    args.scale = input.real();
    args.max_bias = input.real();
    args.softcap = input.real();
    args.threads = (int)input.number(1, 3);
    memory.emplace_back(hearth_attention_workspace_bytes(&args));
    args.workspace = memory.back().data();
    hearth_attention(&args);
    return 0;
}
