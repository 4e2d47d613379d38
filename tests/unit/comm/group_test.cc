#include "comm/group.h"

#include <c10/util/BFloat16.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "tests/unit/comm/forked_ranks.h"

namespace trainctl::comm {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;

// Memory of a device that starts as `values` say.
template <typename T>
class Buffer {
 public:
  Buffer(const device::Device& device, const std::vector<T>& values)
      : device_(device),
        tensor_(at::zeros({static_cast<int64_t>(values.size() * sizeof(T)) + 1}, device.Options(at::kByte))),
        count_(values.size()) {
    if (count_ > 0) device.CopyToDevice(data(), values.data(), bytes());
  }
  Buffer(const device::Device& device, size_t count) : Buffer(device, std::vector<T>(count)) {}

  T* data() { return static_cast<T*>(tensor_.data_ptr()); }
  int64_t bytes() const { return static_cast<int64_t>(count_ * sizeof(T)); }
  absl::Span<uint8_t> span() { return {static_cast<uint8_t*>(tensor_.data_ptr()), count_ * sizeof(T)}; }
  std::vector<T> Read() {
    std::vector<T> values(count_);
    if (count_ > 0) device_.CopyToHost(values.data(), data(), bytes());
    return values;
  }

 private:
  const device::Device& device_;
  at::Tensor tensor_;
  size_t count_;
};

void Require(const absl::Status& status) { EXPECT_TRUE(status.ok()) << status; }

Group GroupOf(Rank& rank, std::vector<int> ranks) {
  auto group = rank.communicator.MakeGroup(std::move(ranks), "tp");
  EXPECT_TRUE(group.ok()) << group.status();
  return *std::move(group);
}

struct Place {
  int world;
  bool on_device;
};
class OfWorld : public ::testing::TestWithParam<Place> {
 protected:
  static void Run(const Body& body) { OnEveryRank(GetParam().world, GetParam().on_device, body); }
};
INSTANTIATE_TEST_SUITE_P(Hosts, OfWorld,
                         ::testing::Values(Place{1, false}, Place{2, false}, Place{3, false},
                                           Place{4, false}));
INSTANTIATE_TEST_SUITE_P(Devices, OfWorld, ::testing::Values(Place{1, true}, Place{2, true}, Place{3, true}));

// ---- collectives without sums -------------------------------------------------------------------

TEST_P(OfWorld, AGatherHasTheShardOfEveryRank) {
  Run([](Rank& rank) {
    Group group = GroupOf(rank, rank.Everyone());
    std::vector<int32_t> shards(static_cast<size_t>(3 * rank.world), -1), wanted;
    for (int k = 0; k < 3; ++k) shards[static_cast<size_t>(3 * rank.index + k)] = 10 * rank.index + k;
    for (int i = 0; i < 3 * rank.world; ++i) wanted.push_back(10 * (i / 3) + i % 3);
    Buffer<int32_t> buffer(rank.device, shards);
    Require(group.AllGather("shards", buffer.data(), 3 * sizeof(int32_t)));
    EXPECT_EQ(buffer.Read(), wanted);
  });
}

TEST_P(OfWorld, ABroadcastIsThatOfItsRoot) {
  Run([](Rank& rank) {
    Group group = GroupOf(rank, rank.Everyone());
    for (int root = 0; root < rank.world; ++root) {
      Buffer<int32_t> buffer(rank.device, std::vector<int32_t>(1000, rank.index));
      Require(group.Broadcast("words", buffer.data(), buffer.bytes(), root));
      EXPECT_THAT(buffer.Read(), Each(root));
    }
  });
}

// From rank i to rank j, none at all for some.
int64_t BytesBetween(int i, int j) { return i == j + 1 ? 0 : 1 + 3 * i + 5 * j; }
uint8_t ByteBetween(int i, int j, int64_t k) { return static_cast<uint8_t>(64 * i + 16 * j + k); }

TEST_P(OfWorld, EachPieceOfAnExchangeArrivesWhereItShould) {
  Run([](Rank& rank) {
    Group group = GroupOf(rank, rank.Everyone());
    std::vector<int64_t> in_bytes, out_bytes;
    std::vector<uint8_t> in, wanted;
    for (int j = 0; j < rank.world; ++j) {
      in_bytes.push_back(BytesBetween(rank.index, j));
      out_bytes.push_back(BytesBetween(j, rank.index));
      for (int64_t k = 0; k < in_bytes.back(); ++k) in.push_back(ByteBetween(rank.index, j, k));
      for (int64_t k = 0; k < out_bytes.back(); ++k) wanted.push_back(ByteBetween(j, rank.index, k));
    }
    Buffer<uint8_t> source(rank.device, in), target(rank.device, wanted.size());
    Require(group.AllToAll("pieces", source.data(), in_bytes, target.data(), out_bytes));
    EXPECT_EQ(target.Read(), wanted);
  });
}

TEST_P(OfWorld, MessagesArriveInTheirOrder) {
  Run([](Rank& rank) {
    if (rank.world == 1) return;
    Group group = GroupOf(rank, rank.Everyone());
    // Round a ring, of sizes from nothing to more than a socket holds. The last rank receives first, so that
    // one send ends.
    const int next = (rank.index + 1) % rank.world, previous = (rank.index + rank.world - 1) % rank.world;
    for (const int64_t bytes : {int64_t{5}, int64_t{0}, int64_t{1} << 22, int64_t{5}}) {
      for (const uint8_t number : {1, 2, 3}) {
        const auto of = [&](int index) {
          return std::vector<uint8_t>(static_cast<size_t>(bytes), static_cast<uint8_t>(10 * index + number));
        };
        Buffer<uint8_t> sent(rank.device, of(rank.index)), received(rank.device, static_cast<size_t>(bytes));
        const bool receives_first = rank.index == rank.world - 1;
        if (receives_first) Require(group.Receive("message", received.data(), bytes, previous));
        Require(group.Send("message", sent.data(), bytes, next));
        if (!receives_first) Require(group.Receive("message", received.data(), bytes, previous));
        EXPECT_EQ(received.Read(), of(previous));
      }
    }
  });
}

TEST_P(OfWorld, GroupsOfSomeDoNotHearOfOthers) {
  Run([](Rank& rank) {
    std::vector<int> alike;
    for (int i = rank.index % 2; i < rank.world; i += 2) alike.push_back(i);
    Group group = GroupOf(rank, alike);
    double sum = rank.index;
    Require(group.AllReduceScalars("indices", absl::MakeSpan(&sum, 1)));
    double wanted = 0;
    for (const int i : alike) wanted += i;
    EXPECT_EQ(sum, wanted);
    // A group in which not all are: the others count it, and later ones still fit.
    if (rank.index == 0) {
      Group alone = GroupOf(rank, {0});
      EXPECT_EQ(alone.size(), 1);
    } else {
      rank.communicator.SkipGroup();
    }
    Group everyone = GroupOf(rank, rank.Everyone());
    double count = 1;
    Require(everyone.AllReduceScalars("count", absl::MakeSpan(&count, 1)));
    EXPECT_EQ(count, rank.world);
  });
}

// ---- sums and maxima ----------------------------------------------------------------------------

// Small whole numbers, so that each type has them exactly in whatever order they are added.
int ElementOf(int rank, int64_t i) { return static_cast<int>((5 * rank + 3 * i) % 13) - 6; }

template <typename T>
DType TypeOf() {
  return sizeof(T) == 8 ? DType::kF64 : sizeof(T) == 4 ? DType::kF32 : DType::kBF16;
}

template <typename T>
T Combined(const std::vector<int>& values, Combine combine) {
  int result = values[0];
  for (size_t k = 1; k < values.size(); ++k)
    result = combine == Combine::kSum ? result + values[k] : std::max(result, values[k]);
  return static_cast<T>(static_cast<float>(result));
}

template <typename T>
void CheckReductions(Rank& rank, Combine combine, size_t scratch_bytes) {
  Group group = GroupOf(rank, rank.Everyone());
  const Reduction how{TypeOf<T>(), combine};
  constexpr int64_t kShard = 37;
  const int64_t numel = rank.world * kShard;
  std::vector<T> own;
  for (int64_t i = 0; i < numel; ++i)
    own.push_back(static_cast<T>(static_cast<float>(ElementOf(rank.index, i))));
  const auto of_all = [&](int64_t i) {
    std::vector<int> values;
    for (int r = 0; r < rank.world; ++r) values.push_back(ElementOf(r, i));
    return values;
  };
  Buffer<uint8_t> scratch(rank.device, scratch_bytes);
  for (const bool accumulate : {false, true}) {
    Buffer<T> in(rank.device, own);
    Buffer<T> out(rank.device, std::vector<T>(kShard, static_cast<T>(3.0f)));
    Require(group.ReduceScatter("sum", in.data(), out.data(), kShard, accumulate, scratch.span(), how));
    std::vector<T> wanted;
    for (int64_t i = 0; i < kShard; ++i) {
      std::vector<int> values = of_all(rank.index * kShard + i);
      if (accumulate) values.push_back(3);
      wanted.push_back(Combined<T>(values, combine));
    }
    EXPECT_EQ(out.Read(), wanted);
    EXPECT_EQ(in.Read(), own);
  }
  // Shares of unequal size, and an empty one.
  for (const int64_t count : {numel - 1, int64_t{2}}) {
    Buffer<T> buffer(rank.device, std::vector<T>(own.begin(), own.begin() + count));
    Require(group.AllReduce("sum", buffer.data(), count, scratch.span(), how));
    std::vector<T> wanted;
    for (int64_t i = 0; i < count; ++i) wanted.push_back(Combined<T>(of_all(i), combine));
    EXPECT_EQ(buffer.Read(), wanted);
  }
}

TEST_P(OfWorld, SumsAndMaximaOfEveryType) {
  Run([](Rank& rank) {
    for (const Combine combine : {Combine::kSum, Combine::kMax}) {
      // A scratch for everything, and one for a few elements of each peer at a time.
      for (const size_t bytes : {size_t{4096}, size_t{80}}) {
        if (!rank.device.is_cpu() && bytes < 4096) continue;  // a device takes a whole shard at once
        CheckReductions<float>(rank, combine, bytes);
        CheckReductions<double>(rank, combine, bytes);
        CheckReductions<c10::BFloat16>(rank, combine, bytes);
      }
    }
  });
}

TEST_P(OfWorld, ScalarsAreSummedAndCompared) {
  Run([](Rank& rank) {
    Group group = GroupOf(rank, rank.Everyone());
    std::vector<double> values = {1.0 + rank.index, -rank.index / 3.0};
    Require(group.AllReduceScalars("scalars", absl::MakeSpan(values), Combine::kMax));
    EXPECT_THAT(values, ElementsAre(rank.world, 0));
    values = {1, 0.25 * rank.index};
    Require(group.AllReduceScalars("scalars", absl::MakeSpan(values)));
    EXPECT_THAT(values, ElementsAre(rank.world, 0.25 * rank.world * (rank.world - 1) / 2));
  });
}

// More ranks than send to everyone: the order of the sum is still that of the ranks, to the bit, whatever
// their number, and one sum does not take the next one's messages.
TEST(ManyRanks, ScalarsAreSummedInRankOrder) {
  for (const int world : {17, 24, 31}) {
    OnEveryRank(world, /*on_device=*/false, [](Rank& rank) {
      Group group = GroupOf(rank, rank.Everyone());
      const auto of = [](int index, int round) {
        return std::ldexp(1.0 + index / 3.0, 7 * index % 40 - round);
      };
      for (int round = 0; round < 20; ++round) {
        std::vector<double> values = {of(rank.index, round), -of(rank.index, round)};
        double sum = of(0, round);
        for (int i = 1; i < rank.world; ++i) sum += of(i, round);
        Require(group.AllReduceScalars("scalars", absl::MakeSpan(values)));
        EXPECT_THAT(values, ElementsAre(sum, -sum)) << rank.world << ' ' << round;
        values = {of(rank.index, round), -of(rank.index, round)};
        Require(group.AllReduceScalars("scalars", absl::MakeSpan(values), Combine::kMax));
        double largest = 0, smallest = 1e300;
        for (int i = 0; i < rank.world; ++i) {
          largest = std::max(largest, of(i, round));
          smallest = std::min(smallest, of(i, round));
        }
        EXPECT_THAT(values, ElementsAre(largest, -smallest)) << rank.world << ' ' << round;
      }
    });
  }
}

TEST_P(OfWorld, PlantedFaultsLeaveOutAndDouble) {
  Run([](Rank& rank) {
    if (rank.world == 1) return;
    Group group = GroupOf(rank, rank.Everyone());
    Buffer<uint8_t> scratch(rank.device, size_t{64});
    const auto sum_with = [&](Fault fault) {
      rank.communicator.SetFaultHook(
          [fault](absl::string_view name) { return name == "loss/tp" ? fault : Fault::kNone; });
      Buffer<float> in(rank.device, std::vector<float>(static_cast<size_t>(rank.world), 1.0f + rank.index));
      Buffer<float> out(rank.device, size_t{1});
      Require(group.ReduceScatter("loss", in.data(), out.data(), 1, false, scratch.span()));
      return out.Read()[0];
    };
    const float all = static_cast<float>(rank.world * (rank.world + 1)) / 2;
    EXPECT_EQ(sum_with(Fault::kNone), all);
    EXPECT_EQ(sum_with(Fault::kSkip), 1.0f + rank.index);
    EXPECT_EQ(sum_with(Fault::kDouble), 2 * all);
  });
}

TEST(CombineInOrder, SumsKeepWhatTheirTypeCanHold) {
  // 2^-40 is lost in fp32 beside 1.
  const double small = std::ldexp(1.0, -40);
  const std::vector<double> a = {1}, b = {small};
  double sum = 0;
  CombineInOrder({DType::kF64}, &sum, {a.data(), b.data()}, 1);
  EXPECT_EQ(sum, 1 + small);
  // Rounded after each addition, 256 + 1 + 1 is 256 in bf16.
  const c10::BFloat16 large = 256.0f, one = 1.0f;
  c10::BFloat16 rounded_once;
  CombineInOrder({DType::kBF16}, &rounded_once, {&large, &one, &one}, 1);
  EXPECT_EQ(static_cast<float>(rounded_once), 258.0f);
}

TEST(CombineInOrder, AMaximumDoesNotHideANaN) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> a = {nan, 1, 1}, b = {1, nan, 2}, c = {2, 2, 1};
  std::vector<float> most(3);
  CombineInOrder({DType::kF32, Combine::kMax}, most.data(), {a.data(), b.data(), c.data()}, 3);
  EXPECT_TRUE(std::isnan(most[0]));
  EXPECT_TRUE(std::isnan(most[1]));
  EXPECT_EQ(most[2], 2);
}

}  // namespace
}  // namespace trainctl::comm
