#include "schedule/step_hash.h"

#include <xxhash.h>

#include <concepts>
#include <cstdint>
#include <type_traits>
#include <variant>
#include <vector>

#include "absl/base/casts.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "model/graph.h"

namespace trainctl::schedule {
namespace {

// Raise it when the meaning of anything below changes: other builds then refuse the step.
constexpr int64_t kFormatVersion = 6;

struct FreeState {
  void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
};

}  // namespace

// Every number goes in as eight little-endian bytes, every list and text after its length, so that no two
// steps have one spelling.
class StepHasher::State {
 public:
  State() : xxh_(XXH3_createState()) {
    TRAINCTL_CHECK_MSG(xxh_ != nullptr, "no memory for a hash");
    XXH3_128bits_reset(xxh_.get());
  }

  template <typename List>
  requires requires(const List& list) { *list.begin() + 0; }
  State& operator<<(const List& list) {
    *this << static_cast<int64_t>(list.size());
    for (const auto& item : list) {
      if constexpr (std::same_as<std::remove_cvref_t<decltype(item)>, double>) {
        *this << item;  // a cast would drop the fraction
      } else {
        *this << static_cast<int64_t>(item);
      }
    }
    return *this;
  }
  State& operator<<(int64_t number) {
    unsigned char bytes[8];
    for (int i = 0; i < 8; ++i)
      bytes[i] = static_cast<unsigned char>(static_cast<uint64_t>(number) >> (8 * i));
    XXH3_128bits_update(xxh_.get(), bytes, sizeof(bytes));
    return *this;
  }
  template <std::same_as<double> Number>  // no integer may choose it
  State& operator<<(Number number) {
    return *this << static_cast<int64_t>(absl::bit_cast<uint64_t>(number));
  }
  State& operator<<(const std::string& text) {
    *this << static_cast<int64_t>(text.size());
    XXH3_128bits_update(xxh_.get(), text.data(), text.size());
    return *this;
  }

  std::string Digest() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(xxh_.get());
    return absl::StrFormat("%016x%016x", hash.high64, hash.low64);
  }

 private:
  std::unique_ptr<XXH3_state_t, FreeState> xxh_;
};

namespace {

template <typename State>
void AddProgramHead(const Program& program, State& s) {
  s << program.num_micro_batches << program.receive_buffer_bytes;
  s << static_cast<int64_t>(program.streams.size());
  for (const Stream& stream : program.streams) s << stream.name << stream.peer << stream.sends;
  s << static_cast<int64_t>(program.values.size());
  for (const Value& value : program.values) {
    s << static_cast<int64_t>(value.kind) << static_cast<int64_t>(value.category) << value.persistent
      << value.block << value.micro_batch << value.bytes;
  }
  for (const std::vector<Slot>* slots : {&program.parameter_slots, &program.gradient_slots}) {
    s << static_cast<int64_t>(slots->size());
    for (const Slot& slot : *slots) s << slot.numel << slot.value;
  }
}

// Structured bindings, so that a field added to any of these does not compile until it is hashed.
template <typename State>
class GraphAdder {
 public:
  explicit GraphAdder(State& state) : s_(state) {}

  void Add(const model::Graph& graph) {
    const auto& [kinds, blocks, angles] = graph;
    s_ << Size(kinds);
    for (const model::Segment& kind : kinds) Add(kind);
    s_ << Size(blocks);
    for (const auto& [kind, parameters] : blocks) s_ << kind << parameters;
    s_ << Size(angles);
    for (const auto& [rotated_dim, theta, scaling] : angles) {
      s_ << rotated_dim << theta << scaling.has_value();
      if (!scaling) continue;
      const auto& [factor, low, high, original, kind, beta_fast, beta_slow, truncate, attention_factor,
                   short_factor, long_factor, alpha] = *scaling;
      s_ << static_cast<int64_t>(kind) << factor << low << high << original << beta_fast << beta_slow
         << truncate << attention_factor << short_factor << long_factor << alpha;
    }
  }

  void Add(const model::Parameter& parameter) {
    const auto& [name, shape, block, used_by, init, init_std, numel, tensor_dim, tensor_unit,
                 is_read_in_parts, folder, tied_head] = parameter;
    (void)folder, (void)tied_head;  // a step does not read folders
    s_ << name << shape << block << used_by << static_cast<int64_t>(init) << init_std << numel << tensor_dim
       << tensor_unit << is_read_in_parts;
  }

 private:
  template <typename List>
  static int64_t Size(const List& list) {
    return static_cast<int64_t>(list.size());
  }

  void Add(const model::Segment& segment) {
    const auto& [shape, tensor, dtype, threads, on_device, rows_are_bounded, values, operators, inputs,
                 outputs] = segment;
    const auto& [batch, seq_len] = shape;
    const auto& [ranks, index, cuts_sequence] = tensor;
    s_ << batch << seq_len << ranks << index << cuts_sequence << static_cast<int64_t>(dtype) << threads
       << on_device << rows_are_bounded << Size(values);
    for (const auto& [name, value_dtype, rows, cols] : values)
      s_ << name << static_cast<int64_t>(value_dtype) << rows << cols;
    s_ << Size(operators);
    for (const model::Operator& op : operators) Add(op);
    s_ << inputs << outputs;
  }

  void Add(const model::Operator& op) {
    const auto& [kind, attributes, inputs, outputs, weights, biases, saved, weight_saved, in_place_of,
                 input_gradient, with_next, with_previous, formed_again, forward_temp, backward_temp,
                 weight_temp] = op;
    s_ << static_cast<int64_t>(kind);
    std::visit([this](const auto& of_kind) { this->Add(of_kind); }, attributes);
    s_ << inputs << outputs << weights << biases << saved << weight_saved << in_place_of
       << static_cast<int64_t>(input_gradient) << formed_again << forward_temp << backward_temp
       << weight_temp;
    for (const model::Pass pass : model::kPasses) s_ << with_next.Has(pass) << with_previous.Has(pass);
  }

  void Add(const model::EmbeddingAttributes& a) {
    const auto& [vocab, hidden, first] = a;
    s_ << vocab << hidden << first;
  }
  void Add(const model::RmsNormAttributes& a) {
    const auto& [hidden, eps, gain] = a;
    s_ << hidden << eps << static_cast<int64_t>(gain);
  }
  void Add(const model::LinearAttributes& a) {
    const auto& [in, out] = a;
    s_ << in << out;
  }
  void Add(const model::RopeAttributes& a) {
    const auto& [rotated_heads, head_dim, rotated_dim, pairs, row, angle_table] = a;
    s_ << rotated_heads << head_dim << rotated_dim << static_cast<int64_t>(pairs) << row
       << static_cast<int64_t>(angle_table);
  }
  void Add(const model::AttentionAttributes& a) {
    const auto& [heads, kv_heads, head_dim, scale, window, softcap] = a;
    s_ << heads << kv_heads << head_dim << scale << window << softcap;
  }
  void Add(const model::SwiGluAttributes& a) {
    const auto& [ffn, activation] = a;
    s_ << ffn << static_cast<int64_t>(activation);
  }
  void Add(const model::AddAttributes& a) { s_ << a.hidden; }
  void Add(const model::LinearCrossEntropyAttributes& a) {
    const auto& [hidden, vocab, rows_at_once, first, softcap] = a;
    s_ << hidden << vocab << rows_at_once << first << softcap;
  }
  void Add(const model::BiasAttributes& a) { s_ << a.hidden; }
  void Add(const model::TensorExchangeAttributes& a) {
    const auto& [hidden, way] = a;
    s_ << hidden << static_cast<int64_t>(way);
  }
  void Add(const model::LayerNormAttributes& a) {
    const auto& [hidden, eps, gain] = a;
    s_ << hidden << eps << static_cast<int64_t>(gain);
  }
  void Add(const model::HeadNormAttributes& a) {
    const auto& [heads, kv_heads, head_dim, eps, gain, whole] = a;
    s_ << heads << kv_heads << head_dim << eps << static_cast<int64_t>(gain) << whole;
  }
  void Add(const model::ActivationAttributes& a) {
    const auto& [cols, activation] = a;
    s_ << cols << static_cast<int64_t>(activation);
  }
  void Add(const model::PositionsAttributes& a) {
    const auto& [rows, hidden, first] = a;
    s_ << rows << hidden << first;
  }
  void Add(const model::ScaleAttributes& a) {
    const auto& [cols, factor] = a;
    s_ << cols << factor;
  }

  State& s_;
};

template <typename State>
void AddStepHead(const Step& step, const layout::Ledger& ledger, State& s) {
  s << kFormatVersion << step.optimizer << step.zero_stage << static_cast<int64_t>(step.types.compute)
    << static_cast<int64_t>(step.types.master) << static_cast<int64_t>(step.types.gradient)
    << static_cast<int64_t>(step.types.sum) << step.has_head << step.trains << step.has_update
    << step.num_micro_batches << step.stage_begin;
  s << step.placement.num_ranks << step.placement.num_copies << step.placement.stage_ranks;
  for (int axis = 0; axis < layout::kNumAxes; ++axis) {
    s << ledger.mesh().degree(static_cast<layout::Axis>(axis));
  }
  s << ledger.mesh().ep << ledger.mesh().etp;
  s << ledger.num_buckets();
  for (const layout::Bucket& bucket : ledger.buckets()) {
    s << bucket.id << bucket.numel << bucket.shard_numel << bucket.padded_numel;
    s << bucket.offsets << bucket.used_by << ledger.owners(bucket.id);
  }
  const std::vector<layout::Reduction> reductions = ledger.Reductions();
  s << static_cast<int64_t>(reductions.size());
  for (const layout::Reduction& reduction : reductions) {
    s << reduction.name << static_cast<int64_t>(reduction.axis);
  }
  s << static_cast<int64_t>(step.groups.size());
  for (const Group& group : step.groups) {
    s << static_cast<int64_t>(group.axis) << group.stream << group.classes;
    if (group.axis == layout::Axis::kTp) s << group.copies;
  }
  if (ledger.mesh().tp > 1) s << ledger.sequence_parallel();
  s << static_cast<int64_t>(ledger.inventory().size());
  GraphAdder<State> adder(s);
  for (const model::Parameter& parameter : ledger.inventory()) adder.Add(parameter);
  s << (step.graph != nullptr);
  if (step.graph != nullptr) adder.Add(*step.graph);
}

template <typename State>
void AddInstruction(const Instruction& i, State& s) {
  s << static_cast<int64_t>(i.op) << i.stream << i.block << i.bucket << i.micro_batch << i.slot << i.peer
    << i.keep << i.first << i.joined << i.waits << i.parameter_slots;
  s << static_cast<int64_t>(i.gradients.size());
  for (const GradientWrite& write : i.gradients) {
    s << write.slot << write.accumulate << write.accumulate_weights;
  }
  s << i.groups << i.reads << i.writes << i.frees << i.peak_extra_bytes;
}

}  // namespace

StepHasher::StepHasher(const Step& step, const layout::Ledger& ledger, int own_class)
    : step_(step), ledger_(ledger), own_class_(own_class), state_(std::make_unique<State>()) {
  AddProgramHead(step.programs[static_cast<size_t>(own_class)], *state_);
}

StepHasher::~StepHasher() = default;

void StepHasher::Add(const Instruction& instruction) { AddInstruction(instruction, *state_); }

// The digests of the programs in the order of classes: that of the own one is of what was added.
std::string StepHasher::Finish() const {
  State whole;
  AddStepHead(step_, ledger_, whole);
  for (size_t c = 0; c < step_.programs.size(); ++c) {
    if (static_cast<int>(c) == own_class_) {
      whole << state_->Digest();
      continue;
    }
    State other;
    AddProgramHead(step_.programs[c], other);
    for (const Instruction& instruction : step_.programs[c].instructions) AddInstruction(instruction, other);
    whole << other.Digest();
  }
  return whole.Digest();
}

std::string HashStep(const Step& step, const layout::Ledger& ledger) {
  StepHasher hasher(step, ledger, /*own_class=*/0);
  for (const Instruction& instruction : step.programs[0].instructions) hasher.Add(instruction);
  return hasher.Finish();
}

}  // namespace trainctl::schedule
