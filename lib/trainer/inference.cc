// One-process jobs on a checkpoint: generate, evaluate, export.

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "base/counter_rng.h"
#include "base/files.h"
#include "base/json.h"
#include "checkpoint/model_folder.h"
#include "data/batch_source.h"
#include "device/error_text.h"
#include "kernels/kernels.h"
#include "model/config_json.h"
#include "parallel/executor.h"
#include "tokenizer/tokenizer.h"
#include "trainer/checkpointing.h"
#include "trainer/run_worker.h"

namespace trainctl::trainer {
namespace {

constexpr int64_t kMaxShardBytes = int64_t{5} << 30;

// The model alone in one process, in fp32.
class Model {
 public:
  Model(const InferenceDeps& deps, model::MicroBatchShape shape)
      : spec_(deps.recipe->model.spec),
        ledger_(model::Inventory(spec_), layout::Mesh{}, 0),
        options_{.micro_batch = shape.batch, .setting = {.seq_len = shape.seq_len, .threads = deps.threads}},
        forward_(schedule::BuildForwardOnly(spec_, ledger_, options_)),
        state_(device::Device::Cpu(), ledger_, forward_.programs[0], options_.setting.types, 0,
               *options_.setting.optimizer) {}

  absl::Status Load(const InferenceDeps& deps) {
    if (!deps.checkpoint_path.empty())
      return LoadCheckpoint(deps.checkpoint_path, state_, true, nullptr).status();
    if (deps.recipe->model.weights == "from") return LoadModelFolder(deps.recipe->model.from, state_);
    state_.Initialize(deps.recipe->run.seed);
    return absl::OkStatus();
  }

  const model::ModelSpec& spec() const { return spec_; }
  const layout::Ledger& ledger() const { return ledger_; }
  parallel::ShardedState& state() { return state_; }
  const schedule::BuildOptions& options() const { return options_; }
  const schedule::Step& forward() const { return forward_; }

 private:
  const model::ModelSpec spec_;
  const layout::Ledger ledger_;
  const schedule::BuildOptions options_;
  const schedule::Step forward_;
  parallel::ShardedState state_;
};

// Logits of the last position of `tokens`.
at::Tensor LastLogits(Model& model, const std::vector<int32_t>& tokens, int threads) {
  const int64_t n = static_cast<int64_t>(tokens.size());
  const std::vector<int32_t> zeros(tokens.size(), 0);
  std::vector<int32_t> positions(tokens.size());
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int32_t>(i);
  const nn::TokenView view{tokens.data(), nullptr, positions.data(), zeros.data(), nullptr};
  const nn::RopeTables rope = nn::MakeRopeTables(device::Device::Cpu(), model.spec(), n);
  at::Tensor hidden;
  for (int block = 0; block <= model::HeadBlock(model.spec()); ++block) {
    nn::BoundParameters bound;
    for (int bucket_index : model.ledger().buckets_of_block(block)) {
      const layout::Bucket& bucket = model.ledger().buckets()[static_cast<size_t>(bucket_index)];
      for (size_t k = 0; k < bucket.parameters.size(); ++k) {
        bound[bucket.parameters[k]].data = model.state().master(bucket_index) + bucket.offsets[k];
      }
    }
    const nn::SegmentRunner runner(
        device::Device::Cpu(),
        model::BuildSegment(model.spec(), model.ledger().inventory(), block, {{1, n}, DType::kF32, threads}),
        &rope, threads);
    if (block == model::HeadBlock(model.spec())) return runner.Logits(bound, hidden, {n - 1});
    hidden = runner.Forward(bound, hidden, view, nullptr);
  }
  return hidden;
}

int32_t Sample(const at::Tensor& logits, const GenerateOptions& options, int64_t position) {
  const float* values = logits.data_ptr<float>();
  const int64_t vocab = logits.numel();
  const int64_t best = std::max_element(values, values + vocab) - values;
  if (options.temperature <= 0) return static_cast<int32_t>(best);
  std::vector<double> weights(static_cast<size_t>(vocab));
  double sum = 0;
  for (int64_t i = 0; i < vocab; ++i) {
    weights[static_cast<size_t>(i)] = std::exp((values[i] - values[best]) / options.temperature);
    sum += weights[static_cast<size_t>(i)];
  }
  double left = RandomUniform(options.seed, StreamOf("generate"), static_cast<uint64_t>(position)) * sum;
  for (int64_t i = 0; i < vocab; ++i) {
    left -= weights[static_cast<size_t>(i)];
    if (left < 0) return static_cast<int32_t>(i);
  }
  return static_cast<int32_t>(best);
}

// Text to tokens and back, as the recipe's data are read.
class Codec {
 public:
  static absl::StatusOr<Codec> Open(const recipe::Recipe& recipe) {
    Codec codec;
    if (recipe.data.tokenizer == "byte") return codec;
    TRAINCTL_ASSIGN_OR_RETURN(codec.tokenizer_, tokenizer::Tokenizer::Load(recipe.data.tokenizer));
    return codec;
  }

  // At least one token, as there is nothing to continue without.
  absl::StatusOr<std::vector<int32_t>> Encode(const std::string& prompt) const {
    if (tokenizer_ == nullptr) {
      const std::string text = prompt.empty() ? "\n" : prompt;
      return std::vector<int32_t>(reinterpret_cast<const unsigned char*>(text.data()),
                                  reinterpret_cast<const unsigned char*>(text.data()) + text.size());
    }
    std::vector<int32_t> tokens = tokenizer_->prefix_ids();
    TRAINCTL_RETURN_IF_ERROR(tokenizer_->Encode(prompt, &tokens));
    if (tokens.empty()) TRAINCTL_RETURN_IF_ERROR(tokenizer_->Encode("\n", &tokens));
    if (tokens.empty()) return UsageError("the prompt has no tokens; give a longer one");
    return tokens;
  }

  bool EndsDocument(int32_t token) const {
    return tokenizer_ == nullptr ? token >= 256 : token == tokenizer_->end_of_document_id();
  }

  // What `tokens` say behind the first `num_prompt` of them. The prompt is decoded with them: what the first
  // token of a text looks like is not what it looks like within one.
  absl::StatusOr<std::string> Continuation(const std::vector<int32_t>& tokens, size_t num_prompt) const {
    if (tokenizer_ == nullptr) {
      return std::string(tokens.begin() + static_cast<ptrdiff_t>(num_prompt), tokens.end());
    }
    TRAINCTL_ASSIGN_OR_RETURN(
        const std::string prompt,
        tokenizer_->Decode(absl::MakeConstSpan(tokens).first(num_prompt), /*skip_special=*/true));
    TRAINCTL_ASSIGN_OR_RETURN(std::string text, tokenizer_->Decode(tokens, /*skip_special=*/true));
    if (absl::StartsWith(text, prompt)) text.erase(0, prompt.size());
    return text;
  }

 private:
  std::unique_ptr<tokenizer::Tokenizer> tokenizer_;  // null: bytes
};

absl::StatusOr<std::string> Generate(const InferenceDeps& deps, const GenerateOptions& options) {
  TRAINCTL_ASSIGN_OR_RETURN(const Codec codec, Codec::Open(*deps.recipe));
  TRAINCTL_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, codec.Encode(options.prompt));
  const size_t num_prompt = tokens.size();
  Model model(deps, {1, 1});
  TRAINCTL_RETURN_IF_ERROR(model.Load(deps));
  const size_t context = static_cast<size_t>(deps.recipe->data.seq_len);
  for (int64_t i = 0; i < options.max_tokens; ++i) {
    const size_t begin = tokens.size() > context ? tokens.size() - context : 0;
    const int32_t next = Sample(
        LastLogits(model, {tokens.begin() + static_cast<ptrdiff_t>(begin), tokens.end()}, deps.threads),
        options, i);
    if (codec.EndsDocument(next)) break;
    tokens.push_back(next);
  }
  return codec.Continuation(tokens, num_prompt);
}

absl::StatusOr<std::string> Eval(const InferenceDeps& deps) {
  TRAINCTL_ASSIGN_OR_RETURN(const std::vector<data::EvalSet> sets, data::OpenEvalSets(*deps.recipe));
  if (sets.empty()) return UsageError("the recipe has no evaluation set; give data.eval or a holdout");
  Model model(deps, {1, deps.recipe->data.seq_len});
  TRAINCTL_RETURN_IF_ERROR(model.Load(deps));
  TRAINCTL_ASSIGN_OR_RETURN(
      const auto communicator,
      comm::Communicator::Create(device::Device::Cpu(), nullptr, 0, 1, absl::Minutes(1)));
  TRAINCTL_ASSIGN_OR_RETURN(parallel::Groups groups,
                            parallel::Groups::Make(*communicator, layout::Mesh{}, model.forward()));
  parallel::Executor executor(model.spec(), model.state(), groups, model.options());
  Json report = {
      {"schema", "trainctl.eval.v1"}, {"checkpoint", deps.checkpoint_path}, {"sets", Json::array()}};
  for (const data::EvalSet& set : sets) {
    parallel::EvalSums sums;
    for (int64_t i = 0; i < set.num_batches; ++i) {
      for (int64_t s = 0; s < deps.recipe->train.batch_sequences; ++s) {
        TRAINCTL_ASSIGN_OR_RETURN(const data::Batch batch, set.source->Get(i, {s, 1}));
        const nn::TokenView view{batch.tokens.data(), batch.targets.data(), batch.positions.data(),
                                 batch.document.data(), batch.loss_mask.data()};
        TRAINCTL_ASSIGN_OR_RETURN(const parallel::EvalSums part,
                                  executor.RunForward(model.forward(), {&view, 1}));
        sums.loss += part.loss;
        sums.loss_tokens += part.loss_tokens;
      }
    }
    report["sets"].push_back(
        {{"name", set.name},
         {"loss", sums.loss_tokens > 0 ? sums.loss / static_cast<double>(sums.loss_tokens) : 0.0},
         {"loss_tokens", sums.loss_tokens}});
  }
  return report.dump() + "\n";
}

absl::Status Export(const InferenceDeps& deps, const std::string& out_folder, bool bf16) {
  Model model(deps, {1, 1});
  TRAINCTL_RETURN_IF_ERROR(model.Load(deps));
  const DType dtype = bf16 ? DType::kBF16 : DType::kF32;
  std::vector<checkpoint::ModelTensorSpec> tensors;
  std::map<std::string, const float*> data;
  for (size_t i = 0; i < model.ledger().inventory().size(); ++i) {
    const model::Parameter& parameter = model.ledger().inventory()[i];
    tensors.push_back({parameter.name, dtype, parameter.shape});
    const int index = static_cast<int>(i);
    data[parameter.name] =
        model.state().master(model.ledger().bucket_of(index)) + model.ledger().offset_of(index);
  }
  TRAINCTL_RETURN_IF_ERROR(MakeDirs(out_folder));
  TRAINCTL_RETURN_IF_ERROR(checkpoint::WriteModelFolder(
      out_folder, tensors,
      [&](const checkpoint::ModelTensorSpec& tensor, int64_t begin_bytes, absl::Span<std::byte> bytes) {
        const int64_t element_bytes = DTypeBytes(dtype);
        const float* source = data.at(tensor.name) + begin_bytes / element_bytes;
        kernels::Cpu().For(dtype).from_float(bytes.data(), source,
                                             static_cast<int64_t>(bytes.size()) / element_bytes);
        return absl::OkStatus();
      },
      kMaxShardBytes));
  return WriteFileAtomic(out_folder + "/config.json", model::ToHuggingFaceConfig(model.spec(), dtype));
}

template <typename Function>
auto Guarded(const InferenceDeps& deps, const Function& function) -> decltype(function()) {
  try {
    at::set_num_threads(deps.threads);
    return function();
  } catch (const std::exception& error) {
    return InternalError(device::ErrorText(error));
  }
}

}  // namespace

absl::StatusOr<std::string> RunGenerate(const InferenceDeps& deps, const GenerateOptions& options) {
  return Guarded(deps, [&] { return Generate(deps, options); });
}

absl::StatusOr<std::string> RunEval(const InferenceDeps& deps) {
  return Guarded(deps, [&] { return Eval(deps); });
}

absl::Status RunExport(const InferenceDeps& deps, const std::string& out_folder, bool bf16) {
  return Guarded(deps, [&] { return Export(deps, out_folder, bf16); });
}

}  // namespace trainctl::trainer
