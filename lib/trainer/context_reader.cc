#include "trainer/context_reader.h"

#include <ATen/Parallel.h>

#include <numeric>
#include <optional>
#include <utility>

#include "base/status.h"

namespace trainctl::trainer {

namespace {

// A token's products read each weight once. Below this many of a layer, which one core reads in some tenths
// of a millisecond, more threads cost more than they help: they wait for one another at every product.
constexpr int64_t kWeightsWorthThreads = int64_t{1} << 20;

int ThreadsOfOneToken(const model::Architecture& spec, int threads) {
  return model::ParametersOfLayer(spec, 0).matrices < kWeightsWorthThreads ? 1 : threads;
}

}  // namespace

ContextReader::ContextReader(const model::Architecture& spec, ParametersOf parameters_of, int64_t window,
                             int threads)
    : spec_(spec),
      inventory_(model::Inventory(spec)),
      parameters_of_(std::move(parameters_of)),
      window_(window),
      num_positions_(NumPositions(1)),
      rope_(nn::MakeRopeTables(device::Device::Cpu(), model::AnglesOf(spec), num_positions_)),
      threads_(threads),
      threads_of_one_token_(ThreadsOfOneToken(spec, threads)),
      graph_(GraphOf(1)),
      one_token_(MakeRunners(*graph_)),
      caches_(graph_->blocks.size(), nn::KeyValueCache(window)) {}

std::shared_ptr<const model::Graph> ContextReader::GraphOf(int64_t num_tokens) const {
  return model::BuildGraph(spec_, inventory_, {{1, num_tokens}, DType::kF32, threads_});
}

std::vector<nn::SegmentRunner> ContextReader::MakeRunners(const model::Graph& graph) const {
  std::vector<nn::SegmentRunner> runners;
  for (const model::Segment& kind : graph.kinds)
    runners.emplace_back(device::Device::Cpu(), kind, rope_.data(), threads_);
  return runners;
}

int64_t ContextReader::NumPositions(int64_t length) const {
  const std::optional<model::RopeScaling>& scaling = spec_.rope.scaling;
  if (!scaling.has_value() || UsesLongFactor(*scaling, length) || !UsesLongFactor(*scaling, window_))
    return window_;
  return scaling->original_max_position;
}

void ContextReader::Restart(int64_t begin) {
  begin_ = begin;
  num_tokens_ = 0;
  for (nn::KeyValueCache& cache : caches_) cache.Clear();
}

absl::StatusOr<at::Tensor> ContextReader::Read(absl::Span<const int32_t> text) {
  const auto length = static_cast<int64_t>(text.size());
  TRAINCTL_CHECK(length > begin_ + num_tokens_);
  if (length - begin_ > window_) Restart(length - KeptOf(window_));
  if (const int64_t num_positions = NumPositions(length - begin_); num_positions != num_positions_) {
    Restart(begin_);
    num_positions_ = num_positions;
    rope_ = nn::MakeRopeTables(device::Device::Cpu(), model::AnglesOf(spec_), num_positions_);
    one_token_ = MakeRunners(*graph_);
  }
  return ReadMore(text.subspan(static_cast<size_t>(begin_ + num_tokens_)));
}

absl::StatusOr<at::Tensor> ContextReader::ReadMore(absl::Span<const int32_t> tokens) {
  const auto n = static_cast<int64_t>(tokens.size());
  const std::vector<int32_t> one_document(tokens.size(), 0);
  std::vector<int32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), static_cast<int32_t>(num_tokens_));
  const nn::TokenView view{tokens.data(), nullptr, positions.data(), one_document.data(), nullptr};
  const std::vector<nn::SegmentRunner> several =
      n > 1 ? MakeRunners(*GraphOf(n)) : std::vector<nn::SegmentRunner>{};
  const std::vector<nn::SegmentRunner>& runners = n > 1 ? several : one_token_;
  at::set_num_threads(n > 1 ? threads_ : threads_of_one_token_);
  at::Tensor hidden, logits;
  for (int block = 0; block < graph_->num_blocks(); ++block) {
    TRAINCTL_ASSIGN_OR_RETURN(const nn::BoundParameters* const parameters, parameters_of_(block));
    const nn::SegmentRunner& runner =
        runners[static_cast<size_t>(graph_->blocks[static_cast<size_t>(block)].kind)];
    if (runner.segment().inputs.empty()) {
      hidden = runner.Forward(*parameters, at::Tensor(), view, nullptr);
    } else if (runner.segment().outputs.empty()) {
      logits = runner.Logits(*parameters, hidden, {n - 1});
    } else {
      hidden = runner.Continue(*parameters, hidden, view, caches_[static_cast<size_t>(block)]);
    }
  }
  num_tokens_ += n;
  return logits;
}

}  // namespace trainctl::trainer
