// The LoRA adapters of this process, by the names of the tensors that they change, and on which
// tokens of the next batch each of them acts. llama.cpp is given an adapter of rank 1 and NaN
// for these tensors, whose products ggml_backend.cpp takes for the place where they are computed.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "lora.h"

extern "C" {

// An adapter acts on a token of a batch: token is its number among all, output among those whose
// logits are asked for, or -1.
struct hearth_adapter_use {
    int64_t token, output;
    int32_t adapter;
    float scale;
};

// Lets an adapter act on a tensor; pair's matrices must stay until the adapter is removed.
void hearth_adapters_put(const char *tensor, int32_t adapter, const hearth_lora_pair *pair);
void hearth_adapters_remove(int32_t adapter);

// How the next batches are computed: of `tokens` tokens, of which `outputs` have logits. tokens 0:
// all uses are of all tokens, however many there are. Those of one adapter follow each other.
void hearth_adapters_use(int64_t tokens, int64_t outputs, const hearth_adapter_use *uses,
                         int64_t count);
}

namespace hearth {

// Of one tensor, by the numbers of the adapters.
using AdapterPairs = std::unordered_map<int32_t, hearth_lora_pair>;

// Null where no adapter was ever put there.
const AdapterPairs *adapter_pairs(const std::string &tensor);

// The uses of a tensor's adapters in so many columns. False: these are neither all tokens of the
// batch nor those with logits.
bool adapter_uses(const AdapterPairs &pairs, int64_t columns, std::vector<hearth_lora_use> &uses);

}  // namespace hearth
