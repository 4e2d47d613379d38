#include "frameworks/operator_time.h"

#include <algorithm>
#include <cmath>

#include "simulate/device_kernels.h"
#include "simulate/device_matmul.h"

namespace trainctl::frameworks {
namespace {

// What a kernel costs where the host waits for each one: it ends, the host hears of it, runs Python to the
// next and launches that. bigscience-workshop/bigscience@9e64edec train/tr11-176B-ml/chronicles-prequel.md,
// "dealing with JZ hanging", 80 A100s, 512 sequences of one model of 80 layers at pp 10: 91.04 TFLOP/s with
// CUDA_LAUNCH_BLOCKING=1, 97.20 without (ibid., "Best TFLOPs": 844.81 s for 2,048 sequences at 98.87): 14.5 s
// of 521 passes of eight layers of 89 kernels, as they are counted below, and of the head's 40. (On 160
// neither was faster.)
constexpr double kBlockingSeconds = 37e-6;
// Of head and loss: Megatron-LM megatron/mpu/cross_entropy.py, operator by operator.
constexpr double kHeadKernelsForward = 26, kHeadKernelsBackward = 14;
// All ranks wait for the slowest device. Eight of one node differ by 5 % and more (stas00/ml-engineering,
// compute/accelerator/README.md, "Not all accelerators are created equal"), which is 2.85 standard
// deviations.
constexpr double kDeviceSpread = 0.05 / 2.85;
// Of the bandwidth of other passes, what gathers by index reach: 0.50 against 0.67 of nominal on B200
// (MooreThreads/SimuMax configs/system/b200_bf16_ceperm.json, permute_fwd and default).
constexpr double kPermuteShare = 0.75;

// Kernels that go over a row twice, or sum over rows beside, do not reach what a copy does, 0.85 of nominal.
// Norms, PyTorch's own and operator by operator: linkedin/Liger-Kernel@ead96b61
// benchmark/data/all_benchmark_data.csv, layer_norm of 4,096 rows of 4,096 to 16,384 elements, 1.04 to 1.10
// TB/s on A100 and 1.75 to 2.03 on H100 forward, 1.08 to 1.20 and 1.88 to 2.09 backward (of the bytes below),
// 0.56 of nominal in the mean; rms_norm of transformers on A100 0.51 to 0.62.
constexpr double kNormShare = 0.56 / 0.85;
// Compiled: Dao-AILab/quack@c8ec317 media/bf16_kernel_benchmarks_single_row.svg, RMSNorm of torch.compile on
// H100, rows of 2,048 to 8,192: 2.19, 2.30 and 1.95 TB/s of 3.35.
constexpr double kCompiledNormShare = 0.64 / 0.85;
// Bias, dropout and addition kernel by kernel, and with them random numbers: EleutherAI/cookbook@27dff48d
// sizing/results/transformer_data/h_sweep_tp.out, what a layer of Megatron takes beside attention and MLP on
// A100, 8,192 tokens of 8,192, 12,288, 14,336 and 16,384: 3.1, 4.0, 4.6 and 6.6 ms, less 8 bytes of two
// norms.
constexpr double kDropoutShare = 0.41 / 0.85;
// Losses over a row of a vocabulary. Ibid., torch.compile, 131,072 columns: 1.23 TB/s on H100. Liger-Kernel,
// ibid., cross_entropy of PyTorch on A100, 131,072 columns: 0.83 TB/s forward, 0.85 with the backward;
// megatron_cross_entropy of 8,192 tokens on H100, as Transformer Engine's: 7.96 ms, 10 bytes a logit. On B200
// 0.28 to 0.32 of nominal (SimuMax, ibid., ce and ce_fusion).
constexpr double kLossShare = 0.40 / 0.85;

bool HasYarn(const model::Rope& rope) {
  return rope.scaling.has_value() && rope.scaling->kind == model::RopeScalingKind::kYarn;
}

double NormShare(NormKernel kernel) {
  switch (kernel) {
    case NormKernel::kLibrary:
      return 1;
    case NormKernel::kPlain:
      return kNormShare;
    case NormKernel::kCompiled:
      return kCompiledNormShare;
  }
  return 1;
}

// Passes that a fused kernel of the forward stands for, and those of the backward, in units of its bytes.
ForwardBackward PassesOf(const WorkItem& item, const Workload& w) {
  const FrameworkProfile& f = *w.framework;
  if (item.expert && w.fused_experts && w.IsFp8()) return {0, 0};
  const bool compiled = w.fused_elementwise.value_or(false);  // where the job says so itself
  switch (item.pass) {
    case PassKind::kNorm:
      if (compiled) return {1 / kCompiledNormShare, 2.5 / kCompiledNormShare};
      if (w.fused_norms) return {1 / kNormShare, 2.5 / kNormShare};
      return {f.norm_forward_bytes / 4 / NormShare(f.norm), f.norm_backward_bytes / 4 / NormShare(f.norm)};
    case PassKind::kResidual:
      // Forward r r w; the backward adds the gradients of both branches. Dropout reads or writes its mask,
      // and its backward is a pass of its own. Apart: r w, r w and mask, r r w. Of the gradients of an input
      // that several products make each of a layer's two residuals has half: r r w.
      if (!w.model.dropout) return {1, 1 + f.joined_gradients / 2};
      return {f.fused_residual ? 7.0 / 6 : 15.0 / 6 / kDropoutShare, 11.0 / 6 + f.joined_gradients / 2};
    case PassKind::kRotary:
      // Without it the gradients of queries, keys and values are still joined: r w of all three.
      if (f.rotary == RotaryKernel::kNone) return {0, 1.5};
      if (f.rotary == RotaryKernel::kComplex) {
        // 2 + 4, 4 + 4, 4 + 2 bytes against 2 + 2. Where queries share them keys and values are then
        // repeated: theirs read, as many as queries have written, twice; and their gradients summed.
        const double passes = AttentionOf(w.model).kv_heads < AttentionOf(w.model).heads ? 6 : 5;
        return {passes, passes};
      }
      // NVIDIA/Megatron-LM@d98e8a64 megatron/core/models/common/embeddings/rope_utils.py,
      // _apply_rotary_pos_emb_bshd, in bytes of an element: times cosine 4, half negated 2, joined 4, times
      // sine 4, added 6, joined with what is not rotated 4, against 4; backward 4 + 4 + 2 + 4 + 6.
      // NVIDIA-NeMo/Megatron-Bridge v0.3.0 src/megatron/bridge/utils/fusions.py:66: no fusion for "yarn".
      if (HasYarn(w.model.rope) && !AttentionOf(w.model).latent.has_value() && f.stretched_rotary_apart) {
        return {6, 5};
      }
      return {1, 1};
    case PassKind::kActivation:
      return {1, 1.5};  // r w; dy, x, dx
    case PassKind::kGatedActivation:
      // Of experts the probability's gradient is a sum over the columns beside it, which a compiler makes a
      // kernel of its own: r r r (NVIDIA/Megatron-LM@d98e8a64 megatron/core/fusions/fused_bias_swiglu.py,
      // weighted_swiglu_back).
      if (item.expert && f.expert_extras_apart) return {1, 16.0 / 6};
      // r r w; dy, gate, up, two gradients. Without fusion the activation's result is written and read.
      return compiled || f.fused_activation ? ForwardBackward{1, 10.0 / 6} : ForwardBackward{10.0 / 6, 3};
    case PassKind::kPermute: {
      // Tokens that are sent once to each rank are spread to its experts by the exchange's own kernels, half
      // of the passes.
      const double passes = (w.expert_dispatch == ExpertDispatch::kNodeAware ? 0.5 : 1) / kPermuteShare;
      return {passes, passes};
    }
    case PassKind::kCopy:
      return {1, 1};
    case PassKind::kClamp:
      return {1, 10.0 / 8};  // gradient and input read, written; both halves' gradients joined
    case PassKind::kExpertBias: {
      const ExpertBiasBytes bytes = BytesOfExpertBias(w);
      return {1, bytes.backward / bytes.forward};
    }
  }
  return {1, 1};
}

// Bytes that are moved, per weight, to add a gradient to those before it; 0: the product does it, or each
// micro-batch's gradients are scattered and added as shards.
double AddedGradientBytes(const Workload& w) {
  const FrameworkProfile& f = *w.framework;
  if (f.accumulates_in_product || w.frozen || w.ScattersEachMicroBatch()) return 0;
  if (w.precision == Precision::kBf16 && f.bf16_added_gradient_bytes > 0) return f.bf16_added_gradient_bytes;
  // Two read, one written (PyTorch torch/csrc/autograd/functions/accumulate_grad.h, variable_grad +=
  // new_grad).
  return 3 * f.weight_bytes;
}

// Kernels of an operator where none are fused beyond what its kind says.
ForwardBackward KernelsOf(const WorkItem& item, const Workload& w) {
  const double adds = w.framework->accumulates_in_product || w.frozen ? 0 : 1;
  switch (item.kind) {
    case WorkKind::kMatmul:
      // A bias: its gradient is summed, and added too.
      return {1, 2 + adds + (HasAllLinearBiases(w.model) ? 1 + adds : 0)};
    case WorkKind::kAttention:
      // Two products, softmax, dropout, transposition, the copy of a bias; four, three and copies back.
      return {w.framework->score_bias_bytes > 0 && w.model.learned_positions == 0 ? 6.0 : 5.0, 9};
    case WorkKind::kElementwise:
      break;
  }
  if (item.moved_bytes == 0) return {0, 0};
  switch (item.pass) {
    case PassKind::kNorm:
      return {1, 3 + 2 * adds};  // the input's gradient, the weights' in two parts
    case PassKind::kResidual:
      return w.framework->fused_residual ? ForwardBackward{1, 2} : ForwardBackward{3, 2};
    case PassKind::kRotary:
      return {w.framework->rotary == RotaryKernel::kNone ? 0.0 : 1.0, 1};
    case PassKind::kActivation:
    case PassKind::kGatedActivation:
    case PassKind::kPermute:
    case PassKind::kCopy:
    case PassKind::kClamp:
    case PassKind::kExpertBias:
      break;
  }
  return {1, 1};
}

// Rows of an expert are as many as its scales need: 16 of FP8, 32 of MXFP8, 64 of NVFP4 (NVIDIA/Megatron-LM
// megatron/core/fp8_utils.py and fp4_utils.py, get_..._align_size). At half precision any number will do, and
// no operand's rows are as long as that.
double ExpertRows(double rows, Precision precision) {
  const double multiple = precision == Precision::kNvfp4   ? 64
                          : precision == Precision::kMxfp8 ? 32
                          : precision == Precision::kFp8   ? 16
                                                           : 8;
  return std::ceil(rows / multiple) * multiple;
}

// Of an operand that is brought to low precision, in all. One scale for all of it, which current scaling of
// FP8 has, is found first; scales of 16 or 32 elements are found as these are read. With one scale
// Blackwell's products take an operand in either layout: there is no transposed copy to write
// (NVIDIA/TransformerEngine transformer_engine/pytorch/csrc/quantizer.cpp,
// nvte_is_non_tn_fp8_gemm_supported).
double QuantizeBytes(const Workload& w) {
  const FrameworkProfile& f = *w.framework;
  if (w.quantize_bytes > 0) return w.quantize_bytes;
  if (w.precision != Precision::kFp8 || f.largest_bytes == 0) return f.quantize_bytes;
  const double transposed = simulate::GenerationOf(*w.device) == simulate::Generation::kBlackwell ? 1 : 0;
  return f.quantize_bytes + f.largest_bytes - transposed;
}

double QuantizeWeightBytes(const Workload& w) {
  if (w.quantize_weight_bytes > 0) return w.quantize_weight_bytes;
  return w.framework->quantize_weight_bytes > 0 ? w.framework->quantize_weight_bytes
                                                : w.framework->quantize_bytes;
}

// Transformer Engine casts the operand of each expert on its own, unless history has the scales ready;
// current scaling finds its largest value and then its scale before (NVIDIA/TransformerEngine
// transformer_engine/pytorch/csrc/extensions/cast.cpp, multi_tensor_quantize_impl).
double QuantizeKernels(const WorkItem& item, const Workload& w) {
  const bool current = w.precision == Precision::kFp8 && w.framework->largest_bytes > 0;
  const bool apart = item.expert && w.framework->expert_streams > 0 && !w.fused_experts &&
                     (current || w.precision != Precision::kFp8);
  return (apart ? item.batch : 1) * (current ? 3 : 1);
}

// One of the products that an item stands for. Those of experts run `expert_streams` at a time, unless they
// are one kernel.
double SecondsOfOneProduct(const WorkItem& item, const Workload& w, Precision precision,
                           simulate::MatmulShape shape) {
  const auto launch = [&](double batch) {
    shape.batch = batch;
    return batch > 0 ? simulate::MatmulSeconds(*w.device, precision, shape) : 0;
  };
  const double streams = w.framework->expert_streams;
  if (!item.expert || streams == 0 || w.fused_experts)
    return launch(item.batch) + simulate::kKernelGapSeconds;
  const double rounds = std::floor(item.batch / streams);
  return rounds * launch(streams) + launch(item.batch - rounds * streams) + simulate::kKernelGapSeconds;
}

// The input is brought to low precision before the forward, the output's gradient before the backward; the
// weights for every micro-batch where they do not come so.
ForwardBackward QuantizeSeconds(const WorkItem& item, const Workload& w, double rows) {
  const cluster::Device& device = *w.device;
  const double bytes = QuantizeBytes(w) * item.batch * rows;
  const double kernels = QuantizeKernels(item, w);
  // Fused, the two products of an expert's MLP hand on what they make in low precision.
  const bool fused = item.expert && w.fused_experts;
  const bool last = item.columns == static_cast<double>(w.model.hidden);
  ForwardBackward seconds;
  if (!fused || !last) seconds.forward += simulate::PassSeconds(device, bytes * item.inner, kernels);
  if (!fused || last) seconds.backward += simulate::PassSeconds(device, bytes * item.columns, kernels);
  if (w.framework->quantizes_weights && !w.gathers_fp8 && !w.weights_in_fp8) {
    const double weights = item.batch * item.inner * item.columns;
    seconds.forward += simulate::PassSeconds(device, QuantizeWeightBytes(w) * weights, 1);
  }
  return seconds;
}

ForwardBackward ProductsSeconds(const WorkItem& item, const Workload& w) {
  const bool low = w.IsFp8() && item.fp8;
  const Precision precision = low || !w.IsFp8() ? w.precision : Precision::kBf16;
  const double rows = item.expert ? ExpertRows(item.rows, low ? w.precision : Precision::kBf16) : item.rows;
  const auto product = [&](Precision of, double m, double inner, double columns, double result_bytes) {
    return SecondsOfOneProduct(item, w, of,
                               {.rows = m, .inner = inner, .columns = columns, .result_bytes = result_bytes});
  };
  const bool adds = w.framework->accumulates_in_product;
  const Precision of_gradients = low && w.half_weight_gradients ? Precision::kBf16 : precision;
  ForwardBackward seconds = {product(precision, rows, item.inner, item.columns, 2),
                             product(precision, rows, item.columns, item.inner, 2) +
                                 product(of_gradients, item.inner, rows, item.columns, adds ? 8 : 2)};
  if (HasAllLinearBiases(w.model) && !item.expert && !adds && !w.frozen) {
    // The bias's gradient: those of the outputs are read and summed over the tokens.
    seconds.backward += simulate::PassSeconds(*w.device, item.batch * item.rows * item.columns * 2, 1);
  }
  if (low) {
    const ForwardBackward quantize = QuantizeSeconds(item, w, rows);
    seconds.forward += quantize.forward;
    seconds.backward += quantize.backward;
  }
  return seconds;
}

ForwardBackward PassesSeconds(const WorkItem& item, const Workload& w) {
  const ForwardBackward passes = PassesOf(item, w);
  ForwardBackward kernels = {1, 1};
  if (item.pass == PassKind::kExpertBias) {
    // Two for each expert and one to join them, six and one in the backward (see BytesOfExpertBias).
    const double experts =
        static_cast<double>(FindExperts(w.model)->num_experts) / static_cast<double>(w.mesh.ep);
    kernels = {2 * experts + 1, 6 * experts + 1};
  }
  return {simulate::PassSeconds(*w.device, passes.forward * item.moved_bytes, kernels.forward),
          simulate::PassSeconds(*w.device, passes.backward * item.moved_bytes, kernels.backward)};
}

ForwardBackward DeviceSeconds(const WorkItem& item, const Workload& w) {
  switch (item.kind) {
    case WorkKind::kMatmul:
      return ProductsSeconds(item, w);
    case WorkKind::kAttention:
      return AttentionSeconds(item, w);
    case WorkKind::kElementwise:
      return PassesSeconds(item, w);
  }
  return {};
}

// How much longer than the mean device the slowest of all takes: the expected largest of as many normal
// draws.
double SlowestDevice(const Workload& w) {
  const double devices = static_cast<double>(w.mesh.world_size());
  if (devices < 2) return 1;
  const double root = std::sqrt(2 * std::log(devices));
  const double deviations = root - (std::log(std::log(devices)) + std::log(4 * M_PI)) / (2 * root);
  return 1 + kDeviceSpread * std::max(0.0, deviations);
}

}  // namespace

ForwardBackward OperatorSeconds(const WorkItem& item, const Workload& w) {
  ForwardBackward seconds = DeviceSeconds(item, w);
  if (item.kind != WorkKind::kElementwise) {
    const double slowest = SlowestDevice(w);
    seconds.forward *= slowest;
    seconds.backward *= slowest;
  }
  const ForwardBackward kernels = KernelsOf(item, w);
  seconds.forward += LaunchSeconds(w, kernels.forward);
  seconds.backward += LaunchSeconds(w, kernels.backward);
  return seconds;
}

double LaunchSeconds(const Workload& w, double kernels) {
  return w.framework->blocking_launches ? kernels * kBlockingSeconds : 0;
}

double GradientAdditionSeconds(const Workload& w, double elements) {
  const double micro_batches = static_cast<double>(w.num_micro_batches());
  const double seconds = simulate::PassSeconds(*w.device, AddedGradientBytes(w) * elements, 1);
  return seconds * (micro_batches - 1) / micro_batches;
}

ForwardBackward HeadSeconds(const Workload& w) {
  const cluster::Device& device = *w.device;
  const double tokens = w.TokensPerRank();
  const double hidden = static_cast<double>(w.model.hidden);
  const double tp = static_cast<double>(w.mesh.tp);
  const double multiple = static_cast<double>(w.framework->vocab_multiple) * tp;
  const double columns = std::ceil(static_cast<double>(w.model.vocab) / multiple) * multiple / tp;
  const Precision precision = w.IsFp8() && !w.fused_experts ? Precision::kBf16 : w.precision;
  const FrameworkProfile& f = *w.framework;
  const double row_bytes = w.logit_moved_bytes > 0 ? w.logit_row_bytes : f.logit_row_bytes;
  const double moved = (w.logit_moved_bytes > 0 ? w.logit_moved_bytes : f.logit_moved_bytes) +
                       row_bytes * (1 / kLossShare - 1);
  const double loss = simulate::PassSeconds(device, tokens * columns * moved / 2);
  const bool adds = w.framework->accumulates_in_product;
  return {simulate::MatmulSeconds(device, precision, {1, tokens, hidden, columns, 2}) + loss +
              LaunchSeconds(w, kHeadKernelsForward),
          simulate::MatmulSeconds(device, precision, {1, tokens, columns, hidden, 2}) +
              simulate::MatmulSeconds(device, precision, {1, hidden, tokens, columns, adds ? 8.0 : 2.0}) +
              loss + LaunchSeconds(w, kHeadKernelsBackward)};
}

double OptimizerSeconds(const Workload& w, double elements) {
  // Norm: read. Clip: read and written. Update: master copy, moments and gradient read, all but the gradient
  // written, and the copy for the products. Clear: written.
  const double gradient = w.framework->gradient_bytes;
  const double update = w.framework->update_moved_bytes > 0
                            ? w.framework->update_moved_bytes
                            : 2 * w.OptimizerBytes() + gradient + w.framework->weight_bytes;
  const double bytes = 4 * gradient + update;
  return elements * bytes / simulate::BytesPerSecond(*w.device);
}

}  // namespace trainctl::frameworks
