// hearth_linear(): what linear.py may pass.
#include "kernels/native/linear.h"

#include "kernels/native/types.h"
#include "tests/kernels/fuzz/input.h"

static int64_t row_bytes(int type, int64_t k) {
    switch (type) {
    case hearth::TYPE_Q8_0: return k / 32 * 34;
    case hearth::TYPE_I4: return k / 64 * 36;
    case hearth::TYPE_F32: return k * 4;
    case hearth::TYPE_I8:
    case hearth::TYPE_F8_E4M3: return k;
    default: return k * 2;
    }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const int TYPES[] = {hearth::TYPE_F32, hearth::TYPE_F16, hearth::TYPE_BF16,
                                hearth::TYPE_I8, hearth::TYPE_F8_E4M3};
    static const int BLOCKS[] = {hearth::TYPE_Q8_0, hearth::TYPE_I4};
    fuzz::Input input(data, size);
    const bool whole_blocks = input.flag();
    int64_t k = input.size(1, 100, 2200);
    if (whole_blocks) k = (k + 63) / 64 * 64;

    std::vector<fuzz::Memory> memory;
    std::vector<hearth_matrix> matrices;
    int64_t rows = 0;
    for (int64_t m = input.number(1, 3); m > 0; m--) {
        const int type =
            whole_blocks && input.flag() ? input.choice(BLOCKS) : input.choice(TYPES);
        const int64_t tight = row_bytes(type, k);
        const int64_t own = input.size(1, 40, 100), stride = tight + input.number(0, 1) * 64;
        memory.push_back(
            input.memory((size_t)((own - 1) * stride + tight), (size_t)input.number(0, 3)));
        matrices.push_back({memory.back().data(), own, stride, type});
        rows += own;
    }
    hearth_linear_args args = {};
    args.matrices = matrices.data();
    args.count = (int64_t)matrices.size();
    args.k = k;
    args.n = input.size(1, 40, k > 256 ? 60 : 600);
    args.x_type = input.flag() ? hearth::TYPE_F32 : hearth::TYPE_BF16;
    args.y_type = input.flag() ? hearth::TYPE_F32 : hearth::TYPE_BF16;
    args.x_stride = input.flag() ? k : input.number(0, 2) * (k / 2);
    args.y_stride = rows + input.number(0, 3);
    args.allow_bf16 = input.flag();
    args.threads = (int32_t)input.number(1, 3);
    const size_t x_width = args.x_type == hearth::TYPE_F32 ? 4 : 2;
    memory.push_back(input.memory((size_t)((args.n - 1) * args.x_stride + k) * x_width));
    args.x = memory.back().data();
    memory.emplace_back((size_t)((args.n - 1) * args.y_stride + rows) *
                        (args.y_type == hearth::TYPE_F32 ? 4 : 2));
    args.y = memory.back().data();
    if (!hearth_linear(&args)) abort();  // there is memory
    return 0;
}
