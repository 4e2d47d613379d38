// The recipe as typed, immutable values. std::nullopt represents "auto". See schema.h for how recipes are
// parsed, checked, and documented. Plain data; thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "cluster/kubernetes_job.h"
#include "cluster/slurm_job.h"
#include "model/architecture.h"
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

// The model and its initial weights.
struct ModelConfig {
  // Source of the model; exactly one of preset, from, and spec.family was given in the recipe.
  std::string preset;
  std::string from;          // absolute path
  model::Architecture spec;  // complete spec, including explicitly stated dimensions
  // "random", "from" (the weights in the model.from folder), or the path of a checkpoint folder.
  std::string weights = "random";
};

struct DataSource {
  std::string name;
  std::vector<std::string> files;  // absolute paths after glob expansion, in byte order
  std::string kind = "auto";       // auto | indexed | jsonl | parquet | text
  std::string text_field = "text";
  // JSONL field whose tokens precede the text and are excluded from the loss.
  std::string prompt_field;
  std::optional<double> weight;  // share of tokens; set for all sources or for none
  double holdout = 0.0;          // share of documents held out for evaluation
};

struct DataConfig {
  std::string tokenizer = "byte";        // "byte" or an absolute path
  std::string end_of_document = "auto";  // auto | none | a token as spelled by the tokenizer
  int64_t seq_len = 2048;
  std::string packing = "auto";  // auto | documents | continuous | whole
  // skip | cut. Applies to documents longer than seq_len tokens if they are packed whole.
  std::string long_documents = "skip";
  std::string on_bad_line = "stop";  // stop | skip; applies to unreadable JSONL lines
  bool shuffle = true;
  std::vector<DataSource> train;
  std::vector<DataSource> eval;
};

struct TrainConfig {
  int64_t steps = 0;  // resolved from steps, tokens, or epochs
  // Set only until the data is opened and `steps` is computed from it.
  std::optional<double> epochs;
  int64_t batch_sequences = 0;         // resolved from batch_sequences or batch_tokens
  std::optional<int64_t> micro_batch;  // in sequences
  std::string precision = "bf16";      // fp32 | bf16 | fp8 | auto
  std::string master_dtype = "fp32";
  std::string gradient_dtype = "fp32";
  double z_loss = 0.0;
  int64_t eval_every = 0;  // in steps; 0 to evaluate only at the end
  int64_t eval_batches = 50;
  std::string on_nonfinite = "stop";  // stop | skip; skip omits the update of that step
};

// Defaults are those of AdamW. ApplyOptimizerDefaults (derive.h) sets the other optimizers' defaults.
struct OptimizerConfig {
  std::string name{optim::kAdamW.name};
  double lr = optim::kAdamW.defaults.lr;
  // Fields that the optimizer does not use are not stored.
  double beta1 = optim::kAdamW.defaults.beta1;
  double beta2 = optim::kAdamW.defaults.beta2;
  double eps = optim::kAdamW.defaults.eps;
  double momentum = 0;
  double weight_decay = optim::kAdamW.defaults.weight_decay;
  std::vector<std::string> no_decay = {"norms", "biases", "embeddings"};  // see model/parameter_groups.h
  double clip_norm = 1.0;                                                 // 0 disables clipping
  std::string lr_schedule = "cosine";                                     // cosine | linear | wsd | constant
  int64_t warmup_steps = 0;
  // "auto" means train.steps of the first launch, which is then recorded.
  std::optional<int64_t> decay_steps;
  double decay_fraction = 0.2;  // final share of decay_steps, for wsd
  double min_lr = 0.0;
};

struct ParallelConfig {
  std::optional<int64_t> dp_replicate, dp_shard, tp, cp, pp, ep;
  std::optional<int64_t> zero_stage;      // 0..3
  std::optional<std::string> recompute;   // none | selective | attention | full
  bool prefetch = true;                   // overlap communication with compute, using two buffers per kind
  std::optional<bool> sequence_parallel;  // applies only if tp > 1
  // Pipeline settings (pp > 1).
  std::optional<std::string> schedule;  // name from schedule::PipelineKindName
  // Loaded into `passes`, then cleared.
  std::string schedule_file;
  // Passes of each rank, as in schedule/pipeline_file.h. Replaces `schedule`.
  std::vector<std::string> passes;
  std::optional<int64_t> virtual_stages;
  std::optional<std::vector<int64_t>> stage_layers;  // number of layers per stage, in model order
  // Number of layers to recompute if recompute is "full": one value for all stages, or one per stage.
  std::optional<std::vector<int64_t>> recomputed_layers;
  // Like cp and ep, these can be planned, but this version's trainer does not run them yet.
  std::optional<int64_t> etp;
  std::optional<std::string> context;               // ring | all-gather | all-to-all
  std::optional<std::vector<std::string>> offload;  // any of optimizer, activations
};

// The value of cluster.device that means any CUDA devices on this machine.
inline constexpr char kCudaDevice[] = "cuda";

struct ClusterConfig {
  int64_t nodes = 1;
  int64_t devices_per_node = 1;
  std::string device = "cpu";
  std::optional<int64_t> memory_limit_bytes;  // limit per device
  std::optional<int64_t> threads_per_worker;
  // Accelerators only: the node type in the catalogue, and values that override the catalogue's for this
  // machine.
  std::optional<std::string> node;
  std::optional<int64_t> memory_bytes, memory_bandwidth, half_flops, fp8_flops;
  std::optional<int64_t> scale_up_bandwidth, scale_out_bandwidth, nics, host_memory_bytes;
};

// Planner inputs for an accelerator, beyond the job itself.
struct PlanConfig {
  std::string framework = "trainctl";  // name from frameworks::Frameworks
  std::string objective = "step_time";
  double price_per_gpu_hour = 0;  // 0 if not given
  std::optional<absl::Duration> deadline;
  std::optional<absl::Duration> gpu_mtbf;  // mean time between failures of one device
  absl::Duration restart_time = absl::Minutes(10);
};

struct CheckpointConfig {
  std::optional<int64_t> every_steps;  // empty after loading if checkpoints are saved only by time
  std::optional<absl::Duration> every;
  int64_t keep = 3;
  int64_t keep_every_steps = 0;  // 0 disables this
  std::string keep_best;         // name of an evaluation set; empty disables this
  bool at_end = true;
  bool async = false;
  std::string when_busy = "wait";  // wait | skip
};

// Settings used only if backend is "ssh".
struct SshConfig {
  // Hosts in rank order, each "name" or "user@name". Alternative to hosts_file.
  std::vector<std::string> hosts;
  // Absolute path. ReadHosts (hosts.h) rereads the file for each launch.
  std::string hosts_file;
  std::vector<std::string> options;    // ssh options, placed before the host
  std::optional<std::string> program;  // path of trainctl on the other machines; auto is this program's path
};

struct LaunchConfig {
  std::string backend = "local";  // local | ssh | slurm | kubernetes
  SshConfig ssh;
  cluster::SlurmConfig slurm;
  cluster::KubernetesConfig kubernetes;
  // Interface name, address, or CIDR. "auto" selects the route to the coordinator.
  std::optional<std::string> interface;
  // How long an agent keeps its workers running without hearing from the launcher. Multi-machine jobs only.
  absl::Duration coordinator_timeout = absl::Seconds(60);
  int64_t max_restarts = 3;
  absl::Duration detect_timeout = absl::Seconds(10);
  absl::Duration stop_timeout = absl::Seconds(30);  // time from the stop signal to SIGKILL
  absl::Duration collective_timeout = absl::Minutes(10);
  absl::Duration hang_timeout = absl::Minutes(10);
  int64_t log_limit_bytes = int64_t{256} << 20;
  std::map<std::string, std::string> env;
  // Names of environment variables to pass to workers. The values come from the caller's environment and are
  // not stored.
  std::vector<std::string> pass_env;
  // Program and arguments. The program receives each event as a line of JSON.
  std::vector<std::string> on_event;
};

struct MetricsConfig {
  int64_t every_steps = 1;
  bool tensorboard = false;
  std::vector<int64_t> trace_steps;
  std::vector<int64_t> profile_steps;
  // "HOST:PORT" to serve metrics, or the absolute path of a *.prom file to write. Empty disables the export.
  std::string prometheus;
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
