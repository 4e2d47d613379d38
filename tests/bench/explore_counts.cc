// What the search over layouts does on known models and clusters: candidates enumerated, bounded and
// simulated, the seconds of one core, and the layout that it takes.
//
//   explore_counts            all of them
//   explore_counts 405b       those whose name contains the word
#include <sys/resource.h>

#include <cstdio>
#include <cstring>
#include <string>

#include "cluster/catalogue.h"
#include "frameworks/explore.h"
#include "published/known_models.h"

namespace {

using trainctl::frameworks::Choice;
using trainctl::frameworks::Explore;
using trainctl::frameworks::Goal;
using trainctl::frameworks::Objective;
using trainctl::frameworks::SearchSpace;
namespace model = trainctl::model;
namespace frameworks = trainctl::frameworks;
namespace published = trainctl::published;

struct Case {
  const char* name;
  const char* device;
  int64_t num_gpus;
  int64_t seq_len;
  int64_t global_batch;
  model::Architecture model;
  Objective objective = Objective::kStepTime;
};

model::Architecture Llama(int64_t layers, int64_t hidden, int64_t ffn, int64_t heads) {
  return model::LlamaOf({.layers = layers,
                         .hidden = hidden,
                         .ffn = ffn,
                         .heads = heads,
                         .kv_heads = 8,
                         .head_dim = 128,
                         .vocab = 128256});
}

model::Architecture Experts(model::Architecture model, model::Experts experts) {
  SetExperts(model, experts);
  return model;
}

const Case kCases[] = {
    {"llama-3.1-405b, 16,384 h100", "h100", 16384, 8192, 2048, Llama(126, 16384, 53248, 128)},
    {"llama-3.1-405b, 16,384 h100, long context", "h100", 16384, 131072, 128, Llama(126, 16384, 53248, 128)},
    {"llama-3.1-405b, 1,024 h100", "h100", 1024, 8192, 512, Llama(126, 16384, 53248, 128)},
    {"llama-3.1-70b, 256 h100", "h100", 256, 8192, 512, Llama(80, 8192, 28672, 64)},
    {"llama-3.1-8b, 64 h100", "h100", 64, 8192, 128, Llama(32, 4096, 14336, 32)},
    {"llama-3.1-8b, 64 h100, headroom", "h100", 64, 8192, 128, Llama(32, 4096, 14336, 32),
     Objective::kHeadroom},
    {"llama-3.1-8b, up to 64 h100, fewest", "h100", 64, 8192, 128, Llama(32, 4096, 14336, 32),
     Objective::kFewestGpus},
    {"mixtral-8x7b, 128 h100", "h100", 128, 8192, 512,
     Experts(Llama(32, 4096, 14336, 32), {.num_experts = 8, .top_k = 2, .ffn = 14336})},
    {"235b of 128 experts, 1,024 h100", "h100", 1024, 4096, 2048,
     Experts(model::LlamaOf({.layers = 94,
                             .hidden = 4096,
                             .ffn = 12288,
                             .heads = 64,
                             .kv_heads = 4,
                             .head_dim = 128,
                             .vocab = 151936}),
             {.num_experts = 128, .top_k = 8, .ffn = 1536})},
};

void Print(const char* what, const Choice& choice) {
  const frameworks::Workload& w = choice.workload;
  const std::string schedule(trainctl::schedule::PipelineKindName(w.Pipeline()));
  std::printf(
      "  %s: %.4f s, %.2f GiB at most; tp %d pp %d (%s, %d stages) cp %d ep %d etp %d dp %d ZeRO-%d of %d, "
      "micro-batch %d x %d, recompute %d, sp %d\n",
      what, choice.time.step_seconds, choice.memory.upper_bytes / (1024.0 * 1024 * 1024),
      static_cast<int>(w.mesh.tp), static_cast<int>(w.mesh.pp), schedule.c_str(),
      static_cast<int>(w.virtual_stages), static_cast<int>(w.mesh.cp), static_cast<int>(w.mesh.ep),
      static_cast<int>(w.mesh.etp), static_cast<int>(w.mesh.data_degree()), w.zero_stage,
      static_cast<int>(w.mesh.dp_shard), static_cast<int>(w.micro_batch),
      static_cast<int>(w.num_micro_batches()), static_cast<int>(w.recompute), w.SequenceParallel() ? 1 : 0);
}

double CpuSeconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
         1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

void Run(const Case& job) {
  SearchSpace space;
  space.base.model = job.model;
  space.base.seq_len = job.seq_len;
  space.base.global_batch = job.global_batch;
  space.base.device = trainctl::cluster::FindDevice(job.device)->device;
  space.base.node = &trainctl::cluster::DefaultNodeFor(*space.base.device);
  space.base.framework = frameworks::FindFramework("megatron-core");
  space.num_gpus = job.num_gpus;
  Goal goal;
  goal.objective = job.objective;
  const double before_s = CpuSeconds();
  const auto result = Explore(space, goal);
  const double cpu_s = CpuSeconds() - before_s;
  if (!result.ok()) {
    std::printf("%s: %s\n", job.name, std::string(result.status().message()).c_str());
    return;
  }
  const auto& c = result->counts;
  std::printf(
      "%s: %.3f s, %.3f s of one core; %lld enumerated, %lld refused, %lld bounded, %lld over the memory, "
      "%lld too slow, %lld "
      "misfits, %lld simulated; %.2f million bounded a second of a core\n",
      job.name, c.seconds, cpu_s, static_cast<long long>(c.enumerated), static_cast<long long>(c.refused),
      static_cast<long long>(c.bounded), static_cast<long long>(c.pruned_by_memory),
      static_cast<long long>(c.pruned_by_time), static_cast<long long>(c.misfits),
      static_cast<long long>(c.simulated), static_cast<double>(c.bounded) / cpu_s / 1e6);
  for (const Choice& choice : result->best) Print("fits", choice);
  if (result->nearest.has_value()) Print("nearest", *result->nearest);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  for (const Case& job : kCases) {
    if (argc < 2 || std::strstr(job.name, argv[1]) != nullptr) Run(job);
  }
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  std::printf("resident at most: %.1f MB\n", static_cast<double>(usage.ru_maxrss) / 1024);
}
