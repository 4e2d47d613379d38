#include "recipe/foreign_words.h"

#include <string>

#include "absl/strings/ascii.h"

namespace trainctl::recipe {
namespace {

// Options of transformers and TRL (TrainingArguments, SFTConfig), Megatron-LM (arguments.py), torchtitan and
// DeepSpeed (their configuration files), torchrun and accelerate launch, and fields of config.json.
constexpr ForeignWord kKeys[] = {
    // How long, how much, how exact.
    {"max_steps", "train.steps"},
    {"train_iters", "train.steps"},
    {"total_steps", "train.steps"},
    {"num_train_epochs", "train.steps"},
    {"epochs", "train.steps"},
    {"train_samples", "train.tokens"},
    {"per_device_train_batch_size", "train.micro_batch"},
    {"per_device_batch_size", "train.micro_batch"},
    {"micro_batch_size", "train.micro_batch"},
    {"local_batch_size", "train.micro_batch"},
    {"train_micro_batch_size_per_gpu", "train.micro_batch"},
    {"batch_size", "train.batch_sequences"},
    {"global_batch_size", "train.batch_sequences"},
    {"train_batch_size", "train.batch_sequences"},
    {"gradient_accumulation_steps", "train.batch_sequences"},
    {"bf16", "train.precision"},
    {"fp16", "train.precision"},
    {"fp8", "train.precision"},
    {"dtype", "train.precision"},
    {"torch_dtype", "train.precision"},
    {"mixed_precision", "train.precision"},
    {"eval_steps", "train.eval_every"},
    {"eval_interval", "train.eval_every"},
    {"eval_iters", "train.eval_batches"},
    // The optimizer.
    {"learning_rate", "optimizer.lr"},
    {"optim", "optimizer.name"},
    {"adam_beta1", "optimizer.betas"},
    {"adam_beta2", "optimizer.betas"},
    {"beta1", "optimizer.betas"},
    {"beta2", "optimizer.betas"},
    {"adam_epsilon", "optimizer.eps"},
    {"adam_eps", "optimizer.eps"},
    {"max_grad_norm", "optimizer.clip_norm"},
    {"max_norm", "optimizer.clip_norm"},
    {"clip_grad", "optimizer.clip_norm"},
    {"grad_clip", "optimizer.clip_norm"},
    {"gradient_clipping", "optimizer.clip_norm"},
    {"lr_scheduler_type", "optimizer.lr_schedule"},
    {"lr_scheduler", "optimizer.lr_schedule"},
    {"lr_decay_style", "optimizer.lr_schedule"},
    {"lr_warmup_iters", "optimizer.warmup_steps"},
    {"warmup_ratio", "optimizer.warmup_steps"},
    {"lr_decay_iters", "optimizer.decay_steps"},
    // Data.
    {"max_seq_length", "data.seq_len"},
    {"max_seq_len", "data.seq_len"},
    {"max_length", "data.seq_len"},
    {"seq_length", "data.seq_len"},
    {"sequence_length", "data.seq_len"},
    {"block_size", "data.seq_len"},
    {"context_length", "data.seq_len"},
    {"tokenizer_name", "data.tokenizer"},
    {"tokenizer_path", "data.tokenizer"},
    {"hf_assets_path", "model.from"},
    {"dataset", "data.train"},
    {"dataset_path", "data.train"},
    {"train_file", "data.train"},
    {"data_path", "data.train"},
    // The model.
    {"model_name_or_path", "model.from"},
    {"pretrained_model_name_or_path", "model.from"},
    {"base_model", "model.from"},
    {"num_layers", "model.layers"},
    {"n_layers", "model.layers"},
    {"n_layer", "model.layers"},
    {"num_hidden_layers", "model.layers"},
    {"hidden_size", "model.hidden"},
    {"n_embd", "model.hidden"},
    {"d_model", "model.hidden"},
    {"intermediate_size", "model.ffn"},
    {"ffn_hidden_size", "model.ffn"},
    {"num_attention_heads", "model.heads"},
    {"n_heads", "model.heads"},
    {"n_head", "model.heads"},
    {"num_key_value_heads", "model.kv_heads"},
    {"n_kv_heads", "model.kv_heads"},
    {"num_query_groups", "model.kv_heads"},
    {"vocab_size", "model.vocab"},
    {"max_position_embeddings", "model.max_position"},
    {"rms_norm_eps", "model.norm_eps"},
    {"norm_epsilon", "model.norm_eps"},
    {"rotary_base", "model.rope_theta"},
    {"tie_word_embeddings", "model.tie_embeddings"},
    {"initializer_range", "model.init_std"},
    // Parallelism.
    {"tensor_parallel_degree", "parallel.tp"},
    {"tensor_parallel_size", "parallel.tp"},
    {"tensor_model_parallel_size", "parallel.tp"},
    {"tp_size", "parallel.tp"},
    {"pipeline_parallel_degree", "parallel.pp"},
    {"pipeline_parallel_size", "parallel.pp"},
    {"pipeline_model_parallel_size", "parallel.pp"},
    {"pp_size", "parallel.pp"},
    {"pipeline_parallel_schedule", "parallel.schedule"},
    {"num_layers_per_virtual_pipeline_stage", "parallel.virtual_stages"},
    {"context_parallel_degree", "parallel.cp"},
    {"context_parallel_size", "parallel.cp"},
    {"expert_parallel_degree", "parallel.ep"},
    {"expert_model_parallel_size", "parallel.ep"},
    {"data_parallel_shard_degree", "parallel.dp_shard"},
    {"data_parallel_replicate_degree", "parallel.dp_replicate"},
    {"zero_optimization", "parallel.zero_stage"},
    {"stage", "parallel.zero_stage"},
    {"fsdp", "parallel.zero_stage"},
    {"deepspeed", "parallel.zero_stage"},
    {"sharding_strategy", "parallel.zero_stage"},
    {"use_distributed_optimizer", "parallel.zero_stage"},
    {"gradient_checkpointing", "parallel.recompute"},
    {"activation_checkpointing", "parallel.recompute"},
    {"activation_checkpoint", "parallel.recompute"},
    {"recompute_granularity", "parallel.recompute"},
    {"recompute_activations", "parallel.recompute"},
    // Workers and restarts.
    {"nproc_per_node", "cluster.devices_per_node"},
    {"num_processes", "cluster.devices_per_node"},
    {"num_gpus", "cluster.devices_per_node"},
    {"gpus", "cluster.devices_per_node"},
    {"nnodes", "cluster.nodes"},
    {"num_nodes", "cluster.nodes"},
    {"num_machines", "cluster.nodes"},
    {"hostfile", "launch.ssh.hosts"},
    {"rdzv_timeout", "launch.collective_timeout"},
    {"ddp_timeout", "launch.collective_timeout"},
    // The run.
    {"run_name", "run.name"},
    {"output_dir", "run.root"},
    {"dump_folder", "run.root"},
    {"save", "run.root"},
    {"random_seed", "run.seed"},
    {"full_determinism", "run.deterministic"},
    {"save_steps", "checkpoint.every_steps"},
    {"save_interval", "checkpoint.every_steps"},
    {"save_total_limit", "checkpoint.keep"},
    {"keep_latest_k", "checkpoint.keep"},
    {"async_save", "checkpoint.async"},
    {"async_mode", "checkpoint.async"},
    {"logging_steps", "metrics.every_steps"},
    {"log_interval", "metrics.every_steps"},
    {"log_freq", "metrics.every_steps"},
    {"report_to", "metrics.tensorboard"},
    {"tensorboard_dir", "metrics.tensorboard"},
    {"enable_tensorboard", "metrics.tensorboard"},
};

constexpr ForeignWord kVerbs[] = {
    {"train", "launch"},
    {"run", "launch"},
    {"start", "launch"},
    {"pretrain", "launch"},
    {"finetune", "launch"},
    {"sft", "launch"},
    {"continue", "resume"},
    {"restart", "resume"},
    {"evaluate", "eval"},
    {"test", "eval"},
    {"chat", "generate"},
    {"sample", "generate"},
    {"infer", "generate"},
    {"inference", "generate"},
    {"list", "runs"},
    {"ls", "runs"},
    {"ps", "runs"},
    {"kill", "stop"},
    {"cancel", "stop"},
    {"estimate", "plan"},
    {"init", "new"},
    {"create", "new"},
    {"env", "doctor"},
    {"convert", "export"},
    {"benchmark", "calibrate"},
};

std::string Normal(absl::string_view text) {
  while (!text.empty() && text.front() == '-') text.remove_prefix(1);
  std::string normal = absl::AsciiStrToLower(text);
  for (char& c : normal) {
    if (c == '-') c = '_';
  }
  return normal;
}

}  // namespace

absl::Span<const ForeignWord> ForeignKeys() { return kKeys; }
absl::Span<const ForeignWord> ForeignVerbs() { return kVerbs; }

absl::string_view OursFor(absl::string_view typed, absl::Span<const ForeignWord> words) {
  const std::string normal = Normal(typed);
  for (const ForeignWord& foreign : words) {
    if (normal == foreign.word) return foreign.ours;
  }
  return "";
}

}  // namespace trainctl::recipe
