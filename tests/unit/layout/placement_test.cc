// Who holds, writes, sums and counts which element, over random meshes: each rule against a count of the
// elements themselves.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/counter_rng.h"
#include "layout/ledger.h"

namespace trainctl::layout {
namespace {

using ::testing::ElementsAre;

// A small model on a random mesh. Odd sizes, so that nothing divides.
struct Case {
  explicit Case(uint64_t seed)
      : spec(Spec(Below(seed, 0, 2) == 1)),
        inventory(model::Inventory(spec)),
        mesh{.pp = 1 + Below(seed, 1, 3),
             .dp_replicate = 1 + Below(seed, 2, 3),
             .dp_shard = 1 + Below(seed, 3, 4),
             .cp = 1 + Below(seed, 4, 2),
             .tp = 1 + Below(seed, 5, 4)},
        ledger(inventory, mesh, mesh.dp_shard > 1 ? 3 : 0, Owners(seed),
               /*sequence_parallel=*/Below(seed, 6, 4) > 0) {}

  static int Below(uint64_t seed, uint64_t draw, int bound) {
    return static_cast<int>(RandomBelow(seed, 21, draw, static_cast<uint64_t>(bound)));
  }
  static model::Architecture Spec(bool tied) {
    model::Architecture spec;
    SetNumLayers(spec, 3);
    spec.hidden = 10;
    SetEach(spec, &model::Attention::heads, 3);
    SetEach(spec, &model::Attention::kv_heads, 1);
    SetEach(spec, &model::Attention::head_dim, 6);
    SetEach(spec, &model::Mlp::ffn, 7);
    spec.vocab = 13;
    spec.tie_embeddings = tied;
    SetEach(spec, &model::Attention::qkv_bias, true);
    SetEach(spec, &model::Attention::out_bias, true);
    return spec;
  }
  // Each block on one coordinate or, where two copies of the model run, on two.
  std::vector<std::vector<int>> Owners(uint64_t seed) const {
    if (mesh.pp == 1 && Below(seed, 7, 2) == 0) return {};
    std::vector<std::vector<int>> owners;
    const bool two_copies = mesh.pp > 1 && Below(seed, 8, 2) == 0;
    for (int block = 0; block < model::NumBlocks(spec); ++block) {
      const int first = Below(seed, 100 + static_cast<uint64_t>(block), mesh.pp);
      owners.push_back({first});
      if (two_copies && mesh.pp - 1 - first != first) owners.back().push_back(mesh.pp - 1 - first);
      std::sort(owners.back().begin(), owners.back().end());
    }
    return owners;
  }
  std::string ToString() const { return absl::StrCat(mesh.ToString(), spec.tie_embeddings ? ", tied" : ""); }

  model::Architecture spec;
  std::vector<model::Parameter> inventory;
  Mesh mesh;
  Ledger ledger;
};

// Each element of the model, counted.
class Counts {
 public:
  explicit Counts(const std::vector<model::Parameter>& inventory) : inventory_(inventory) {
    for (const model::Parameter& parameter : inventory)
      times_.emplace_back(static_cast<size_t>(parameter.numel), 0);
  }
  void Add(int parameter, const Box& box) {
    const Runs runs(box, WholeBox(inventory_[static_cast<size_t>(parameter)].shape), box);
    for (int64_t r = 0; r < runs.size(); ++r) {
      for (int64_t k = 0; k < runs[r].count; ++k)
        ++times_[static_cast<size_t>(parameter)][static_cast<size_t>(runs[r].from + k)];
    }
  }
  // The first parameter with an element that was not counted `expected` times; "" where there is none.
  std::string NotAll(const std::function<int(int parameter)>& expected) const {
    for (size_t p = 0; p < times_.size(); ++p) {
      for (const int times : times_[p]) {
        if (times != expected(static_cast<int>(p)))
          return absl::StrCat(inventory_[p].name, " has an element ", times, " times");
      }
    }
    return "";
  }

 private:
  const std::vector<model::Parameter>& inventory_;
  std::vector<std::vector<int>> times_;
};

class Placement : public ::testing::TestWithParam<uint64_t> {
 protected:
  Placement() : case_(GetParam()) {}
  const Ledger& ledger() const { return case_.ledger; }
  const Mesh& mesh() const { return case_.mesh; }
  bool IsCut(int parameter) const { return case_.inventory[static_cast<size_t>(parameter)].tensor_dim >= 0; }
  // Ranks on tp that have `rank`'s box of a parameter, counted.
  int CountCopies(int parameter, int rank) const {
    int copies = 0;
    for (const int other : mesh().Group(rank, Axis::kTp))
      copies += ledger().LocalBox(parameter, other) == ledger().LocalBox(parameter, rank) ? 1 : 0;
    return copies;
  }
  const Case case_;
};

TEST_P(Placement, EveryElementIsWrittenOnce) {
  Counts counts(case_.inventory);
  for (int rank = 0; rank < mesh().world_size(); ++rank) {
    const std::vector<HeldBox> boxes = ledger().BoxesToWrite(rank);
    EXPECT_TRUE(boxes.empty() || ledger().WritesCheckpoint(rank));
    for (const HeldBox& held : boxes) counts.Add(held.parameter, held.box);
  }
  EXPECT_EQ(counts.NotAll([](int) { return 1; }), "") << case_.ToString();
}

TEST_P(Placement, EveryElementIsHeldOnceByEachReplica) {
  Counts counts(case_.inventory);
  for (int rank = 0; rank < mesh().world_size(); ++rank) {
    for (const HeldBox& held : ledger().BoxesHeld(rank)) counts.Add(held.parameter, held.box);
  }
  const auto expected = [&](int parameter) {
    return mesh().dp_replicate * mesh().cp * ledger().Copies(parameter) *
           static_cast<int>(ledger().owners(ledger().bucket_of(parameter)).size());
  };
  EXPECT_EQ(counts.NotAll(expected), "") << case_.ToString();
}

// The squares are summed over dp_shard, tp and pp: there each element counts once, on each coordinate of the
// other axes.
TEST_P(Placement, EveryElementCountsOnceInEachSumOfTheNorm) {
  for (int replicate = 0; replicate < mesh().dp_replicate; ++replicate) {
    for (int cp = 0; cp < mesh().cp; ++cp) {
      Counts counts(case_.inventory);
      for (int rank = 0; rank < mesh().world_size(); ++rank) {
        if (mesh().coordinate(rank, Axis::kDpReplicate) != replicate) continue;
        if (mesh().coordinate(rank, Axis::kCp) != cp) continue;
        for (const HeldBox& held : ledger().BoxesHeld(rank)) {
          if (ledger().CountsInNorm(held.parameter, rank)) counts.Add(held.parameter, held.box);
        }
      }
      EXPECT_EQ(counts.NotAll([](int) { return 1; }), "") << case_.ToString();
    }
  }
}

// Boxes lie in the shard one after another, and not in each other's place.
TEST_P(Placement, BoxesLieApartWithinTheirShard) {
  for (int rank = 0; rank < mesh().world_size(); ++rank) {
    int bucket = -1;
    int64_t end = 0;
    for (const HeldBox& held : ledger().BoxesHeld(rank)) {
      if (held.bucket != bucket) end = 0;
      bucket = held.bucket;
      EXPECT_GE(held.offset, end);
      EXPECT_GT(held.box.Count(), 0);
      EXPECT_TRUE(Contains(ledger().LocalBox(held.parameter, rank), held.box));
      end = held.offset + held.box.Count();
      EXPECT_LE(end, ledger().optimizer_numel(bucket));
    }
  }
}

// Ranks of one box of a parameter have parts of its gradient where they see other tokens or run other blocks,
// and a sum over the named axes reaches each of them once.
TEST_P(Placement, GradientsAreSummedOverAllWhoHaveAPart) {
  for (int parameter = 0; parameter < static_cast<int>(case_.inventory.size()); ++parameter) {
    const std::vector<Axis> axes = ledger().GradientAxes(parameter);
    const std::vector<int>& owners = ledger().owners(ledger().bucket_of(parameter));
    for (int rank = 0; rank < mesh().world_size(); ++rank) {
      const auto is_owner = [&](int r) {
        return std::count(owners.begin(), owners.end(), mesh().coordinate(r, Axis::kPp)) > 0;
      };
      if (!is_owner(rank)) continue;
      std::vector<int> with_part, reached = {rank};
      for (int other = 0; other < mesh().world_size(); ++other) {
        const bool same_box = ledger().LocalBox(parameter, other) == ledger().LocalBox(parameter, rank);
        const bool same_tp = mesh().coordinate(other, Axis::kTp) == mesh().coordinate(rank, Axis::kTp);
        // Where all see all tokens, copies of what is not cut have one gradient.
        const bool has_own = IsCut(parameter) || ledger().sequence_parallel();
        const bool is_empty = ledger().LocalBox(parameter, rank).Count() == 0;
        if (is_owner(other) && same_box && (same_tp || (has_own && !is_empty))) with_part.push_back(other);
      }
      for (const Axis axis : axes) {
        std::vector<int> wider;
        for (const int r : reached) {
          const int copies = ledger().GradientCopies(parameter);
          const int first = mesh().coordinate(r, Axis::kTp) / copies * copies;
          for (const int other : mesh().Group(r, axis)) {
            const int at = mesh().coordinate(other, Axis::kTp);
            if (is_owner(other) && (axis != Axis::kTp || (at >= first && at < first + copies)))
              wider.push_back(other);
          }
        }
        reached = std::move(wider);
      }
      std::sort(reached.begin(), reached.end());
      ASSERT_EQ(reached, with_part) << case_.inventory[static_cast<size_t>(parameter)].name;
    }
  }
}

TEST_P(Placement, CopiesAreNeighbours) {
  for (int parameter = 0; parameter < static_cast<int>(case_.inventory.size()); ++parameter) {
    const int copies = ledger().Copies(parameter);
    for (int rank = 0; rank < mesh().world_size(); ++rank) {
      if (ledger().LocalBox(parameter, rank).Count() == 0) continue;
      EXPECT_EQ(CountCopies(parameter, rank), copies);
      const std::vector<int> group = mesh().Group(rank, Axis::kTp);
      const int first = group[static_cast<size_t>(mesh().coordinate(rank, Axis::kTp) / copies * copies)];
      EXPECT_EQ(ledger().LocalBox(parameter, first), ledger().LocalBox(parameter, rank));
    }
  }
}

TEST_P(Placement, SumsOverDataAxesAndCopiesAreListed) {
  std::map<std::string, int> listed;
  for (const Reduction& reduction : ledger().Reductions()) ++listed[reduction.name];
  for (int parameter = 0; parameter < static_cast<int>(case_.inventory.size()); ++parameter) {
    const std::vector<Axis> axes = ledger().GradientAxes(parameter);
    for (const Axis axis : {Axis::kDpReplicate, Axis::kDpShard}) {
      EXPECT_EQ(listed.count(GradientReduction(ledger().bucket_of(parameter), AxisName(axis))),
                static_cast<size_t>(std::count(axes.begin(), axes.end(), axis)));
    }
    const int copies = ledger().GradientCopies(parameter);
    const std::string sum = GradientReduction(ledger().bucket_of(parameter), NameOfCopies(mesh(), copies));
    EXPECT_EQ(listed.count(sum) > 0, copies > 1) << sum;
    EXPECT_EQ(std::count(axes.begin(), axes.end(), Axis::kTp) > 0, copies > 1);
  }
}

INSTANTIATE_TEST_SUITE_P(RandomMeshes, Placement, ::testing::Range(uint64_t{0}, uint64_t{60}));

TEST(Cuts, KeepUnitsTogetherAndGiveTheFirstCoordinatesMore) {
  const std::vector<model::Parameter> inventory = model::Inventory(Case::Spec(false));
  const Ledger ledger(inventory, Mesh{.dp_shard = 2, .tp = 2}, 3);
  const auto local = [&](const std::string& part, int tp) {
    for (size_t i = 0; i < inventory.size(); ++i) {
      if (absl::StrContains(inventory[i].name, part)) return ledger.LocalBox(static_cast<int>(i), tp);
    }
    ADD_FAILURE() << part;
    return Box{};
  };
  // Three heads of 6: two and one. One head of keys: both have it.
  EXPECT_THAT(local("q_proj.weight", 0).dims, ElementsAre(Interval{0, 12}, Interval{0, 10}));
  EXPECT_THAT(local("q_proj.weight", 1).dims, ElementsAre(Interval{12, 18}, Interval{0, 10}));
  EXPECT_THAT(local("k_proj.weight", 0).dims, ElementsAre(Interval{0, 6}, Interval{0, 10}));
  EXPECT_THAT(local("k_proj.weight", 1).dims, ElementsAre(Interval{0, 6}, Interval{0, 10}));
  EXPECT_THAT(local("o_proj.weight", 1).dims, ElementsAre(Interval{0, 10}, Interval{12, 18}));
  EXPECT_THAT(local("down_proj.weight", 0).dims, ElementsAre(Interval{0, 10}, Interval{0, 4}));
  EXPECT_THAT(local("down_proj.weight", 1).dims, ElementsAre(Interval{0, 10}, Interval{4, 7}));
  EXPECT_THAT(local("input_layernorm.weight", 1).dims, ElementsAre(Interval{0, 10}));
  EXPECT_THAT(local("embed_tokens", 0).dims, ElementsAre(Interval{0, 7}, Interval{0, 10}));
}

// The heads of keys of neighbours, whose gradients are summed; norms are on every rank.
TEST(Cuts, FewHeadsOfKeysHaveCopies) {
  model::Architecture spec = Case::Spec(false);
  SetEach(spec, &model::Attention::heads, 8);
  SetEach(spec, &model::Attention::kv_heads, 2);
  const std::vector<model::Parameter> inventory = model::Inventory(spec);
  for (const bool sequence_parallel : {true, false}) {
    const Ledger ledger(inventory, Mesh{.tp = 4}, 0, {}, sequence_parallel);
    const auto find = [&](const std::string& part) {
      int index = 0;
      while (!absl::StrContains(inventory[static_cast<size_t>(index)].name, part)) ++index;
      return index;
    };
    const int key = find("k_proj.bias"), norm = find("input_layernorm");
    EXPECT_THAT(ledger.LocalBox(key, 1).dims, ElementsAre(Interval{0, 6}));
    EXPECT_THAT(ledger.LocalBox(key, 2).dims, ElementsAre(Interval{6, 12}));
    EXPECT_EQ(ledger.GradientCopies(key), 2);
    EXPECT_EQ(ledger.GradientCopies(norm), sequence_parallel ? 4 : 1);
    EXPECT_TRUE(ledger.CountsInNorm(key, 2));
    EXPECT_FALSE(ledger.CountsInNorm(key, 3));
    const std::vector<int> sums = ledger.CopiesOfBucket(ledger.bucket_of(key));
    EXPECT_EQ(sums, sequence_parallel ? (std::vector<int>{4, 2}) : (std::vector<int>{2}));
  }
}

// Columns of a matrix that two shards cut: what each rank holds is named in the indices of the whole matrix.
TEST(Cuts, ARankHoldsBoxesOfItsColumns) {
  const model::Parameter matrix{
      .name = "down", .shape = {40, 6}, .used_by = {0}, .numel = 240, .tensor_dim = 1};
  const Ledger ledger({matrix}, Mesh{.dp_shard = 2, .tp = 2}, 3);
  // Of 120 elements in rows of 3, the first 64 (60 rounded up to kShardAlign) are the first shard's.
  std::vector<HeldBox> held = ledger.BoxesHeld(1);  // dp_shard 0, tp 1
  ASSERT_EQ(held.size(), 2u);
  EXPECT_EQ(held[0].box.ToString(), "[0:21, 3:6]");
  EXPECT_EQ(held[1].box.ToString(), "[21:22, 3:4]");
  EXPECT_EQ(held[1].offset, 63);
  held = ledger.BoxesHeld(3);  // dp_shard 1, tp 1
  ASSERT_EQ(held.size(), 2u);
  EXPECT_EQ(held[0].box.ToString(), "[21:22, 4:6]");
  EXPECT_EQ(held[1].box.ToString(), "[22:40, 3:6]");
}

}  // namespace
}  // namespace trainctl::layout
