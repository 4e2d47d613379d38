#include "trainer/checkpointing.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/status.h"
#include "checkpoint/checkpoint_io.h"
#include "checkpoint/examine.h"
#include "checkpoint/finite_values.h"
#include "checkpoint/float_values.h"
#include "checkpoint/folder_parameters.h"
#include "checkpoint/model_folder.h"
#include "checkpoint/model_weights.h"
#include "kernels/kernels.h"
#include "optim/optimizer.h"

namespace trainctl::trainer {
namespace {

// Boxes of logical tensors in this rank's memory.
struct OwnSlices {
  std::vector<checkpoint::Slice> slices;
  std::vector<std::byte*> data;  // of slices[i], row-major and without gaps
  std::vector<layout::HeldBox> boxes;

  // Where the element `begin` of a slice lies.
  std::byte* At(size_t slice, int64_t begin) const {
    return data[slice] + begin * DTypeBytes(slices[slice].dtype);
  }
};

// `stored` names the type of a parameter in the checkpoint.
template <typename StoredType>
OwnSlices SlicesOf(const parallel::ShardedState& state, const std::vector<layout::HeldBox>& boxes,
                   const PartsOf& parts_of, bool weights_only, const StoredType& stored) {
  OwnSlices own;
  const absl::Span<const optim::StateKind> kinds = state.optimizer().states;
  for (const layout::HeldBox& held : boxes) {
    const optim::Parts& parts = parts_of(held.bucket);
    const model::Parameter& parameter = state.ledger().inventory()[static_cast<size_t>(held.parameter)];
    const auto add = [&](const std::string& name, DType dtype, DType dtype_here, void* shard) {
      own.slices.push_back({name, dtype, parameter.shape, held.box});
      own.data.push_back(static_cast<std::byte*>(shard) + held.offset * DTypeBytes(dtype_here));
      own.boxes.push_back(held);
    };
    add(parameter.name, stored(parameter.name), state.master_dtype(), parts.master);
    for (size_t k = 0; k < kinds.size() && !weights_only; ++k)
      add(kinds[k].TensorPrefix() + parameter.name, kinds[k].dtype, kinds[k].dtype, parts.states[k]);
  }
  return own;
}

PartsOf OwnParts(const parallel::ShardedState& state) {
  return [&state](int bucket) -> const optim::Parts& { return state.parts(bucket); };
}

std::string StateJson(const RunCounters& counters, const std::string& description_json) {
  Json state = {{"step", counters.step},
                {"updates", counters.updates},
                {"tokens", counters.tokens},
                {"skipped", counters.skipped}};
  if (!counters.unlogged_json.empty()) state["unlogged"] = ParseValidJson(counters.unlogged_json);
  state["run"] = ParseValidJson(description_json);
  return FormatJson(state);
}

using StateNames = std::set<std::string>;

// The optimizer that keeps just these, or "another optimizer". Where several do, the first is as good.
std::string OptimizerThatKeeps(const StateNames& names) {
  for (const optim::Optimizer* optimizer : optim::All()) {
    StateNames kept;
    for (const optim::StateKind& kind : optimizer->states) kept.emplace(kind.name);
    if (kept == names) return std::string(optimizer->name);
  }
  return "another optimizer";
}

// The kinds of optimizer state that are there. State of a parameter that the model does not have means
// another model.
absl::StatusOr<StateNames> FindStates(const std::string& path, const checkpoint::CheckpointReader& reader,
                                      const layout::Ledger& ledger) {
  std::map<std::string, std::string> known;  // tensor -> kind of state
  for (const model::Parameter& parameter : ledger.inventory()) {
    for (const optim::Optimizer* optimizer : optim::All()) {
      for (const optim::StateKind& kind : optimizer->states)
        known[kind.TensorPrefix() + parameter.name] = std::string(kind.name);
    }
  }
  StateNames found;
  for (const checkpoint::Slice& tensor : reader.tensors()) {
    if (!checkpoint::IsOptimizerState(tensor)) continue;
    const auto it = known.find(tensor.name);
    if (it == known.end()) {
      return BadDataError(absl::StrCat(path, " contains ", tensor.name,
                                       ", which this model does not have; it belongs to a different model"));
    }
    found.insert(it->second);
  }
  return found;
}

// One optimizer's state means nothing to another, even where it has the name of its own.
absl::Status CheckStates(const std::string& path, const StateNames& found,
                         const optim::Optimizer& optimizer) {
  StateNames wanted, missing;
  for (const optim::StateKind& kind : optimizer.states) {
    wanted.emplace(kind.name);
    if (found.count(std::string(kind.name)) == 0) missing.emplace(kind.name);
  }
  if (found == wanted) return absl::OkStatus();
  return BadDataError(
      absl::StrCat(path, " contains ", found.empty() ? "no optimizer state" : absl::StrJoin(found, ", "),
                   found.empty() ? "" : absl::StrCat(", the state of ", OptimizerThatKeeps(found)), "; ",
                   optimizer.name, " keeps ", absl::StrJoin(wanted, ", "),
                   missing.empty() ? "" : absl::StrCat("; missing: ", absl::StrJoin(missing, ", ")),
                   ". Resume with the optimizer that saved it, or start a new run from only its parameters: ",
                   "model.weights = \"", path, "\""));
}

}  // namespace

absl::Status AllSucceeded(comm::Group& world, absl::string_view name, const absl::Status& own) {
  double failed = own.ok() ? 0 : 1;
  const absl::Status status = world.AllReduceScalars(name, absl::MakeSpan(&failed, 1));
  if (!own.ok()) return own;
  if (!status.ok()) return status;
  return failed > 0 ? WorkerError(absl::StrCat("another rank failed in ", name)) : absl::OkStatus();
}

RankSave::RankSave(const SaveOptions& options, const device::Device& device,
                   const parallel::ShardedState& state, PartsOf parts, const RunCounters& counters)
    : options_(options), device_(device), state_(state), parts_(std::move(parts)), counters_(counters) {
  const layout::Ledger& ledger = state.ledger();
  if (!ledger.WritesCheckpoint(state.rank())) return;
  writer_.emplace(options.root, counters.step, ledger.WriterIndex(state.rank()), ledger.num_writers(),
                  options.tag);
}

absl::Status RankSave::Do(const std::atomic<bool>* cancelled) {
  if (options_.check_folder) TRAINCTL_RETURN_IF_ERROR(options_.check_folder());
  switch (phase_) {
    case SavePhase::kBegin:
      return state_.rank() == 0 ? writer_->Begin() : absl::OkStatus();
    case SavePhase::kWrite:
      return Write(cancelled);
    case SavePhase::kCommit:
      return state_.rank() == 0 ? Commit() : absl::OkStatus();
    case SavePhase::kDone:
      break;
  }
  return InternalError("this save was already discarded");
}

absl::Status RankSave::AdvanceTogether(comm::Group& world, const absl::Status& own) {
  constexpr const char* kNames[] = {"checkpoint/begin", "checkpoint/write", "checkpoint/commit"};
  TRAINCTL_RETURN_IF_ERROR(AllSucceeded(world, kNames[static_cast<int>(phase_)], own));
  Advance();
  return absl::OkStatus();
}

absl::Status RankSave::Write(const std::atomic<bool>* cancelled) {
  if (!writer_.has_value()) return absl::OkStatus();
  const OwnSlices own =
      SlicesOf(state_, state_.ledger().BoxesToWrite(state_.rank()), parts_, /*weights_only=*/false,
               [this](const std::string&) { return state_.master_dtype(); });
  const RealClock clock;  // of the disk, also where a test has its own time
  const absl::Duration begin = clock.Monotonic();
  const auto read = [&](size_t slice, int64_t element, absl::Span<std::byte> bytes) {
    if (cancelled != nullptr && *cancelled) return absl::CancelledError("the save was abandoned");
    device_.CopyToHost(bytes.data(), own.At(slice, element), static_cast<int64_t>(bytes.size()));
    const checkpoint::Slice& tensor = own.slices[slice];
    if (!checkpoint::IsOptimizerState(tensor) && !checkpoint::AllFinite(tensor.dtype, bytes)) {
      return CheckFailedError(absl::StrCat("the weights after step ", counters_.step, " are not finite (",
                                           tensor.name,
                                           " contains NaN or infinite values), so they are not saved"));
    }
    written_.bytes += static_cast<int64_t>(bytes.size());
    return absl::OkStatus();
  };
  const absl::Status status = writer_->Write(own.slices, read);
  written_.time = clock.Monotonic() - begin;
  return status;
}

absl::Status RankSave::Commit() {
  if (options_.sync_logs) TRAINCTL_RETURN_IF_ERROR(options_.sync_logs());
  TRAINCTL_RETURN_IF_ERROR(
      writer_->Commit({counters_.step, StateJson(counters_, options_.description_json)}));
  const absl::Status removed = checkpoint::ApplyRetention(options_.root, options_.retention, counters_.step,
                                                          /*ops=*/nullptr, options_.check_folder);
  if (removed.ok() || absl::IsInvalidArgument(removed)) return removed;
  // The checkpoint is good; what should have gone takes room and no more.
  if (options_.warn) {
    options_.warn(absl::StrCat("could not remove an older checkpoint; will retry after the next save: ",
                               removed.message()));
  }
  return absl::OkStatus();
}

absl::StatusOr<Written> SaveCheckpoint(const SaveOptions& options, const parallel::ShardedState& state,
                                       const RunCounters& counters, comm::Group& world) {
  RankSave save(options, state.device(), state, OwnParts(state), counters);
  while (save.phase() != SavePhase::kDone) {
    TRAINCTL_RETURN_IF_ERROR(save.AdvanceTogether(world, save.Do(nullptr)));
  }
  return save.written();
}

absl::StatusOr<StoredState> StoredState::Open(const std::string& path, const parallel::ShardedState& state,
                                              bool weights_only) {
  TRAINCTL_ASSIGN_OR_RETURN(checkpoint::CheckpointReader reader, checkpoint::CheckpointReader::Open(path));
  TRAINCTL_RETURN_IF_ERROR(checkpoint::CheckWeights(path, reader, state.ledger().inventory()));
  TRAINCTL_ASSIGN_OR_RETURN(const StateNames found, FindStates(path, reader, state.ledger()));
  if (!weights_only) TRAINCTL_RETURN_IF_ERROR(CheckStates(path, found, state.optimizer()));
  StoredState stored(path, std::move(reader), weights_only);
  const std::string what = path + "/manifest.json";
  TRAINCTL_ASSIGN_OR_RETURN(const Json json, ParseJson(stored.reader_.meta().state_json, what));
  TRAINCTL_ASSIGN_OR_RETURN(stored.counters_.step, JsonInt(json, "step", what));
  TRAINCTL_ASSIGN_OR_RETURN(stored.counters_.updates, JsonInt(json, "updates", what));
  TRAINCTL_ASSIGN_OR_RETURN(stored.counters_.tokens, JsonInt(json, "tokens", what));
  // Older versions had no other reason to leave out an update.
  stored.counters_.skipped = stored.counters_.step - stored.counters_.updates;
  if (json.contains("skipped")) {
    TRAINCTL_ASSIGN_OR_RETURN(stored.counters_.skipped, JsonInt(json, "skipped", what));
  }
  if (json.contains("unlogged")) stored.counters_.unlogged_json = FormatJson(json["unlogged"]);
  if (json.contains("run")) stored.description_json_ = FormatJson(json["run"]);
  return stored;
}

absl::Status StoredState::Read(parallel::ShardedState& state, bool* non_finite) const {
  const OwnSlices own =
      SlicesOf(state, state.ledger().BoxesHeld(state.rank()), OwnParts(state), weights_only_,
               [this](const std::string& name) { return reader_.Find(name)->dtype; });
  std::set<std::string> bad;
  std::vector<float> values;
  TRAINCTL_RETURN_IF_ERROR(
      reader_.Read(own.slices, [&](size_t slice, int64_t begin, absl::Span<const std::byte> bytes) {
        const checkpoint::Slice& tensor = own.slices[slice];
        if (!checkpoint::IsOptimizerState(tensor) && !checkpoint::AllFinite(tensor.dtype, bytes)) {
          bad.insert(tensor.name);
        }
        if (!checkpoint::IsOptimizerState(tensor) && tensor.dtype != state.master_dtype()) {
          values.resize(bytes.size() / static_cast<size_t>(DTypeBytes(tensor.dtype)));
          ConvertToFloat(tensor.dtype, bytes.data(), absl::MakeSpan(values));
          const layout::HeldBox& held = own.boxes[slice];
          state.SetMaster(held.bucket, held.offset + begin, values);
          return absl::OkStatus();
        }
        state.device().CopyToDevice(own.At(slice, begin), bytes.data(), static_cast<int64_t>(bytes.size()));
        return absl::OkStatus();
      }));
  if (bad.empty()) return absl::OkStatus();
  if (non_finite != nullptr) *non_finite = true;
  return checkpoint::NonFiniteError(path_, {bad.begin(), bad.end()});
}

absl::StatusOr<RunCounters> LoadCheckpoint(const std::string& path, parallel::ShardedState& state,
                                           bool weights_only) {
  TRAINCTL_ASSIGN_OR_RETURN(const StoredState stored, StoredState::Open(path, state, weights_only));
  TRAINCTL_RETURN_IF_ERROR(stored.Read(state));
  return stored.counters();
}

void ConvertToFloat(DType dtype, const std::byte* raw, absl::Span<float> values) {
  if (dtype == DType::kF16) {
    return checkpoint::ConvertToFloat(dtype, {raw, values.size() * sizeof(uint16_t)}, values);
  }
  kernels::Cpu().For(dtype).assign(values.data(), raw, static_cast<int64_t>(values.size()));
}

absl::Status ReadFloats(const checkpoint::ModelFolder& folder, const model::Parameter& parameter,
                        int64_t begin, absl::Span<float> values) {
  for (const layout::Box& box :
       layout::BoxesOfRange(parameter.shape, begin, static_cast<int64_t>(values.size()))) {
    const absl::Span<float> of_box = values.first(static_cast<size_t>(box.Count()));
    TRAINCTL_RETURN_IF_ERROR(
        checkpoint::ReadParameter(folder, parameter, box, [&](const checkpoint::ReadElements& read) {
          const DType dtype = read.tensor->dtype;
          ConvertToFloat(dtype, read.bytes.data(),
                         of_box.subspan(static_cast<size_t>(read.position),
                                        read.bytes.size() / static_cast<size_t>(DTypeBytes(dtype))));
          return absl::OkStatus();
        }));
    values.remove_prefix(of_box.size());
  }
  return absl::OkStatus();
}

absl::Status LoadModelFolder(const std::string& path, parallel::ShardedState& state,
                             checkpoint::OddWeights* odd) {
  TRAINCTL_ASSIGN_OR_RETURN(const checkpoint::ModelFolder folder, checkpoint::ModelFolder::Open(path));
  const std::vector<model::Parameter>& inventory = state.ledger().inventory();
  TRAINCTL_RETURN_IF_ERROR(checkpoint::CheckWeights(path, folder, inventory));
  std::vector<float> values;
  for (const layout::HeldBox& held : state.ledger().BoxesHeld(state.rank())) {
    const model::Parameter& parameter = inventory[static_cast<size_t>(held.parameter)];
    const auto load = [&](const checkpoint::ReadElements& read) {
      const DType dtype = read.tensor->dtype;
      values.resize(static_cast<size_t>(read.count()));
      ConvertToFloat(dtype, read.bytes.data(), absl::MakeSpan(values));
      if (odd != nullptr) odd->See(read, values);
      state.SetMaster(held.bucket, held.offset + read.position, values);
      return absl::OkStatus();
    };
    TRAINCTL_RETURN_IF_ERROR(Annotate(checkpoint::ReadParameter(folder, parameter, held.box, load), path));
  }
  return absl::OkStatus();
}

absl::Status WarnOfOddWeights(const std::string& path, const checkpoint::OddWeights& odd,
                              const parallel::ShardedState& state, bool holds_first_copy, comm::Group& world,
                              const std::function<void(const std::string&)>& warn) {
  const std::vector<model::Parameter>& parameters = state.ledger().inventory();
  std::vector<double> nonzero;
  for (const model::Parameter& parameter : parameters)
    nonzero.push_back(odd.HasNonZero(parameter.name) ? 1 : 0);
  TRAINCTL_RETURN_IF_ERROR(world.AllReduceScalars("weights", absl::MakeSpan(nonzero)));
  std::vector<std::string> texts;
  if (holds_first_copy) texts = odd.HugeValues();
  std::vector<std::string> zeros;
  for (size_t i = 0; i < parameters.size() && state.rank() == 0; ++i) {
    if (nonzero[i] == 0 && parameters[i].shape.size() > 1) zeros.push_back(parameters[i].name);
  }
  if (!zeros.empty()) {
    const std::string others = zeros.size() == 1 ? "" : absl::StrCat(" (and ", zeros.size() - 1, " others)");
    texts.push_back(absl::StrCat(zeros.front(), others, " contains only zeros"));
  }
  for (const std::string& text : texts) {
    warn(absl::StrCat(path, ": ", text,
                      "; a trained model has no such weights, so the folder may be damaged"));
  }
  return absl::OkStatus();
}

}  // namespace trainctl::trainer
