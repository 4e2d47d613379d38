#include "published/notes.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "base/names.h"
#include "published/expert_recipes.h"

namespace trainctl::published {
namespace {

constexpr double kSmallDevice = 24.0 * 1024 * 1024 * 1024;  // of the devices that people have at home

class NotesReader {
 public:
  NotesReader(const RunText& text, frameworks::Workload& workload, std::vector<std::string>& assumptions)
      : text_(text), notes_(absl::AsciiStrToLower(text.notes)), w_(workload), assumptions_(assumptions) {}

  void Read() {
    const std::string optimizer = absl::AsciiStrToLower(text_.optimizer);
    if (absl::StrContains(optimizer, "8bit")) {
      // The moments take a byte each; the master copy, where there is one, stays.
      w_.optimizer_bytes = w_.framework->optimizer_bytes > 8 ? 6 : 2;
    }
    if (ApplyExpertRecipe(text_.model, text_.notes, w_)) Assume("dispatch as in that release's recipes");
    w_.drops_tokens = absl::StrContains(NormalName(text_.model), "tokendrop");
    if (Says("hybridep")) w_.expert_dispatch = frameworks::ExpertDispatch::kNodeAware;
    if (Says("ep overlap on")) w_.overlap_experts = true;
    w_.activations_on_host = Says("activation offload") || absl::StrContains(optimizer, "8bit");
    if (Is("megatron-deepspeed")) ReadChronicle();
    if (Is("megatron-bridge")) ReadBridge();
    w_.frozen = (Is("megatron-core") || Is("megatron-bridge")) && Says("lora");
    if (Is("torchtune")) ReadTune();
    if (Is("torchtitan")) ReadTitan();
    if (Is("torchtitan-eager")) ReadEagerTitan();
    if (Is("fsdp1")) ReadFoundry();
    w_.optimizer_in_backward |= Says("optimizer in backward") || w_.activations_on_host;
  }

 private:
  void Assume(const char* text) { assumptions_.emplace_back(text); }
  bool Says(const char* words) const { return absl::StrContains(notes_, words); }
  bool Is(absl::string_view framework) const { return framework == w_.framework->name; }

  // Parameters in FP8 (NVIDIA-NeMo/Megatron-Bridge src/megatron/bridge/training/mixed_precision.py:285-302;
  // MXFP8 keeps a copy along rows and one along columns, which is as much as bf16). On Hopper the recipes
  // other than Llama's scale by blocks, beside bf16 weights (365-376); and its products need a transposed
  // copy, which is made when the weights have been gathered and stays (NVIDIA/Megatron-LM@3758b54b
  // megatron/core/fp8_utils.py:255-265, "we keep the columnwise data"; NVIDIA/TransformerEngine@71bbefbf
  // transformer_engine/pytorch/tensor/utils.py, post_all_gather_processing). Before December 2025 it was made
  // by the first backward and dropped by the update: it was there at the same peaks. What the recipes switch
  // off (disable_parameter_transpose_cache) is a cache of weights that are not in FP8 themselves.
  void ReadBridge() {
    const bool needs_transposed = w_.device->silicon == cluster::Silicon::kHopper;
    const bool is_llama = absl::StrContains(NormalName(text_.model), "llama");
    w_.weights_in_fp8 = w_.precision == frameworks::Precision::kFp8 && (is_llama || !needs_transposed);
    w_.transposed_weights = w_.weights_in_fp8 && needs_transposed;
  }

  // pytorch/torchtune@bd2a0fc README.md:117-160: two tables. One adds a switch a row; the other is of the
  // recipe recipes/configs/llama3_1/8B_full_single_device.yaml:60-80, compiled.
  void ReadTune() {
    const bool series = Says("cumulative");
    if (!series && Says("single-device recipe")) {
      // Paged: the driver moves the moments in as the update, on the device, comes to them.
      w_.optimizer_bytes = 1e-3;
      w_.optimizer_in_backward = true;
      // The table has two rows a method, the one with least memory and the one with most tokens a second
      // (torchtune issue 925). Recompute is what the second leaves out: its other switches cost no speed, it
      // 21 % (README.md:150-153).
      const bool least_memory = w_.device->memory_bytes.value <= kSmallDevice;
      w_.recompute = least_memory ? frameworks::RecomputeKind::kFull : frameworks::RecomputeKind::kNone;
      w_.loss_chunks = 8;
      w_.logit_bytes = 12;
      Assume(least_memory
                 ? "recompute, optimizer in backward and paged moments of 8B_full_single_device.yaml"
                 : "optimizer in backward and paged moments of 8B_full_single_device.yaml, without its "
                   "recompute");
    }
    // Later rows have what earlier ones had.
    const bool packed_alone = Says("+packed");
    w_.fused_elementwise = !Says("unpacked") && !packed_alone;
    if (Says("unpacked")) {
      w_.seq_len = 512;
      Assume(
          "sequences of 512, to which Alpaca's own script cuts them (tatsu-lab/stanford_alpaca train.py), "
          "unpacked");
    }
    if (Says("chunked ce") || Says("activation ckpt") || Says("optimizer in backward") ||
        Says("activation offload") || Says("8-bit adamw")) {
      // Casts to fp32 and back are compiled into the chunk's loss (torchtune/modules/loss/
      // ce_chunked_output_loss.py:32-34): half-precision logits and gradients are left.
      w_.loss_chunks = 8;
      w_.logit_bytes = 4;
    }
  }

  // Tensorwise float8 is gathered as such: pytorch/ao@36027d82 benchmarks/float8/training/llama3.sh and
  // pytorch/torchtitan@3faaa1a0 train_configs/llama3_405b.toml, enable_fsdp_float8_all_gather.
  void ReadTitan() {
    w_.gathers_fp8 = w_.precision == frameworks::Precision::kFp8 && !Says("rowwise") &&
                     (Says("float8") || Says("tensorwise"));
    // pytorch/ao@36027d82 torchao/testing/training/roofline_utils.py, get_tensor_memory_traffic_ovhd_s. By
    // rows: 2 + 1 + 2 and 2 + 1 bytes, of a weight 2 + 1, 2 + 2 and 2 + 1; with gradients of weights in high
    // precision (gw_hp) 2 + 1, and twice. In blocks of 32: 2 + 1 twice, of weights too.
    if (w_.precision == frameworks::Precision::kMxfp8) {
      w_.quantize_bytes = w_.quantize_weight_bytes = 6;
    } else if (w_.precision == frameworks::Precision::kFp8 && Says("rowwise")) {
      w_.half_weight_gradients = Says("gw_hp");
      w_.quantize_bytes = w_.half_weight_gradients ? 3 : 8;
      w_.quantize_weight_bytes = w_.half_weight_gradients ? 6 : 10;
    }
    // Its page names torchtitan 0.0.2 for the H100 (docs/source/workflows/training.md:56-57), where the
    // compilation of the loss is commented out (torchtitan@048f65d torchtitan/components/loss.py:18): half
    // logits, in fp32 with their log-softmax and gradient.
    if (!absl::StrContains(text_.source, "pytorch/ao")) return;
    if (w_.device->silicon == cluster::Silicon::kHopper) {
      const frameworks::FrameworkProfile& eager = *frameworks::FindFramework("torchtitan-eager");
      w_.logit_bytes = eager.logit_bytes;
      w_.logit_moved_bytes = eager.logit_moved_bytes;
      w_.logit_row_bytes = eager.logit_row_bytes;
      Assume("the loss is not compiled (torchtitan 0.0.2)");
    }
    // The B200's page names torchtitan@6fc499f (line 308), whose list of operators to keep
    // (torchtitan/models/llama3/infra/parallelize.py:234-243) lacks the attention that it uses there
    // (torchtitan/models/attention.py:211); later ones have it.
    if (w_.device->silicon == cluster::Silicon::kBlackwell && !w_.device->grace_host) {
      w_.recompute_attention = true;
      Assume("attention is recomputed (torchtitan@6fc499f on Blackwell)");
    }
  }

  // Norms of the smaller models of April 2024 are Triton kernels, of the larger ones not
  // (pytorch/torchtitan@1ea476e9 train_configs/llama3_8b.toml:21, llama2_13b.toml:21: fused_rmsnorm).
  void ReadEagerTitan() {
    if (!absl::StrContains(text_.source, "docs/performance.md") || w_.model.hidden >= 8192) return;
    w_.fused_norms = true;
    Assume("norms are one kernel each (fused_rmsnorm)");
  }

  // Two generations of tables. That of April 2023, where the precision is still called bf16, ran under
  // PyTorch 1.13.1 (mosaicml/llm-foundry@9fa3ceb9 examples/llm/throughput/sweep.sh), before recomputation
  // stopped early; that of October 2023 under 2.1.0 (@b2a43a14 scripts/train/benchmarking/sweep.sh). PURE
  // reduces gradients in bf16, DEFAULT in fp32 (mosaicml/composer@v0.16.4
  // composer/trainer/mosaic_fsdp_utils.py:84).
  void ReadFoundry() {
    if (Says("raw precision=bf16")) {
      w_.stops_recompute_early = false;
      Assume("recomputation to the end of each block (PyTorch 1.13.1)");
    }
    if (Says("mp mode=pure")) {
      w_.exchanged_gradient_bytes = 2;
      Assume("gradients reduced in bf16 (PURE)");
    }
  }

  // What the sections of BLOOM's chronicle say of all their runs (bigscience-workshop/bigscience,
  // train/tr11-176B-ml/chronicles-prequel.md:899-901, README.md:308-312).
  void ReadChronicle() {
    w_.model.dropout = true;
    // "From now on" embeddings count as layers, and bf16 has an optimizer of its own, with fp32 gradients.
    // The 106 layers of the section before it were cut in this way too (line 888).
    const bool rebalanced = Says("rebalancing layers");
    w_.embedding_is_layer = rebalanced || (Says("re-do") && w_.model.layers == 106);
    if (w_.precision == frameworks::Precision::kBf16 && Says("sect") && !rebalanced) w_.gradient_bytes = 2;
  }

  const RunText& text_;
  const std::string notes_;  // in lower case
  frameworks::Workload& w_;
  std::vector<std::string>& assumptions_;
};

}  // namespace

void ApplyNotes(const RunText& text, frameworks::Workload& workload, std::vector<std::string>& assumptions) {
  NotesReader(text, workload, assumptions).Read();
}

}  // namespace trainctl::published
