// hearth_matmul(): what ggml_backend.cpp and matmul.py may pass.
#include "kernels/native/matmul.h"

#include "kernels/native/types.h"
#include "tests/kernels/fuzz/input.h"

namespace {

constexpr struct {
    int type, values, bytes;  // of a block
} FORMATS[] = {
    {hearth::TYPE_Q4_0, 32, 18},   {hearth::TYPE_Q4_1, 32, 20},   {hearth::TYPE_Q5_0, 32, 22},
    {hearth::TYPE_Q5_1, 32, 24},   {hearth::TYPE_Q8_0, 32, 34},   {hearth::TYPE_Q2_K, 256, 84},
    {hearth::TYPE_Q3_K, 256, 110}, {hearth::TYPE_Q4_K, 256, 144}, {hearth::TYPE_Q5_K, 256, 176},
    {hearth::TYPE_Q6_K, 256, 210}, {hearth::TYPE_IQ4_NL, 32, 18}, {hearth::TYPE_MXFP4, 32, 17},
    {hearth::TYPE_F16, 1, 2},      {hearth::TYPE_BF16, 1, 2},
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    fuzz::Input input(data, size);
    const auto format = input.choice(FORMATS);
    const int64_t k = input.flag() ? input.number(1, 6) * format.values : input.number(-1, 3000);
    const int type = input.number(0, 15) == 0 ? (int)input.number(-1, 64) : format.type;
    if (!hearth_matmul_supports(type, k) || type != format.type) return 0;

    std::vector<fuzz::Memory> memory;
    std::vector<const float *> x;
    std::vector<hearth_matmul_columns> sets;
    for (int64_t s = input.number(1, 3); s > 0; s--) {
        const int64_t count = input.size(0, 20, k > 512 ? 40 : 600);
        sets.push_back({(int64_t)x.size(), count});
        const int64_t stride = k + input.number(0, 1);
        if (count > 0) memory.push_back(input.memory(((count - 1) * stride + k) * sizeof(float)));
        for (int64_t c = 0; c < count; c++) x.push_back(memory.back().floats() + c * stride);
    }
    std::vector<hearth_matmul_matrix> matrices;
    std::vector<std::vector<float *>> outputs;
    for (int64_t m = input.number(1, 3); m > 0; m--) {
        const int64_t rows = input.size(0, 70, 200),
                      set = input.number(0, (int64_t)sets.size() - 1);
        const size_t tight = (size_t)(k / format.values * format.bytes);
        const size_t row_bytes = tight + (size_t)input.number(0, 3);
        memory.push_back(
            input.memory(rows ? (rows - 1) * row_bytes + tight : 0, (size_t)input.number(0, 3)));
        const void *w = memory.back().data();
        outputs.emplace_back();
        for (int64_t c = 0; c < sets[set].count; c++) {
            memory.emplace_back(rows * sizeof(float));
            outputs.back().push_back(memory.back().floats());
        }
        matrices.push_back({w, rows, row_bytes, set, nullptr});
    }
    for (size_t m = 0; m < matrices.size(); m++) matrices[m].y = outputs[m].data();

    const int threads = (int)input.number(1, 3);
    const size_t workspace =
        hearth_matmul_workspace_bytes(type, k, (int64_t)x.size(), (int64_t)sets.size(), threads);
    memory.emplace_back(workspace);
    const hearth_matmul_args args = {type,
                                     threads,
                                     k,
                                     x.data(),
                                     (int64_t)sets.size(),
                                     sets.data(),
                                     (int64_t)matrices.size(),
                                     matrices.data(),
                                     memory.back().data()};
    hearth_matmul(&args);
    return 0;
}
