#include "frameworks/framework.h"

namespace trainctl::frameworks {
namespace {

const FrameworkProfile kFrameworks[] = {
    {.name = "megatron-core",
     .label = "Megatron-LM, Megatron-Bridge and NeMo (Megatron Core with Transformer Engine)",
     .source =
         "NVIDIA/Megatron-LM README (bytes per parameter, distributed optimizer); arXiv 2205.05198 "
         "(sequence parallelism); NVIDIA/TransformerEngine "
         "transformer_engine/common/triton/cross_entropy.py: "
         "half-precision logits are read twice, their gradient is written in place and scaled in the "
         "backward; "
         "NVIDIA/TransformerEngine transformer_engine/common/gemm/cublaslt_gemm.cu: "
         "grouped products on four streams; NVIDIA-NeMo/Megatron-Bridge@067f987 "
         "skills/nemo-mbridge-perf-moe-comm-overlap/SKILL.md: 463,348 kernels in a step of Qwen3-30B-A3B, 64 "
         "micro-batches of 48 layers with 8 local experts: 151 a layer, of which its operators here are 79 "
         "(16 "
         "and 32 products of experts, 11 and 16 others, 4 exchanges); NVIDIA/Megatron-LM@d98e8a64 "
         "megatron/core/transformer/moe/token_dispatcher.py, cuda_sync_point, and \"will cause a CPU sync\" "
         "of "
         "HybridEP",
     .attention = AttentionKernel::kVendor,
     .sequence_parallel = true,
     .fp8_saves_inputs = true,
     .weight_gradient_buffer = true,
     .overlap_tensor_parallel = true,
     .logit_bytes = 6,
     .logit_moved_bytes = 10,
     .logit_row_bytes = 10,
     .norm_backward_bytes = 6,
     .quantize_bytes = 4,
     .stretched_rotary_apart = true,
     .expert_extras_apart = true,
     .expert_layer_kernels = 72,
     .waits_for_counts = true,
     .accumulates_in_product = true,
     .expert_streams = 4,
     .vocab_multiple = 128,
     .selects_modules = true,
     .gradients_stay = true,
     .metric = MemoryMetric::kAllocated},
    {.name = "megatron-bridge",
     .label = "Megatron-Bridge's recipes (Megatron Core with Transformer Engine)",
     .source =
         "NVIDIA-NeMo/Megatron-Bridge@067f987 src/megatron/bridge/perf_recipes/_common.py:62-64,111: "
         "gradients are reduced, and so kept, in bf16; the distributed optimizer copies its part to fp32 "
         "(megatron/core/optimizer/distrib_optimizer.py, _copy_model_grads_to_main_grads); "
         "training/utils/train_utils.py:1204: memory is reported in units of 1e9 bytes; "
         "perf_recipes/llama/h100/llama3.py:60: expandable segments",
     .gradient_bytes = 2,
     .attention = AttentionKernel::kVendor,
     .sequence_parallel = true,
     .fp8_saves_inputs = true,
     .weight_gradient_buffer = true,
     .overlap_tensor_parallel = true,
     .logit_bytes = 6,
     .logit_moved_bytes = 10,
     .logit_row_bytes = 10,
     .norm_backward_bytes = 6,
     .quantize_bytes = 4,
     .stretched_rotary_apart = true,
     .expert_extras_apart = true,
     .expert_layer_kernels = 72,
     .waits_for_counts = true,
     .largest_bytes = 2,
     .accumulates_in_product = true,
     .expert_streams = 4,
     .vocab_multiple = 128,
     .step_bytes = 4,
     .expandable_segments = true,
     .selects_modules = true,
     .gradients_stay = true,
     .reports_decimal_units = true,
     .metric = MemoryMetric::kAllocated},
    {.name = "megatron-deepspeed",
     .label = "Megatron-DeepSpeed with ZeRO-1 (BLOOM)",
     .source =
         "bigscience-workshop/Megatron-DeepSpeed; its training scripts for fp16, fused softmax, activation "
         "checkpointing and --embed-layernorm; arXiv 1909.08053 (no sequence parallelism); "
         "megatron/mpu/cross_entropy.py works in place on fp32 logits; megatron/model/gpt_model.py: "
         "type:transformer, and DeepSpeed fills the stages; DeepSpeed v0.5.10 runtime/engine.py:1338: no "
         "gradient buffers in stage 1; runtime/zero/stage_1_and_2.py:1686-1692: the step flattens the "
         "partition's gradients and copies them to fp32; 1205-1208, 1319-1325: before it, buckets of 500 "
         "million "
         "gradients are flattened to be reduced; runtime/bf16_optimizer.py: fp32 gradients of all "
         "parameters beside the bf16 ones; v0.6.5 runtime/pipe/engine.py:270-274, runtime/engine.py:733-742, "
         "2107-2113: they are reduced by groups of parameters, each as a bf16 copy; "
         "runtime/zero/stage_1_and_2.py, reduce_ready_partitions_and_remove_grads: partitioned gradients "
         "(stage 2) are reduced in every micro-batch, others at the boundary of accumulation; bigscience "
         "train/tr11-176B-ml/chronicles-prequel.md:144: the "
         "context takes 1573 MiB; NCCL 2.10 (PyTorch 1.11); "
         "cross_entropy.py: largest, difference, exponential, sum and quotient are kernels of their own; "
         "bigscience train/tr11-176B-ml: CUDA_LAUNCH_BLOCKING=1; EleutherAI/cookbook@27dff48d "
         "sizing/results/transformer_data/h_sweep_tp.out: with bias_dropout_fusion the norms and residuals "
         "of "
         "Megatron's layer still move 38 bytes an element and more, as without it; ALiBi, "
         "megatron/model/transformer.py: baddbmm, which PyTorch copies it for (written, then read by the "
         "product: 4 bytes); DeepSpeed v0.6.3 runtime/bf16_optimizer.py:393: a gradient is copied to fp32 "
         "and "
         "added to the fp32 ones (2 + 4, 4 + 4 + 4 bytes)",
     .gradient_bytes = 2,
     .bf16_gradient_bytes = 6,
     .optimizer_bytes = 12,
     .attention = AttentionKernel::kScores,
     .overlap_data_parallel = false,
     .logit_bytes = 6,
     .logit_moved_bytes = 50,
     .logit_row_bytes = 0,
     .norm = NormKernel::kPlain,
     .rotary = RotaryKernel::kNone,
     .fused_residual = false,
     .bf16_added_gradient_bytes = 18,
     .score_bias_bytes = 4,
     .blocking_launches = true,
     .vocab_multiple = 128,
     .step_bytes = 6,
     .flat_step_bytes = 6,
     .reduced_copy_elements = 5e8,
     .bf16_reduced_copy_bytes = 2,
     .gradient_twice = true,
     .embedding_norm = true,
     .fills_stages = true,
     .context_bytes = 1573.0 * 1024 * 1024,
     .nccl_channels = 24,
     .nccl_connects_all = true,
     .tensor_groups = 2,
     .data_groups = 1,
     .world_groups = 2,
     .metric = MemoryMetric::kDevice,
     .default_precision = "fp16",
     .default_recompute = "full"},
    {.name = "fsdp1",
     .label = "FSDP of PyTorch 1.x and 2.0 (llm-foundry, Composer)",
     .source =
         "mosaicml/llm-foundry scripts/train/yamls/pretrain/*.yaml: FULL_SHARD, attn_impl triton, no "
         "compilation; PyTorch's LayerNorm and GELU are one kernel each; loss_fn fused_crossentropy keeps "
         "the logits and writes their gradient, both half precision; activation_checkpointing_reentrant: "
         "false, "
         "with which PyTorch's torch/utils/checkpoint.py stops early (set_checkpoint_early_stop, PyTorch "
         "2.1); "
         "torch/distributed/fsdp/_runtime_utils.py: blocks are gathered on a stream of their own, gradients "
         "cast to what is reduced; flat_param.py: parameters are split views, whose backward joins the "
         "gradients; algorithms/_comm_hooks/default_hooks.py: divided before they are scattered; "
         "llmfoundry/models/mpt/modeling_mpt.py@b2a43a14:698: two metrics of every micro-batch in training, "
         "each a cross-entropy over all logits (mosaicml/composer@v0.16.4 composer/metrics/nlp.py:121, "
         "trainer/trainer.py:2473), which autocast brings to fp32 first: 2 + 4, then 4 + 4 for the "
         "log-softmax, beside 2 + 4 of the loss itself; composer/optim/decoupled_weight_decay.py:242-275: "
         "eight kernels a tensor, of 8, 12, 8, 12, 8, 8, 8 and 16 bytes, after one for its step counter, "
         "which "
         "the host reads; llmfoundry/models/layers/fc.py: te.Linear, which casts its weights whenever it "
         "runs "
         "unless it is told which micro-batch is the first",
     .attention = AttentionKernel::kFlash1,
     .stops_recompute_early = true,
     .gathers_by_block = true,
     .flat_gradients = true,
     .logit_bytes = 4,
     .logit_moved_bytes = 34,
     .logit_row_bytes = 22,
     .norm = NormKernel::kPlain,
     .quantize_bytes = 4,
     .quantizes_weights = true,
     .update_moved_bytes = 80,
     .update_kernels = 10,
     .rotary = RotaryKernel::kNone,
     .gathers_in_own_pool = true,
     .metric = MemoryMetric::kReserved},
    {.name = "torchtitan",
     .label = "torchtitan (FSDP2, torch.compile)",
     .source =
         "pytorch/torchtitan README and docs: FSDP2 with fp32 shards, per-operator activation "
         "checkpointing, compiled blocks and loss (half-precision logits and their gradient); its log prints "
         "reserved memory; torchtitan/models/llama3/model.py: rotary embedding of complex numbers in fp32; "
         "wq, wk, wv and w1, w3 are apart; PyTorch "
         "torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py: gathered parameters are copied out, "
         "gradients copied in as fp32; pytorch/ao torchao/testing/training/roofline_utils.py: largest value, "
         "then the cast, in two layouts, of weights too (torchao/float8/float8_linear.py, unless they are "
         "gathered "
         "in float8), which are cast twice; torchtitan/models/llama3/model/model.py@6fc499f:185: repeat_kv; "
         "pytorch/pytorch@01386103 torch/distributed/pipelining/stage.py, backward_maybe_with_nosync: "
         "set_requires_gradient_sync(False) until _post_backward, so that a pipeline scatters once a step; "
         "without one FSDP2 does in every backward",
     .sequence_parallel = true,
     .selects_operators = true,
     .launches_operators = false,
     .stops_recompute_early = true,
     .gathers_by_block = true,
     .whole_gradients_in_pipeline = true,
     .copies_gathered_blocks = true,
     .logit_bytes = 4,
     .norm = NormKernel::kCompiled,
     .quantize_bytes = 6,
     .quantize_weight_bytes = 8,
     .quantizes_weights = true,
     .rotary = RotaryKernel::kComplex,
     .joined_gradients = 3,
     .expandable_segments = true,
     .gathers_in_own_pool = true,
     .metric = MemoryMetric::kReserved,
     .default_recompute = "selective"},
    {.name = "torchtitan-eager",
     .label = "torchtitan without torch.compile",
     .source =
         "as torchtitan; what its kernels read and write one by one (pytorch/torchtitan@9dec370, the default "
         "of its configuration: training.compile false, norm_type rmsnorm, optimizer.fused false). "
         "torchtitan/models/norms.py: to fp32 6 bytes, square 8, mean 4, scaled 8, back 6, weight 4; the "
         "backward of each: 4 + 6 + 2, 6, 8 + 12 + 4, 24, 12 for the sum, 6. "
         "torchtitan/models/llama/model.py:255: silu and product apart; :442: logits to fp32 6, log-softmax "
         "8, its gradient 4 + 12, back 6. PyTorch torch/optim/adamw.py _multi_tensor_adamw: 8, 12, 8, 12, 8, "
         "8, 8 and 16 bytes",
     .sequence_parallel = true,
     .selects_operators = true,
     .stops_recompute_early = true,
     .gathers_by_block = true,
     .whole_gradients_in_pipeline = true,
     .copies_gathered_blocks = true,
     .logit_bytes = 14,
     .logit_moved_bytes = 36,
     .logit_row_bytes = 24,
     .norm = NormKernel::kPlain,
     .norm_forward_bytes = 36,
     .norm_backward_bytes = 84,
     .quantize_bytes = 6,
     .quantize_weight_bytes = 8,
     .quantizes_weights = true,
     .update_moved_bytes = 80,
     .rotary = RotaryKernel::kComplex,
     .fused_activation = false,
     .joined_gradients = 3,
     .expandable_segments = true,
     .gathers_in_own_pool = true,
     .metric = MemoryMetric::kReserved,
     .default_recompute = "selective"},
    {.name = "torchtune",
     .label = "torchtune, one device, everything in bf16",
     .source =
         "pytorch/torchtune README: memory table; bf16 parameters, gradients and AdamW states; "
         "torchtune/modules/attention.py:234, feed_forward.py:50: queries, keys, values, gate and up are "
         "apart",
     .gradient_bytes = 2,
     .optimizer_bytes = 4,
     .stops_recompute_early = true,
     .logit_bytes = 12,
     .norm = NormKernel::kPlain,
     .norm_forward_bytes = 28,
     .norm_backward_bytes = 48,
     .fused_activation = false,
     .joined_gradients = 3,
     .kept_logit_bytes = 4,
     .metric = MemoryMetric::kAllocated},
    {.name = "internevo",
     .label = "InternEvo (ZeRO-1 in groups)",
     .source =
         "InternLM/InternEvo doc/en/train_performance.md; configs/7B_sft.py (overlap_sync_grad, not "
         "overlap_sync_param, reduce_bucket_size 512 Mi); "
         "internlm/solver/optimizer/hybrid_zero_optim.py: reduce_rank None all-reduces the gradients, "
         "broadcast_params; @f5f5446 (August 2023): doc/en/install.md (flash-attention 1.0.5), "
         "internlm/model/modeling_internlm.py (norms read the stream in fp32 and run again in the "
         "backward), internlm/model/linear.py (activation and product of the gate apart); "
         "hybrid_zero_optim.py:749-764: the step holds fp32 gradients (4 bytes), and AdamW of torch 2.0 two "
         "temporaries of the moments' size (torch/optim/adamw.py _multi_tensor_adamw, fused only from 2.1 "
         "on: internlm/train/pipeline.py:306); before them fp32 copies for the norm "
         "(solver/optimizer/utils.py:235) and a flat bf16 one; "
         "internlm/core/context/process_group_initializer.py: data, zero1, model and global groups are "
         "apart; @f5f5446: core/naive_amp.py:134 brings the logits to fp32 (2 + 4), flash-attention's loss "
         "reads them twice and writes their gradient in place (8, 4 + 4), and that goes back (4 + 2); "
         "internlm/model/metrics.py in every micro-batch: a second loss 4, clone 8, largest twice and its "
         "place 4 each, difference 8, exponential 8, sum 4; model/linear.py: w1 and w3 are apart; "
         "hybrid_zero_optim.py, _reduce_and_copy: a bucket is flattened, divided and copied back, 4 bytes "
         "each; that file and utils.py: of a parameter the fp32 copy for the norm 6 and its reading 4, "
         "flattening 4, to fp32 6, scaling 8, AdamW of torch 2.0 (_multi_tensor_adamw: 8, 8 + 12, 8 + 12, 8, "
         "8, 8, 16) 88, to bf16 6, less the 8 that all frameworks have; "
         "internlm/solver/optimizer/fsdp_optimizer.py:55-63: a fp32 copy beside FSDP's bf16 shard",
     .gradient_bytes = 2,
     .attention = AttentionKernel::kFlash1,
     .owners_broadcast = true,
     .bucket_copy_bytes = 12,
     .overlap_bucket_elements = 512.0 * 1024 * 1024,
     .logit_bytes = 6,
     .logit_moved_bytes = 72,
     .logit_row_bytes = 16,
     .norm = NormKernel::kPlain,
     .norm_forward_bytes = 12,
     .norm_backward_bytes = 34,
     .update_moved_bytes = 114,
     .fused_activation = false,
     .joined_gradients = 1,
     .half_shards = true,
     .step_bytes = 12,
     .flat_step_bytes = 18,
     .gathers_in_own_pool = true,
     .nccl_connects_all = true,
     .data_groups = 2,
     .world_groups = 2,
     .metric = MemoryMetric::kDevice},
};

}  // namespace

absl::Span<const FrameworkProfile> Frameworks() { return kFrameworks; }

const FrameworkProfile* FindFramework(absl::string_view name) {
  for (const FrameworkProfile& framework : kFrameworks) {
    if (name == framework.name) return &framework;
  }
  return nullptr;
}

}  // namespace trainctl::frameworks
