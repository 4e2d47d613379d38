#include "model/folder_form.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "model/architecture.h"
#include "model/parameters.h"

namespace trainctl::model {
namespace {

using testing::ElementsAre;

// Every row of a parameter is at the place that it is found in.
void ExpectInverse(const FolderPlace& place, int64_t rows) {
  for (int64_t row = 0; row < rows; ++row) {
    const RowRun in_tensor = RowInTensor(place, row);
    const std::optional<RowRun> back = RowInParameter(place, in_tensor.row);
    ASSERT_TRUE(back.has_value());
    EXPECT_EQ(back->row, row);
    EXPECT_EQ(back->count, in_tensor.count);
  }
}

TEST(FolderForm, RowsAreFoundInBothDirections) {
  // Blocks of 2 rows, from row 4 on, in groups of 7.
  const FolderPlace place = {.block = 2, .period = 7, .first = 4};
  EXPECT_EQ(RowInTensor(place, 0).row, 4);
  EXPECT_EQ(RowInTensor(place, 3).row, 12);
  EXPECT_EQ(RowInTensor(place, 3).count, 1);
  EXPECT_FALSE(RowInParameter(place, 3).has_value());
  EXPECT_FALSE(RowInParameter(place, 6).has_value());
  EXPECT_EQ(RowInParameter(place, 11)->row, 2);
  EXPECT_EQ(RowInParameter(place, 11)->count, 2);
  ExpectInverse(place, 10);
}

TEST(FolderForm, TensorsHaveTheNamesAndShapesOfTheForm) {
  Architecture spec =
      LlamaOf({.layers = 2, .hidden = 12, .ffn = 10, .heads = 4, .kv_heads = 2, .head_dim = 3, .vocab = 7});
  SetAllLinearBiases(spec, true);
  std::vector<Parameter> parameters = Inventory(spec);
  for (const Parameter& parameter : parameters) EXPECT_FALSE(parameter.folder.has_value());
  SetFolderPlaces({.qkv = "attn.c_attn", .gate_up = "mlp.c_fc", .transposed = true},
                  *FindParameterNames("llama"), absl::MakeSpan(parameters));
  std::map<std::string, std::vector<int64_t>> shapes;
  for (const Parameter& parameter : parameters) {
    const FolderPlace place = PlaceInFolder(parameter);
    const auto [entry, is_new] = shapes.emplace(place.tensor, place.shape);
    EXPECT_EQ(is_new, place.first == 0);
    EXPECT_EQ(entry->second, place.shape);
    ExpectInverse(place, parameter.shape[0]);
  }
  EXPECT_EQ(shapes.size(), 3u + 2u * 10u);
  EXPECT_THAT(shapes["model.embed_tokens.weight"], ElementsAre(7, 12));
  EXPECT_THAT(shapes["model.layers.1.attn.c_attn.weight"], ElementsAre(12, 24));
  EXPECT_THAT(shapes["model.layers.1.attn.c_attn.bias"], ElementsAre(24));
  EXPECT_THAT(shapes["model.layers.1.mlp.c_fc.weight"], ElementsAre(12, 20));
  EXPECT_THAT(shapes["model.layers.1.mlp.down_proj.weight"], ElementsAre(10, 12));
  EXPECT_THAT(shapes["model.layers.1.input_layernorm.weight"], ElementsAre(12));
  EXPECT_THAT(shapes["lm_head.weight"], ElementsAre(7, 12));
}

}  // namespace
}  // namespace trainctl::model
