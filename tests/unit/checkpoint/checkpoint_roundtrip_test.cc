// What one layout writes another reads.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/checkpoint/checkpoint_test_util.h"

namespace trainctl::checkpoint {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI64,
                             DType::kI32, DType::kU16, DType::kU8,   DType::kBool};

// Cuts each tensor again and again along a random dimension, or in ranges of the flattened tensor as the
// shards of a bucket do, and deals the boxes to `num_owners`.
std::vector<std::vector<Slice>> RandomCuts(const std::vector<Slice>& tensors, int num_owners, uint64_t seed) {
  std::vector<std::vector<Slice>> owned(num_owners);
  uint64_t draw = 0;
  const auto below = [&](int64_t bound) {
    return static_cast<int64_t>(RandomBelow(seed, 77, draw++, static_cast<uint64_t>(bound)));
  };
  for (const Slice& tensor : tensors) {
    std::vector<layout::Box> boxes = {tensor.box};
    const bool in_ranges = below(2) == 0;
    if (in_ranges && tensor.count() > 0) {
      std::vector<int64_t> cuts = {0, tensor.count()};
      for (int64_t i = below(5); i > 0; --i) cuts.push_back(below(tensor.count() + 1));
      std::sort(cuts.begin(), cuts.end());
      boxes.clear();
      for (size_t i = 0; i + 1 < cuts.size(); ++i) {
        for (layout::Box& box : layout::BoxesOfRange(tensor.shape, cuts[i], cuts[i + 1] - cuts[i]))
          boxes.push_back(std::move(box));
      }
    }
    for (int64_t i = below(6); i > 0 && !in_ranges && !tensor.shape.empty(); --i) {
      layout::Box& box = boxes[static_cast<size_t>(below(static_cast<int64_t>(boxes.size())))];
      const size_t d = static_cast<size_t>(below(static_cast<int64_t>(tensor.shape.size())));
      layout::Box rest = box;
      box.dims[d].end = rest.dims[d].begin = box.dims[d].begin + below(box.dims[d].count() + 1);
      boxes.push_back(std::move(rest));
    }
    for (const layout::Box& box : boxes) {
      Slice part = tensor;
      part.box = box;
      if (part.count() > 0 || tensor.count() == 0)
        owned[static_cast<size_t>(below(num_owners))].push_back(std::move(part));
    }
  }
  return owned;
}

TEST(CheckpointRoundTrip, AnyCutsOverWritersAreReadBackByAnyOtherCuts) {
  for (uint64_t seed = 1; seed <= 24; ++seed) {
    SCOPED_TRACE(seed);
    TempFolder folder;
    uint64_t draw = 0;
    const auto below = [&](uint64_t bound) { return RandomBelow(seed, 5, draw++, bound); };
    std::vector<Slice> tensors;
    for (uint64_t i = 0, count = 1 + below(12); i < count; ++i) {
      std::vector<int64_t> shape;
      for (uint64_t dim = below(4); dim > 0; --dim) shape.push_back(static_cast<int64_t>(below(30)));
      tensors.push_back(Whole(absl::StrCat("layer.", i, "/\"quoted\" ü"), kDTypes[below(9)], shape));
    }
    // One of several chunks, so that ranges begin and end inside chunks.
    tensors.push_back(Whole("large", kDTypes[below(9)], {3, 150'000 + static_cast<int64_t>(below(50'000))}));
    const std::string root = folder.path() + "/checkpoints";
    const absl::Status saved = Save(root, 7, RandomCuts(tensors, 1 + static_cast<int>(below(5)), seed), seed);
    ASSERT_TRUE(saved.ok()) << saved;

    const auto reader = CheckpointReader::Open(StepPath(root, 7));
    ASSERT_TRUE(reader.ok()) << reader.status();
    EXPECT_EQ(reader->tensors().size(), tensors.size());
    EXPECT_TRUE(reader->Verify().ok());
    for (const std::vector<Slice>& slices :
         RandomCuts(tensors, 1 + static_cast<int>(below(5)), seed + 1000)) {
      ExpectContents(*reader, slices, seed);
    }
  }
}

TEST(CheckpointRoundTrip, StateAndTensorListComeBack) {
  TempFolder folder;
  const std::string state = R"({"rng":18446744073709551615,"lr":0.1,"names":["a","ü"],"deep":{"x":[1,2]}})";
  const std::vector<Slice> tensors = {Whole("w", DType::kBF16, {4, 3}), Whole("scalar", DType::kF32, {}),
                                      Whole("empty", DType::kF32, {0, 5})};
  ASSERT_TRUE(Save(folder.path(), 3, {tensors}, 1, nullptr, state).ok());
  const auto reader = CheckpointReader::Open(StepPath(folder.path(), 3));
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->meta().step, 3);
  EXPECT_EQ(reader->meta().state_json, state);
  EXPECT_EQ(reader->world_size(), 1);
  ASSERT_NE(reader->Find("empty"), nullptr);
  EXPECT_EQ(reader->Find("empty")->count(), 0);
  EXPECT_THAT(reader->Find("w")->shape, ElementsAre(4, 3));
  EXPECT_EQ(reader->Find("scalar")->count(), 1);
  EXPECT_EQ(reader->Find("none"), nullptr);
}

TEST(CheckpointRoundTrip, TheSameSaveGivesTheSameBytes) {
  TempFolder folder;
  const std::vector<std::vector<Slice>> slices =
      RandomCuts({Whole("a", DType::kF32, {100}), Whole("b", DType::kBF16, {7, 9})}, 3, 9);
  ASSERT_TRUE(Save(folder.path() + "/x", 1, slices, 4).ok());
  ASSERT_TRUE(Save(folder.path() + "/y", 1, slices, 4).ok());
  for (const char* name : {"manifest.json", "rank-00000.safetensors", "rank-00002.safetensors"}) {
    const auto x = ReadFile(StepPath(folder.path() + "/x", 1) + "/" + name);
    const auto y = ReadFile(StepPath(folder.path() + "/y", 1) + "/" + name);
    ASSERT_TRUE(x.ok() && y.ok());
    EXPECT_EQ(*x, *y) << name;
  }
}

TEST(CheckpointRoundTrip, AGapAnOverlapAndADisagreementAreRefusedByName) {
  TempFolder folder;
  const Slice whole = Whole("layers.0.weight", DType::kF32, {10});
  const auto part = [&](int64_t begin, int64_t count) { return PartOf(whole, begin, count); };
  const auto refused = [&](const std::vector<std::vector<Slice>>& slices) {
    const absl::Status status = Save(folder.path(), 1, slices, 1);
    EXPECT_EQ(ExitCodeFor(status), ExitCode::kInternal) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("'layers.0.weight'"));
    EXPECT_TRUE(ListCheckpoints(folder.path())->empty());
    return std::string(status.message());
  };
  EXPECT_THAT(refused({{part(0, 4)}, {part(5, 5)}}), HasSubstr("no rank wrote 1 of its 10 elements"));
  EXPECT_THAT(refused({{part(0, 4)}, {part(4, 5)}}), HasSubstr("no rank wrote 1 of its 10 elements"));
  EXPECT_THAT(refused({{part(1, 4)}, {part(5, 5)}}), HasSubstr("no rank wrote 1 of its 10 elements"));
  EXPECT_THAT(refused({{part(0, 6)}, {part(5, 5)}}),
              HasSubstr("[5:6] were written by both rank 0 and rank 1"));
  EXPECT_THAT(refused({{part(0, 10)}, {part(0, 10)}}), HasSubstr("both rank 0 and rank 1"));
  EXPECT_THAT(refused({{part(0, 5)}, {Slice{whole.name, DType::kF32, {5, 2}, {{{2, 5}, {0, 2}}}}}}),
              HasSubstr("[5, 2]"));
  EXPECT_THAT(refused({{part(8, 3)}}), HasSubstr("does not lie within [10]"));
  EXPECT_THAT(refused({{part(-1, 3)}}), HasSubstr("does not lie within [10]"));
  EXPECT_TRUE(Save(folder.path(), 1, {{part(0, 5)}, {part(5, 5)}}, 1).ok());
}

TEST(CheckpointRoundTrip, AnOverlapOfBoxesIsNamed) {
  TempFolder folder;
  Slice columns = Whole("w", DType::kF32, {4, 6}), others = columns;
  columns.box.dims[1] = {0, 4};
  others.box.dims[1] = {4, 6};
  EXPECT_TRUE(Save(folder.path(), 1, {{columns}, {others}}, 1).ok());
  others.box.dims = {{2, 4}, {3, 6}};
  EXPECT_THAT(std::string(Save(folder.path(), 2, {{columns}, {others}}, 1).message()),
              HasSubstr("'w': elements [2:4, 3:4] were written by both rank 0 and rank 1"));
  others.box.dims = {{0, 3}, {4, 6}};
  EXPECT_THAT(std::string(Save(folder.path(), 2, {{columns}, {others}}, 1).message()),
              HasSubstr("no rank wrote 2 of its 24 elements"));
}

// Any reader of safetensors sees what a rank's file holds: row-major boxes under names that say which.
TEST(CheckpointRoundTrip, ARankFileHoldsItsBoxesRowMajor) {
  TempFolder folder;
  const std::vector<std::vector<Slice>> ranks = TwoRanks();
  ASSERT_TRUE(Save(folder.path(), 1, ranks, 3).ok());
  const std::string file = ReadOrDie(StepPath(folder.path(), 1) + "/rank-00001.safetensors");
  const auto* bytes = reinterpret_cast<const std::byte*>(file.data());
  const int64_t length = *ParseSafetensorsLength({bytes, 8}, static_cast<int64_t>(file.size()), "file");
  const auto header = ParseSafetensorsHeader(file.substr(8, static_cast<size_t>(length)),
                                             static_cast<int64_t>(file.size()), "file");
  ASSERT_TRUE(header.ok()) << header.status();
  ASSERT_EQ(header->tensors.size(), 1u);
  EXPECT_EQ(header->tensors[0].name, "embed[0:6, 3:5]");
  EXPECT_THAT(header->tensors[0].shape, ElementsAre(6, 2));
  int64_t wrong = 0;
  for (int64_t row = 0; row < 6; ++row) {
    for (int64_t i = 0; i < 2 * 4; ++i) {
      const std::byte byte = bytes[header->data_offset + row * 2 * 4 + i];
      wrong += byte != ExpectedByte(3, StreamOf("embed"), (row * 5 + 3) * 4 + i);
    }
  }
  EXPECT_EQ(wrong, 0);
}

TEST(CheckpointRoundTrip, ReadingWithAnotherTypeOrShapeOrBeyondTheEndIsRefused) {
  TempFolder folder;
  ASSERT_TRUE(Save(folder.path(), 1, {{Whole("w", DType::kF32, {10})}}, 1).ok());
  const auto reader = CheckpointReader::Open(StepPath(folder.path(), 1));
  ASSERT_TRUE(reader.ok());
  const auto read = [&](const Slice& slice) {
    return reader->Read({slice}, [](size_t, int64_t, absl::Span<const std::byte>) {
      ADD_FAILURE() << "bytes were handed out";
      return absl::OkStatus();
    });
  };
  EXPECT_EQ(ExitCodeFor(read(Whole("w", DType::kBF16, {10}))), ExitCode::kBadData);
  EXPECT_EQ(ExitCodeFor(read(Whole("w", DType::kF32, {5, 2}))), ExitCode::kBadData);
  EXPECT_EQ(ExitCodeFor(read(Whole("v", DType::kF32, {10}))), ExitCode::kBadData);
  EXPECT_EQ(ExitCodeFor(read(PartOf(Whole("w", DType::kF32, {10}), 8, 3))), ExitCode::kInternal);
}

TEST(CheckpointRoundTrip, AnErrorOfTheCallersReaderEndsTheSave) {
  TempFolder folder;
  CheckpointWriter writer(folder.path(), 1, 0, 1);
  ASSERT_TRUE(writer.Begin().ok());
  const absl::Status status =
      writer.Write({Whole("w", DType::kF32, {10})},
                   [](size_t, int64_t, absl::Span<std::byte>) { return InternalError("device lost"); });
  EXPECT_EQ(status.message(), "device lost");
  EXPECT_FALSE(writer.Commit({1, "{}"}).ok());
  EXPECT_TRUE(ListCheckpoints(folder.path())->empty());
}

TEST(CheckpointRoundTrip, CommitTwiceIsOnce) {
  TempFolder folder;
  CheckpointWriter writer(folder.path(), 1, 0, 1);
  ASSERT_TRUE(writer.Begin().ok());
  const std::vector<Slice> slices = {Whole("w", DType::kF32, {10})};
  ASSERT_TRUE(writer.Write(slices, ContentsOf(slices, 2)).ok());
  EXPECT_TRUE(writer.Commit({1, "{}"}).ok());
  EXPECT_TRUE(writer.Commit({1, "{}"}).ok());
  EXPECT_TRUE(CheckpointReader::Open(StepPath(folder.path(), 1))->Verify().ok());
}

}  // namespace
}  // namespace trainctl::checkpoint
