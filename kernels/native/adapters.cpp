#include "adapters.h"

namespace {

std::unordered_map<std::string, hearth::AdapterPairs> tensors;
std::vector<hearth_adapter_use> next_uses;
int64_t next_tokens = 0, next_outputs = 0;

}  // namespace

extern "C" void hearth_adapters_put(const char *tensor, int32_t adapter,
                                    const hearth_lora_pair *pair) {
    tensors[tensor][adapter] = *pair;
}

extern "C" void hearth_adapters_remove(int32_t adapter) {
    for (auto &[name, pairs] : tensors) pairs.erase(adapter);
}

extern "C" void hearth_adapters_use(int64_t tokens, int64_t outputs, const hearth_adapter_use *uses,
                                    int64_t count) {
    next_tokens = tokens;
    next_outputs = outputs;
    next_uses.assign(uses, uses + count);
}

namespace hearth {

const AdapterPairs *adapter_pairs(const std::string &tensor) {
    const auto found = tensors.find(tensor);
    return found == tensors.end() ? nullptr : &found->second;
}

bool adapter_uses(const AdapterPairs &pairs, int64_t columns, std::vector<hearth_lora_use> &uses) {
    uses.clear();
    const bool all = next_tokens == 0, outputs = !all && columns != next_tokens;
    if (outputs && columns != next_outputs && !next_uses.empty()) return false;
    for (const hearth_adapter_use &use : next_uses) {
        const auto found = pairs.find(use.adapter);
        if (found == pairs.end()) continue;
        const int64_t column = outputs ? use.output : use.token;
        for (int64_t c = all ? 0 : column; c < (all ? columns : column + 1); c++)
            if (c >= 0) uses.push_back({c, &found->second, use.scale});
    }
    return true;
}

}  // namespace hearth
