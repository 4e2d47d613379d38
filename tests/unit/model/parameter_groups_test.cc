#include "model/parameter_groups.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "model/families.h"

namespace trainctl::model {
namespace {

Architecture SmallOf(const std::string& family) {
  Architecture spec = BaseOfFamily(family);
  SetNumLayers(spec, 1);
  spec.hidden = 8;
  spec.vocab = 10;
  SetEach(spec, &Attention::heads, 2);
  SetEach(spec, &Attention::kv_heads, 2);
  SetEach(spec, &Attention::head_dim, 4);
  SetEach(spec, &Mlp::ffn, 16);
  return spec;
}

// Only the matrices of products are in no group, in every family.
TEST(ParameterGroups, ContainEverythingButTheMatricesOfProducts) {
  for (const std::string& family : NamedFamilies()) {
    const Architecture spec = SmallOf(family);
    for (const Parameter& parameter : Inventory(spec)) {
      const auto groups = std::count_if(kParameterGroups.begin(), kParameterGroups.end(),
                                        [&](const char* group) { return IsSelected(group, parameter); });
      const bool is_product = parameter.shape.size() == 2 && parameter.block != EmbeddingBlock();
      EXPECT_EQ(groups, is_product ? 0 : 1) << family << ": " << parameter.name;
    }
  }
}

TEST(ParameterGroups, AreToldApart) {
  const auto selected = [](const char* selector) {
    std::string names;
    for (const Parameter& parameter : Inventory(SmallOf("gpt2")))
      if (parameter.block != 1 && IsSelected(selector, parameter)) names += parameter.name + " ";
    return names;
  };
  EXPECT_EQ(selected("norms"), "transformer.ln_f.weight ");
  EXPECT_EQ(selected("biases"), "transformer.ln_f.bias ");
  EXPECT_EQ(selected("embeddings"), "transformer.wte.weight transformer.wpe.weight ");
  EXPECT_EQ(selected("*.wpe.weight"), "transformer.wpe.weight ");
  EXPECT_EQ(selected("norm"), "");
}

}  // namespace
}  // namespace trainctl::model
