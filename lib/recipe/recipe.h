// The recipe as typed, immutable values. std::nullopt in a field stands for "auto". How it is
// parsed, checked and documented: schema.h. Plain data; thread safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cluster/kubernetes_job.h"
#include "cluster/slurm_job.h"
#include "model/model_spec.h"
#include "optim/optimizer.h"

namespace trainctl::recipe {

struct RunConfig {
  std::string name = "run";
  std::string root = "runs";
  uint64_t seed = 1234;
  bool deterministic = false;
  std::string attention = "auto";
  bool graphs = true;
  bool check_kernels = false;
};

// "random", "from" (the Hugging Face folder of model.from) or the path of a checkpoint folder.
struct ModelConfig {
  std::string preset;     // exactly one of preset, from, family was given
  std::string from;       // absolute path
  model::ModelSpec spec;  // complete: preset or folder, overridden by explicit dimensions
  std::string weights = "random";
};

struct DataSource {
  std::string name;
  std::vector<std::string> files;  // absolute, globs expanded, bytewise sorted
  std::string kind = "auto";       // auto | indexed | jsonl | text
  std::string text_field = "text";
  std::string prompt_field;      // jsonl: tokens of this field precede the text, loss masked out
  std::optional<double> weight;  // share of tokens; all sources or none
  double holdout = 0.0;          // share of documents held out for evaluation
};

struct DataConfig {
  std::string tokenizer = "byte";        // "byte" or an absolute path
  std::string end_of_document = "auto";  // auto | none | a token as the tokenizer spells it
  int64_t seq_len = 2048;
  std::string packing = "auto";         // auto | documents | continuous | whole
  std::string long_documents = "skip";  // skip | cut: those of more than seq_len tokens, placed whole
  std::string on_bad_line = "stop";     // stop | skip: lines of JSONL that cannot be read
  bool shuffle = true;
  std::vector<DataSource> train;
  std::vector<DataSource> eval;
};

struct TrainConfig {
  int64_t steps = 0;                   // resolved from steps or tokens
  int64_t batch_sequences = 0;         // resolved from batch_sequences or batch_tokens
  std::optional<int64_t> micro_batch;  // sequences
  std::string precision = "bf16";      // fp32 | bf16 | fp8 | auto
  std::string master_dtype = "fp32";
  std::string gradient_dtype = "fp32";
  double z_loss = 0.0;
  int64_t eval_every = 0;  // steps; 0 = only at the end
  int64_t eval_batches = 50;
  std::string on_nonfinite = "stop";  // stop | skip (the update of that step)
};

// Defaults are AdamW's; ApplyOptimizerDefaults (derive.h) has those of the others.
struct OptimizerConfig {
  std::string name{optim::kAdamW.name};
  double lr = optim::kAdamW.defaults.lr;
  double beta1 = optim::kAdamW.defaults.beta1;  // fields that the optimizer does not read are not stored
  double beta2 = optim::kAdamW.defaults.beta2;
  double eps = optim::kAdamW.defaults.eps;
  double momentum = 0;
  double weight_decay = optim::kAdamW.defaults.weight_decay;
  std::vector<std::string> no_decay = {"*norm.weight", "*.bias", "*embed_tokens.weight"};
  double clip_norm = 1.0;              // 0 = off
  std::string lr_schedule = "cosine";  // cosine | linear | wsd | constant
  int64_t warmup_steps = 0;
  std::optional<int64_t> decay_steps;  // auto = train.steps of the first launch, then recorded
  double decay_fraction = 0.2;         // wsd: the last share of decay_steps
  double min_lr = 0.0;
};

struct ParallelConfig {
  std::optional<int64_t> dp_replicate, dp_shard, tp, cp, pp, ep;
  std::optional<int64_t> zero_stage;      // 0..3
  std::optional<std::string> recompute;   // none | selective | attention | full
  bool prefetch = true;                   // two slots a kind: communicate beside the compute
  std::optional<bool> sequence_parallel;  // with tp > 1
  // With pp > 1.
  std::optional<std::string> schedule;  // a name of schedule::PipelineKindName
  std::string schedule_file;            // is read into `passes`, and empty from then on
  std::vector<std::string> passes;      // of each rank (schedule/pipeline_file.h), instead of `schedule`
  std::optional<int64_t> virtual_stages;
  std::optional<std::vector<int64_t>> stage_layers;  // of each stage, in the order of the model
  std::optional<std::vector<int64_t>>
      recomputed_layers;  // with recompute = "full": of every stage, or of each
  // Of what the planner prices and this version's trainer does not run yet, with cp and ep.
  std::optional<int64_t> etp;
  std::optional<std::string> context;               // ring | all-gather | all-to-all
  std::optional<std::vector<std::string>> offload;  // of optimizer, activations
};

// cluster.device of "whatever CUDA devices this machine has".
inline constexpr char kCudaDevice[] = "cuda";

struct ClusterConfig {
  int64_t nodes = 1;
  int64_t devices_per_node = 1;
  std::string device = "cpu";
  std::optional<int64_t> memory_limit_bytes;  // per device
  std::optional<int64_t> threads_per_worker;
  // Accelerators: the node of the catalogue, and what this machine has instead of what stands there.
  std::optional<std::string> node;
  std::optional<int64_t> memory_bytes, memory_bandwidth, half_flops, fp8_flops;
  std::optional<int64_t> scale_up_bandwidth, scale_out_bandwidth, nics, host_memory_bytes;
};

// What planning for an accelerator is told beyond the job itself.
struct PlanConfig {
  std::string framework = "trainctl";  // a name of frameworks::Frameworks
  std::string objective = "step_time";
  double price_per_gpu_hour = 0;  // 0: not given
  std::optional<absl::Duration> deadline;
  std::optional<absl::Duration> gpu_mtbf;  // mean time between failures of one device
  absl::Duration restart_time = absl::Minutes(10);
};

struct CheckpointConfig {
  std::optional<int64_t> every_steps;  // once loaded: empty = by time only
  std::optional<absl::Duration> every;
  int64_t keep = 3;
  int64_t keep_every_steps = 0;  // 0 = off
  std::string keep_best;         // the name of an evaluation set; empty = off
  bool at_end = true;
  bool async = false;
  std::string when_busy = "wait";  // "wait", "skip"
};

// What `backend = "ssh"` reads, and nothing else does.
struct SshConfig {
  std::vector<std::string> hosts;      // "name" or "user@name", in the order of the ranks; or
  std::string hosts_file;              // absolute; ReadHosts (hosts.h) reads it anew for each launch
  std::vector<std::string> options;    // of ssh, given before the host
  std::optional<std::string> program;  // trainctl on the other machines; auto = the path of this program
};

struct LaunchConfig {
  std::string backend = "local";  // local | ssh | slurm | kubernetes
  SshConfig ssh;
  cluster::SlurmConfig slurm;
  cluster::KubernetesConfig kubernetes;
  std::optional<std::string> interface;  // name, address or CIDR; auto = the route to the coordinator
  // How long an agent keeps its workers without hearing from the launcher. With several machines only.
  absl::Duration coordinator_timeout = absl::Seconds(60);
  int64_t max_restarts = 3;
  absl::Duration detect_timeout = absl::Seconds(10);
  absl::Duration stop_timeout = absl::Seconds(30);  // from the stop signal to SIGKILL
  absl::Duration collective_timeout = absl::Minutes(10);
  absl::Duration hang_timeout = absl::Minutes(10);
  int64_t log_limit_bytes = int64_t{256} << 20;
  std::map<std::string, std::string> env;
  std::vector<std::string> pass_env;  // names; their values are the caller's and are not stored
};

struct MetricsConfig {
  int64_t every_steps = 1;
  bool tensorboard = false;
  std::vector<int64_t> trace_steps;
  std::vector<int64_t> profile_steps;
};

struct Recipe {
  int64_t recipe_version = 1;
  RunConfig run;
  ModelConfig model;
  DataConfig data;
  TrainConfig train;
  OptimizerConfig optimizer;
  ParallelConfig parallel;
  ClusterConfig cluster;
  CheckpointConfig checkpoint;
  LaunchConfig launch;
  MetricsConfig metrics;
  PlanConfig plan;
};

}  // namespace trainctl::recipe
