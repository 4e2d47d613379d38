#include "trainer/check_collectives.h"

#include <ATen/Parallel.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/dtype.h"
#include "base/json.h"
#include "base/status.h"
#include "base/units.h"
#include "comm/communicator.h"
#include "comm/group.h"
#include "comm/shared_device.h"
#include "device/aten.h"
#include "device/device.h"
#include "device/error_text.h"
#include "layout/mesh.h"
#include "parallel/stream.h"

namespace trainctl::trainer {
namespace {

using Bytes = std::vector<uint8_t>;

// Whole numbers from -15 to 15: their sums over 16 ranks are exact in bf16, in any order. Hundreds of
// millions are made, so they are a few multiplications (the finalizer of splitmix64).
int ValueAt(uint64_t stream, int rank, int64_t i) {
  uint64_t x = stream * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(rank) * 0xd1b54a32d192ed03 +
               static_cast<uint64_t>(i);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return static_cast<int>((x >> 33) % 31) - 15;
}

void PutValue(DType dtype, Bytes& bytes, int64_t i, float value) {
  if (dtype == DType::kBF16) {
    const c10::BFloat16 rounded(value);
    std::memcpy(&bytes[static_cast<size_t>(2 * i)], &rounded, 2);
  } else {
    std::memcpy(&bytes[static_cast<size_t>(4 * i)], &value, 4);
  }
}

// What a rank contributes: `count` elements.
Bytes ValuesOf(DType dtype, uint64_t stream, int rank, int64_t count) {
  Bytes bytes(static_cast<size_t>(count * DTypeBytes(dtype)));
  for (int64_t i = 0; i < count; ++i) PutValue(dtype, bytes, i, static_cast<float>(ValueAt(stream, rank, i)));
  return bytes;
}

// Elements [first, first + count), combined over `ranks`.
Bytes Combined(comm::Reduction how, uint64_t stream, const std::vector<int>& ranks, int64_t first,
               int64_t count) {
  Bytes bytes(static_cast<size_t>(count * DTypeBytes(how.dtype)));
  for (int64_t i = 0; i < count; ++i) {
    int result = ValueAt(stream, ranks[0], first + i);
    for (size_t k = 1; k < ranks.size(); ++k) {
      const int value = ValueAt(stream, ranks[k], first + i);
      result = how.combine == comm::Combine::kSum ? result + value : std::max(result, value);
    }
    PutValue(how.dtype, bytes, i, static_cast<float>(result));
  }
  return bytes;
}

class Checker {
 public:
  Checker(const CollectiveCheck& options, const device::Device& device, comm::Communicator& communicator)
      : options_(options), device_(device), communicator_(communicator), events_(device) {}

  absl::StatusOr<int> Run() {
    std::vector<int> everyone;
    for (int rank = 0; rank < options_.world_size; ++rank) everyone.push_back(rank);
    votes_.emplace(communicator_.MakeHostGroup(everyone, "votes"));
    // The trainer has one for gathers and one for sums, and one for the messages of each direction to each
    // stage.
    for (int i = 0; i < 4; ++i) streams_.push_back(std::make_unique<parallel::Stream>(device_, events_));
    communicator_.SetNumStreams(static_cast<int>(streams_.size()) + 1);  // and the computing stream
    TRAINCTL_RETURN_IF_ERROR(CheckScalars(everyone));
    for (const std::vector<int>& ranks : GroupsOfMeshes()) TRAINCTL_RETURN_IF_ERROR(CheckGroup(ranks));
    TRAINCTL_RETURN_IF_ERROR(CheckMessages());
    TRAINCTL_RETURN_IF_ERROR(device_.Synchronize());
    return any_wrong_ ? 1 : 0;
  }

 private:
  // This rank's group on each axis of each mesh of this world, each set of ranks once. All ranks find as
  // many, in the same order.
  std::vector<std::vector<int>> GroupsOfMeshes() const {
    std::vector<std::vector<int>> groups;
    std::set<std::vector<std::vector<int>>> seen;  // as all ranks together see them
    const int64_t world = options_.world_size;
    const auto add = [&](const layout::Mesh& mesh, layout::Axis axis) {
      if (mesh.degree(axis) == 1) return;
      std::vector<std::vector<int>> all;
      for (int rank = 0; rank < options_.world_size; ++rank) all.push_back(mesh.Group(rank, axis));
      if (seen.insert(all).second) groups.push_back(all[static_cast<size_t>(options_.rank)]);
    };
    for (int64_t tp = 1; tp <= world; ++tp) {
      for (int64_t pp = 1; world % tp == 0 && pp <= world / tp; ++pp) {
        for (int64_t shard = 1; world % (tp * pp) == 0 && shard <= world / (tp * pp); ++shard) {
          if (world % (tp * pp * shard) != 0) continue;
          const layout::Mesh mesh{
              .pp = pp, .dp_replicate = world / (tp * pp * shard), .dp_shard = shard, .tp = tp};
          for (const layout::Axis axis :
               {layout::Axis::kPp, layout::Axis::kDpReplicate, layout::Axis::kDpShard, layout::Axis::kTp}) {
            add(mesh, axis);
          }
        }
      }
    }
    return groups;
  }

  std::vector<int64_t> Sizes() const {
    std::vector<int64_t> sizes;
    for (const int64_t bytes : {int64_t{4}, int64_t{1000}, int64_t{1} << 18, int64_t{64} << 20})
      if (sizes.empty() || sizes.back() < options_.max_bytes)
        sizes.push_back(std::min(bytes, options_.max_bytes));
    return sizes;
  }

  // ---- running a check ------------------------------------------------------------------------

  at::Tensor OnDevice(const Bytes& bytes) const {
    at::Tensor tensor = at::empty({static_cast<int64_t>(bytes.size())}, device_.Options(at::kByte));
    device_.CopyToDevice(tensor.data_ptr(), bytes.data(), static_cast<int64_t>(bytes.size()));
    return tensor;
  }
  at::Tensor Room(int64_t bytes) const { return OnDevice(Bytes(static_cast<size_t>(bytes), 0xa5)); }
  static absl::Span<uint8_t> SpanOf(const at::Tensor& tensor) {
    return {static_cast<uint8_t*>(tensor.data_ptr()), static_cast<size_t>(tensor.nbytes())};
  }

  // Each on the stream of its number, after what the calling thread has queued; then the calling thread's
  // stream waits for all. One at a time they are queued in that order, as a device's library must hear of
  // them.
  absl::Status OnStreams(std::vector<std::function<absl::Status()>> works) {
    const int begin = static_cast<int>(works.size());
    events_.Reset(works.size() + 1);
    events_.Record(begin);
    int turn = parallel::Stream::kNoEvent;
    std::vector<int> ends;
    for (size_t i = 0; i < works.size(); ++i) {
      streams_[i]->Launch({begin}, static_cast<int>(i), std::move(works[i]), turn);
      if (!device_.is_cpu()) turn = static_cast<int>(i);
      ends.push_back(static_cast<int>(i));
    }
    for (size_t i = 0; i < works.size(); ++i) streams_[i]->Drain();
    return events_.Wait(ends);
  }

  bool Holds(const at::Tensor& got, const Bytes& wanted) const {
    Bytes bytes(wanted.size());
    device_.CopyToHost(bytes.data(), got.data_ptr(), static_cast<int64_t>(bytes.size()));
    if (options_.plants_error == options_.rank && !bytes.empty()) bytes[bytes.size() / 2] ^= 1;
    return bytes == wanted;
  }

  // Collective over the world: rank 0 says on how many ranks it holds.
  absl::Status Say(const std::string& name, bool holds) {
    double wrong = holds ? 0 : 1;
    TRAINCTL_RETURN_IF_ERROR(votes_->AllReduceScalars("votes", absl::MakeSpan(&wrong, 1)));
    any_wrong_ = any_wrong_ || wrong > 0;
    if (options_.rank != 0) return absl::OkStatus();
    Json line = {{"check", name}, {"ok", wrong == 0}};
    if (wrong > 0) line["wrong_ranks"] = wrong;
    std::printf("%s\n", FormatJson(line).c_str());
    std::fflush(stdout);
    return absl::OkStatus();
  }

  // Runs on the computing stream, as tensor parallelism does, or on its own stream.
  absl::Status RunOn(bool computing, const std::function<absl::Status()>& run) {
    return computing ? run() : OnStreams({run});
  }

  // ---- the checks -----------------------------------------------------------------------------

  absl::Status CheckScalars(const std::vector<int>& everyone) {
    double sum[] = {1.0 + options_.rank, 0.5}, largest = options_.rank;
    const double n = options_.world_size;
    TRAINCTL_RETURN_IF_ERROR(votes_->AllReduceScalars("sum", sum));
    TRAINCTL_RETURN_IF_ERROR(
        votes_->AllReduceScalars("largest", absl::MakeSpan(&largest, 1), comm::Combine::kMax));
    return Say("scalar sums and maxima over hosts",
               sum[0] == n * (n + 1) / 2 && sum[1] == n / 2 && largest == everyone.back());
  }

  absl::Status CheckGroup(const std::vector<int>& ranks) {
    TRAINCTL_ASSIGN_OR_RETURN(comm::Group group, communicator_.MakeGroup(ranks, "check"));
    const std::string of = absl::StrCat(ranks.size(), " ranks (", absl::StrJoin(ranks, " "), " on rank 0)");
    for (const int64_t bytes : Sizes()) {
      const bool is_large = bytes > (int64_t{1} << 24);  // what takes long is checked once
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        if (is_large && dtype != DType::kF32) continue;
        const int64_t count = bytes / DTypeBytes(dtype);
        const std::string what = absl::StrCat(DTypeName(dtype), ", ", FormatBytes(bytes), ", ", of);
        for (const bool computing : {false, true}) {
          if (is_large && computing) continue;
          const std::string where = computing ? ", computing stream" : "";
          TRAINCTL_RETURN_IF_ERROR(AllGather(group, ranks, dtype, count, computing, what + where));
          TRAINCTL_RETURN_IF_ERROR(
              AllReduce(group, ranks, {dtype, comm::Combine::kSum}, count, computing, what + where));
          TRAINCTL_RETURN_IF_ERROR(ReduceScatter(group, ranks, {dtype, comm::Combine::kSum}, count, false,
                                                 computing, what + where));
        }
        TRAINCTL_RETURN_IF_ERROR(
            ReduceScatter(group, ranks, {dtype, comm::Combine::kSum}, count, true, false, what));
        TRAINCTL_RETURN_IF_ERROR(AllReduce(group, ranks, {dtype, comm::Combine::kMax}, count, true, what));
      }
      TRAINCTL_RETURN_IF_ERROR(Broadcast(group, ranks, bytes, absl::StrCat(FormatBytes(bytes), ", ", of)));
      TRAINCTL_RETURN_IF_ERROR(AllToAll(group, ranks, bytes, absl::StrCat(FormatBytes(bytes), ", ", of)));
    }
    return group.Close();
  }

  absl::Status AllGather(comm::Group& group, const std::vector<int>& ranks, DType dtype, int64_t count,
                         bool computing, const std::string& what) {
    const int64_t shard = count * DTypeBytes(dtype);
    Bytes wanted, given(static_cast<size_t>(shard * group.size()), 0xa5);
    for (const int rank : ranks) {
      const Bytes part = ValuesOf(dtype, ++stream_, rank, count);
      wanted.insert(wanted.end(), part.begin(), part.end());
      if (rank == options_.rank) std::copy(part.begin(), part.end(), given.begin() + group.index() * shard);
    }
    const at::Tensor buffer = OnDevice(given);
    TRAINCTL_RETURN_IF_ERROR(
        RunOn(computing, [&] { return group.AllGather("all_gather", buffer.data_ptr(), shard); }));
    return Say("all-gather " + what, Holds(buffer, wanted));
  }

  absl::Status AllReduce(comm::Group& group, const std::vector<int>& ranks, comm::Reduction how,
                         int64_t count, bool computing, const std::string& what) {
    const uint64_t stream = ++stream_;
    const at::Tensor buffer = OnDevice(ValuesOf(how.dtype, stream, options_.rank, count));
    const at::Tensor scratch = Room(ScratchBytes(count * DTypeBytes(how.dtype), group.size()));
    TRAINCTL_RETURN_IF_ERROR(RunOn(computing, [&] {
      return group.AllReduce("all_reduce", buffer.data_ptr(), count, SpanOf(scratch), how);
    }));
    const char* const name = how.combine == comm::Combine::kSum ? "all-reduce " : "all-reduce of maxima ";
    return Say(name + what, Holds(buffer, Combined(how, stream, ranks, 0, count)));
  }

  absl::Status ReduceScatter(comm::Group& group, const std::vector<int>& ranks, comm::Reduction how,
                             int64_t count, bool accumulate, bool computing, const std::string& what) {
    const uint64_t stream = ++stream_;
    const int64_t shard = std::max<int64_t>(count / group.size(), 1),
                  shard_bytes = shard * DTypeBytes(how.dtype);
    const at::Tensor in = OnDevice(ValuesOf(how.dtype, stream, options_.rank, shard * group.size()));
    Bytes wanted = Combined(how, stream, ranks, group.index() * shard, shard);
    // With `accumulate`, `out` already holds this rank's first values.
    at::Tensor out = Room(shard_bytes);
    if (accumulate) {
      out = OnDevice(ValuesOf(how.dtype, stream, options_.rank, shard));
      for (int64_t i = 0; i < shard; ++i) {
        int sum = ValueAt(stream, options_.rank, i);
        for (const int rank : ranks) sum += ValueAt(stream, rank, group.index() * shard + i);
        PutValue(how.dtype, wanted, i, static_cast<float>(sum));
      }
    }
    const at::Tensor scratch = Room(std::max(shard_bytes, ScratchBytes(shard_bytes, group.size())));
    TRAINCTL_RETURN_IF_ERROR(RunOn(computing, [&] {
      return group.ReduceScatter("reduce_scatter", in.data_ptr(), out.data_ptr(), shard, accumulate,
                                 SpanOf(scratch), how);
    }));
    return Say(absl::StrCat(accumulate ? "reduce-scatter added " : "reduce-scatter ", what),
               Holds(out, wanted));
  }

  absl::Status Broadcast(comm::Group& group, const std::vector<int>& ranks, int64_t bytes,
                         const std::string& what) {
    bool holds = true;
    const int64_t count = bytes / DTypeBytes(DType::kF32);
    for (int root = 0; root < group.size(); ++root) {
      const uint64_t stream = ++stream_;
      const at::Tensor buffer = OnDevice(ValuesOf(DType::kF32, stream, options_.rank, count));
      TRAINCTL_RETURN_IF_ERROR(OnStreams({[&] {
        return group.Broadcast("broadcast", buffer.data_ptr(), count * DTypeBytes(DType::kF32), root);
      }}));
      holds = Holds(buffer, ValuesOf(DType::kF32, stream, ranks[static_cast<size_t>(root)], count)) && holds;
    }
    return Say(absl::StrCat("broadcast from each rank, ", what), holds);
  }

  // Pieces of uneven length, some of them empty.
  absl::Status AllToAll(comm::Group& group, const std::vector<int>& ranks, int64_t bytes,
                        const std::string& what) {
    const uint64_t stream = ++stream_;
    const int size = group.size(), own = group.index();
    const auto elements = [&](int from, int to) {
      return (from + 2 * to) % 3 * std::max<int64_t>(1, bytes / (3 * size * DTypeBytes(DType::kF32)));
    };
    std::vector<int64_t> in_bytes, out_bytes;
    int64_t sent = 0;
    Bytes wanted;
    for (int k = 0; k < size; ++k) {
      in_bytes.push_back(elements(own, k) * DTypeBytes(DType::kF32));
      out_bytes.push_back(elements(k, own) * DTypeBytes(DType::kF32));
      sent += elements(own, k);
      // The piece for this rank, of everything that rank k sends.
      int64_t before = 0;
      for (int to = 0; to < own; ++to) before += elements(k, to);
      const Bytes theirs =
          ValuesOf(DType::kF32, stream, ranks[static_cast<size_t>(k)], before + elements(k, own));
      wanted.insert(wanted.end(), theirs.begin() + before * DTypeBytes(DType::kF32), theirs.end());
    }
    const at::Tensor in = OnDevice(ValuesOf(DType::kF32, stream, options_.rank, sent));
    const at::Tensor out = Room(static_cast<int64_t>(wanted.size()));
    TRAINCTL_RETURN_IF_ERROR(OnStreams(
        {[&] { return group.AllToAll("all_to_all", in.data_ptr(), in_bytes, out.data_ptr(), out_bytes); }}));
    return Say("all-to-all of uneven and empty pieces, " + what, Holds(out, wanted));
  }

  // A ring: each rank sends to the next one and receives from the one before, several messages in each
  // direction at once, as stages of a pipeline do. Each direction between two ranks has its own group, as in
  // parallel::Groups.
  absl::Status CheckMessages() {
    constexpr int kMessages = 4;
    const int world = options_.world_size, rank = options_.rank;
    const int next = (rank + 1) % world, before = (rank + world - 1) % world;
    std::vector<comm::Group> forward, backward;  // those of this rank: to the next, from the one before
    const auto make = [&](int from, int to, std::vector<comm::Group>& mine) -> absl::Status {
      if (rank != from && rank != to) {
        communicator_.SkipGroup();
        return absl::OkStatus();
      }
      TRAINCTL_ASSIGN_OR_RETURN(comm::Group made, communicator_.MakeGroup({from, to}, "messages"));
      TRAINCTL_RETURN_IF_ERROR(made.ConnectMessages());
      mine.push_back(std::move(made));
      return absl::OkStatus();
    };
    // In this order on every rank.
    std::vector<int> senders;
    for (int from = 0; from < world; ++from) {
      const size_t had = forward.size();
      TRAINCTL_RETURN_IF_ERROR(make(from, (from + 1) % world, forward));
      if (forward.size() > had) senders.push_back(from);
      TRAINCTL_RETURN_IF_ERROR(make((from + 1) % world, from, backward));
    }
    const auto group = [&](std::vector<comm::Group>& groups, int from) -> comm::Group& {
      return groups[static_cast<size_t>(std::find(senders.begin(), senders.end(), from) - senders.begin())];
    };
    for (const int64_t bytes : Sizes()) {
      const int64_t count = bytes / DTypeBytes(DType::kF32);
      const uint64_t up = ++stream_, down = ++stream_;
      std::vector<at::Tensor> sent_up, sent_down, got_up, got_down;
      const auto values = [&](uint64_t stream, int from, int k) {
        return ValuesOf(DType::kF32, stream + (static_cast<uint64_t>(k) << 32), from, count);
      };
      for (int k = 0; k < kMessages; ++k) {
        sent_up.push_back(OnDevice(values(up, rank, k)));
        sent_down.push_back(OnDevice(values(down, rank, k)));
        got_up.push_back(Room(bytes));
        got_down.push_back(Room(bytes));
      }
      const auto each = [&](const std::function<absl::Status(size_t)>& one) -> absl::Status {
        for (size_t k = 0; k < kMessages; ++k) TRAINCTL_RETURN_IF_ERROR(one(k));
        return absl::OkStatus();
      };
      const auto send = [&](comm::Group& to, std::vector<at::Tensor>& from) {
        return each([&](size_t k) { return to.Send("send", from[k].data_ptr(), bytes, 1); });
      };
      const auto receive = [&](comm::Group& from, std::vector<at::Tensor>& to) {
        return each([&](size_t k) { return from.Receive("receive", to[k].data_ptr(), bytes, 0); });
      };
      TRAINCTL_RETURN_IF_ERROR(OnStreams({[&] { return send(group(forward, rank), sent_up); },
                                          [&] { return receive(group(forward, before), got_up); },
                                          [&] { return send(group(backward, before), sent_down); },
                                          [&] { return receive(group(backward, rank), got_down); }}));
      bool holds = true;
      for (int k = 0; k < kMessages; ++k) {
        holds = Holds(got_up[static_cast<size_t>(k)], values(up, before, k)) && holds;
        holds = Holds(got_down[static_cast<size_t>(k)], values(down, next, k)) && holds;
      }
      TRAINCTL_RETURN_IF_ERROR(Say(absl::StrCat("ring of messages in both directions at once, ", kMessages,
                                                " of ", FormatBytes(bytes), " each"),
                                   holds));
    }
    return absl::OkStatus();
  }

  // A whole number of elements for each peer.
  static int64_t ScratchBytes(int64_t bytes, int size) { return std::max<int64_t>(bytes, 64 * size); }

  const CollectiveCheck& options_;
  const device::Device& device_;
  comm::Communicator& communicator_;
  std::optional<comm::Group> votes_;
  parallel::EventSet events_;
  std::vector<std::unique_ptr<parallel::Stream>> streams_;
  uint64_t stream_ = 0;  // of random values
  bool any_wrong_ = false;
};

}  // namespace

absl::StatusOr<int> CheckCollectives(const CollectiveCheck& options) {
  try {
    at::set_num_threads(1);
    std::unique_ptr<const device::Device> opened;
    if (!options.plugin_path.empty()) {
      comm::SetUpSharedDevice(options.rank);
      TRAINCTL_ASSIGN_OR_RETURN(
          opened, device::Device::Open(options.plugin_path,
                                       {.ordinal = options.rank, .deterministic = true, .is_shared = true}));
      opened->UseNewStream();
    }
    const device::Device& device = opened ? *opened : device::Device::Cpu();
    TRAINCTL_ASSIGN_OR_RETURN(
        const auto communicator,
        comm::Communicator::Create(
            device, c10::make_intrusive<c10d::FileStore>(options.store_path, options.world_size),
            options.rank, options.world_size, options.timeout));
    return Checker(options, device, *communicator).Run();
  } catch (const std::exception& error) {
    return WorkerError(absl::StrCat("rank ", options.rank, ": ", device::ErrorText(error)));
  }
}

}  // namespace trainctl::trainer
