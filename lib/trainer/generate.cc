// A checkpoint's model continues a text, in one process.

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/counter_rng.h"
#include "base/json.h"
#include "device/aten.h"
#include "tokenizer/text_stream.h"
#include "trainer/block_weights.h"
#include "trainer/codec.h"
#include "trainer/context_reader.h"

namespace trainctl::trainer {
namespace {

// The tokens to choose among: the fewest likely ones that together have at least top_p. Empty: all.
std::vector<size_t> MostLikely(const std::vector<double>& weights, double sum, double top_p) {
  if (top_p >= 1) return {};
  std::vector<size_t> order(weights.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return weights[a] > weights[b]; });
  double together = 0;
  size_t count = 0;
  while (count < order.size() && (count == 0 || together < top_p * sum)) together += weights[order[count++]];
  order.resize(count);
  return order;
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
  const std::vector<size_t> likely = MostLikely(weights, sum, options.top_p);
  if (!likely.empty()) {
    sum = 0;
    for (const size_t token : likely) sum += weights[token];
  }
  double left = RandomUniform(options.seed, StreamOf("generate"), static_cast<uint64_t>(position)) * sum;
  const size_t count = likely.empty() ? weights.size() : likely.size();
  for (size_t i = 0; i < count; ++i) {
    const size_t token = likely.empty() ? i : likely[i];
    left -= weights[token];
    if (left < 0) return static_cast<int32_t>(token);
  }
  return static_cast<int32_t>(best);
}

std::string NoteOfWindow(const model::Architecture& spec) {
  const int64_t window = spec.max_position;
  return absl::StrCat("the model reads at most ", window,
                      " tokens (max_position_embeddings); a longer text continues from its newest ",
                      ContextReader::KeptOf(window));
}

// Notes on a Hugging Face folder, printed before the text.
std::vector<std::string> NotesOfFolder(const InferenceDeps& deps, const Codec& codec, const Json& model) {
  if (!deps.checkpoint_path.empty()) return {};
  std::vector<std::string> notes = codec.differences();
  if (model["weights_dtype"] != model["compute_dtype"]) {
    notes.push_back(absl::StrCat("the weights are ", model["weights_dtype"].get<std::string>(),
                                 "; the model computes in ", model["compute_dtype"].get<std::string>()));
  }
  return notes;
}

absl::StatusOr<Generated> Generate(const InferenceDeps& deps, const GenerateOptions& options,
                                   const GenerateOutput& output) {
  TRAINCTL_ASSIGN_OR_RETURN(const Codec codec, Codec::Open(deps));
  TRAINCTL_ASSIGN_OR_RETURN(std::vector<int32_t> tokens, codec.Encode(options.prompt));
  TRAINCTL_ASSIGN_OR_RETURN(const std::unique_ptr<BlockWeights> weights, BlockWeights::Open(deps));
  const model::Architecture& spec = weights->spec();
  // What is damaged is told before any text.
  for (int block = 0; weights->all_stay() && block < model::NumBlocks(spec); ++block)
    TRAINCTL_RETURN_IF_ERROR(weights->Of(block).status());
  const Json model = weights->Describe();
  Generated generated{.model_json = FormatJson(model)};
  for (const std::string& note : NotesOfFolder(deps, codec, model)) output.note(note);
  const int64_t window = spec.max_position;
  const int64_t most_tokens = static_cast<int64_t>(tokens.size()) + options.max_tokens;
  const bool begins_cut = std::ssize(tokens) > window;
  if (begins_cut) output.note(NoteOfWindow(spec));
  bool is_cut = begins_cut;
  ContextReader reader(
      spec, [&](int block) { return weights->Of(block); }, std::min(window, most_tokens), deps.threads);
  tokenizer::TextStream text([&](absl::Span<const int32_t> ids) { return codec.Decode(ids); });
  TRAINCTL_RETURN_IF_ERROR(text.Begin(tokens));
  TRAINCTL_RETURN_IF_ERROR(output.write(options.prompt));
  while (std::ssize(generated.tokens) < options.max_tokens) {
    is_cut = std::ssize(tokens) > window;
    TRAINCTL_ASSIGN_OR_RETURN(const at::Tensor logits, reader.Read(tokens));
    const int32_t next = Sample(logits, options, std::ssize(generated.tokens));
    generated.ended = codec.Ends(next);
    if (generated.ended) break;
    generated.tokens.push_back(next);
    tokens.push_back(next);
    TRAINCTL_ASSIGN_OR_RETURN(const std::string known, text.Add(next));
    TRAINCTL_RETURN_IF_ERROR(output.write(known));
  }
  TRAINCTL_ASSIGN_OR_RETURN(const std::string rest, text.End());
  TRAINCTL_RETURN_IF_ERROR(output.write(rest));
  if (is_cut && !begins_cut) generated.late_note = NoteOfWindow(spec);
  return generated;
}

}  // namespace

absl::StatusOr<Generated> RunGenerate(const InferenceDeps& deps, const GenerateOptions& options,
                                      const GenerateOutput& output) {
  return Guarded(deps, [&] { return Generate(deps, options, output); });
}

}  // namespace trainctl::trainer
