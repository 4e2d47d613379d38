#include "trainer/checkpointing.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/json.h"
#include "base/status.h"
#include "checkpoint/checkpoint_io.h"
#include "checkpoint/model_folder.h"
#include "kernels/kernels.h"

namespace trainctl::trainer {
namespace {

constexpr char kFirstMoment[] = "optimizer.exp_avg/";
constexpr char kSecondMoment[] = "optimizer.exp_avg_sq/";

// This rank's part of one logical tensor, in memory.
struct Part {
  float* data = nullptr;
  int64_t begin = 0;
};

struct OwnSlices {
  std::vector<checkpoint::Slice> slices;
  std::map<std::string, Part> parts;  // by tensor name: a rank holds at most one range of each
};

OwnSlices SlicesOf(const layout::Ledger& ledger, int rank, const PartsOf& parts_of, bool weights_only) {
  OwnSlices own;
  for (const layout::Bucket& bucket : ledger.buckets()) {
    const parallel::OptimizerParts parts = parts_of(bucket.block);
    const std::vector<std::pair<std::string, float*>> kinds = {
        {"", parts.master}, {kFirstMoment, parts.exp_avg}, {kSecondMoment, parts.exp_avg_sq}};
    for (const layout::ParameterRange& range : ledger.OptimizerRanges(bucket.block, rank)) {
      const model::Parameter& parameter = ledger.inventory()[static_cast<size_t>(range.parameter)];
      for (const auto& [prefix, data] : kinds) {
        if (weights_only && !prefix.empty()) continue;
        const std::string name = prefix + parameter.name;
        own.slices.push_back({name, DType::kF32, parameter.shape, range.begin, range.count});
        own.parts[name] = {data + range.offset, range.begin};
      }
    }
  }
  return own;
}

OwnSlices SlicesOf(const parallel::ShardedState& state, bool weights_only) {
  return SlicesOf(
      state.ledger(), state.rank(), [&](int bucket) { return state.parts(bucket); }, weights_only);
}

std::string StateJson(const RunCounters& counters, const std::string& description_json) {
  Json state = {{"step", counters.step}, {"updates", counters.updates}, {"tokens", counters.tokens}};
  state["run"] = Json::parse(description_json);
  return state.dump();
}

// A tensor that the model has no place for means another model: loading the rest would be silent damage.
absl::Status CheckNoTensorIsLeft(const std::string& path, const checkpoint::CheckpointReader& reader,
                                 const layout::Ledger& ledger) {
  std::set<std::string> known;
  for (const model::Parameter& parameter : ledger.inventory()) {
    for (const char* prefix : {"", kFirstMoment, kSecondMoment}) known.insert(prefix + parameter.name);
  }
  for (const checkpoint::Slice& tensor : reader.tensors()) {
    if (known.count(tensor.name) == 0) {
      return BadDataError(absl::StrCat(path, " holds ", tensor.name,
                                       ", which this model does not have: it is of another model"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AllSucceeded(comm::Group& world, absl::string_view name, const absl::Status& own) {
  double failed = own.ok() ? 0 : 1;
  const absl::Status status = world.AllReduceScalars(name, absl::MakeSpan(&failed, 1));
  if (!own.ok()) return own;
  if (!status.ok()) return status;
  return failed > 0 ? WorkerError(absl::StrCat("another rank failed in ", name)) : absl::OkStatus();
}

RankSave::RankSave(const SaveOptions& options, const device::Device& device, const layout::Ledger& ledger,
                   int rank, PartsOf parts, const RunCounters& counters)
    : options_(options),
      device_(device),
      ledger_(ledger),
      rank_(rank),
      parts_(std::move(parts)),
      counters_(counters),
      writer_(options.root, counters.step, ledger.mesh().coordinate(rank, layout::Axis::kDpShard),
              ledger.mesh().dp_shard) {}

absl::Status RankSave::Do(const std::atomic<bool>* cancelled) {
  switch (phase_) {
    case SavePhase::kBegin:
      return rank_ == 0 ? writer_.Begin() : absl::OkStatus();
    case SavePhase::kWrite:
      return Write(cancelled);
    case SavePhase::kCommit:
      return rank_ == 0 ? Commit() : absl::OkStatus();
    case SavePhase::kDone:
      break;
  }
  return InternalError("nothing is left of this save");
}

absl::Status RankSave::AdvanceTogether(comm::Group& world, const absl::Status& own) {
  constexpr const char* kNames[] = {"checkpoint/begin", "checkpoint/write", "checkpoint/commit"};
  TRAINCTL_RETURN_IF_ERROR(AllSucceeded(world, kNames[static_cast<int>(phase_)], own));
  Advance();
  return absl::OkStatus();
}

absl::Status RankSave::Write(const std::atomic<bool>* cancelled) {
  if (!ledger_.WritesCheckpoint(rank_)) return absl::OkStatus();
  const OwnSlices own = SlicesOf(ledger_, rank_, parts_, false);
  const RealClock clock;  // of the disk, also where a test has its own time
  const absl::Duration begin = clock.Monotonic();
  const auto read = [&](const checkpoint::Slice& slice, absl::Span<std::byte> bytes) {
    if (cancelled != nullptr && *cancelled) return absl::CancelledError("the save was given up");
    const Part& part = own.parts.at(slice.name);
    device_.CopyToHost(bytes.data(), part.data + (slice.begin - part.begin),
                       static_cast<int64_t>(bytes.size()));
    written_.bytes += static_cast<int64_t>(bytes.size());
    return absl::OkStatus();
  };
  const absl::Status status = writer_.Write(own.slices, read);
  written_.time = clock.Monotonic() - begin;
  return status;
}

absl::Status RankSave::Commit() {
  if (options_.sync_logs) TRAINCTL_RETURN_IF_ERROR(options_.sync_logs());
  TRAINCTL_RETURN_IF_ERROR(writer_.Commit({counters_.step, StateJson(counters_, options_.description_json)}));
  const absl::Status removed =
      checkpoint::ApplyRetention(options_.root, options_.keep, options_.keep_every_steps, counters_.step);
  if (removed.ok() || absl::IsInvalidArgument(removed)) return removed;
  // The checkpoint is good; what should have gone takes room and no more.
  if (options_.warn) {
    options_.warn(
        absl::StrCat("an older checkpoint could not be removed, which is tried again after the next save: ",
                     removed.message()));
  }
  return absl::OkStatus();
}

absl::StatusOr<Written> SaveCheckpoint(const SaveOptions& options, const parallel::ShardedState& state,
                                       const RunCounters& counters, comm::Group& world) {
  RankSave save(
      options, state.device(), state.ledger(), state.rank(), [&](int bucket) { return state.parts(bucket); },
      counters);
  while (save.phase() != SavePhase::kDone) {
    TRAINCTL_RETURN_IF_ERROR(save.AdvanceTogether(world, save.Do(nullptr)));
  }
  return save.written();
}

absl::StatusOr<RunCounters> LoadCheckpoint(const std::string& path, parallel::ShardedState& state,
                                           bool weights_only, std::string* description_json) {
  TRAINCTL_ASSIGN_OR_RETURN(const checkpoint::CheckpointReader reader,
                            checkpoint::CheckpointReader::Open(path));
  TRAINCTL_RETURN_IF_ERROR(CheckNoTensorIsLeft(path, reader, state.ledger()));
  const OwnSlices own = SlicesOf(state, weights_only);
  TRAINCTL_RETURN_IF_ERROR(
      reader.Read(own.slices, [&](const checkpoint::Slice& slice, absl::Span<const std::byte> bytes) {
        const Part& part = own.parts.at(slice.name);
        state.device().CopyToDevice(part.data + (slice.begin - part.begin), bytes.data(),
                                    static_cast<int64_t>(bytes.size()));
        return absl::OkStatus();
      }));
  const std::string what = path + "/manifest.json";
  TRAINCTL_ASSIGN_OR_RETURN(const Json json, ParseJson(reader.meta().state_json, what));
  RunCounters counters;
  TRAINCTL_ASSIGN_OR_RETURN(counters.step, JsonInt(json, "step", what));
  TRAINCTL_ASSIGN_OR_RETURN(counters.updates, JsonInt(json, "updates", what));
  TRAINCTL_ASSIGN_OR_RETURN(counters.tokens, JsonInt(json, "tokens", what));
  if (description_json != nullptr && json.contains("run")) *description_json = json["run"].dump();
  return counters;
}

namespace {

// A weight of the folder that the model has no place for, a bias say, would silently make another
// model of it. Old files carry the rotary table, and tied models may carry the embedding twice.
absl::Status CheckEveryTensorIsKnown(const checkpoint::ModelFolder& folder, const std::string& path,
                                     const std::vector<model::Parameter>& inventory) {
  std::set<absl::string_view> known;
  for (const model::Parameter& parameter : inventory) known.insert(parameter.name);
  const bool tied = known.count("lm_head.weight") == 0;
  for (const checkpoint::ModelTensor& tensor : folder.tensors()) {
    if (known.count(tensor.name) > 0 || (tied && tensor.name == "lm_head.weight")) continue;
    if (absl::EndsWith(tensor.name, ".rotary_emb.inv_freq")) continue;
    return BadDataError(absl::StrCat(path, " has a tensor ", tensor.name,
                                     " that the model of the recipe does not have; "
                                     "do its config.json and the recipe's [model] agree?"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status LoadModelFolder(const std::string& path, parallel::ShardedState& state) {
  TRAINCTL_ASSIGN_OR_RETURN(const checkpoint::ModelFolder folder, checkpoint::ModelFolder::Open(path));
  const OwnSlices own = SlicesOf(state, true);
  for (const checkpoint::Slice& slice : own.slices) {
    const checkpoint::ModelTensor* tensor = folder.Find(slice.name);
    if (tensor == nullptr) return BadDataError(absl::StrCat(path, " has no tensor ", slice.name));
    if (tensor->shape != slice.shape)
      return BadDataError(absl::StrCat(path, ": the shape of ", slice.name, " is not the model's"));
    const Part& part = own.parts.at(slice.name);
    const int64_t element_bytes = DTypeBytes(tensor->dtype);
    if (tensor->dtype != DType::kF32 && tensor->dtype != DType::kBF16) {
      return BadDataError(absl::StrCat(path, ": ", slice.name, " is ", DTypeName(tensor->dtype),
                                       "; F32 and BF16 can be loaded"));
    }
    constexpr int64_t kAtOnce = int64_t{1} << 20;
    std::vector<std::byte> raw;
    std::vector<float> values;
    for (int64_t done = 0; done < slice.count; done += kAtOnce) {
      const int64_t count = std::min(kAtOnce, slice.count - done);
      raw.resize(static_cast<size_t>(count * element_bytes));
      values.resize(static_cast<size_t>(count));
      TRAINCTL_RETURN_IF_ERROR(
          folder.Read(*tensor, (slice.begin + done) * element_bytes, absl::MakeSpan(raw)));
      kernels::Cpu().For(tensor->dtype).assign(values.data(), raw.data(), count);
      state.device().CopyToDevice(part.data + done, values.data(),
                                  count * static_cast<int64_t>(sizeof(float)));
    }
  }
  return CheckEveryTensorIsKnown(folder, path, state.ledger().inventory());
}

}  // namespace trainctl::trainer
