// Describes model families in a few words, for `trainctl models` and docs/reference/models.md. The words come
// from the table in families.cc, so a new row needs no other text. Pure; thread-safe.
#pragma once

#include <string>

#include "model/families.h"

namespace trainctl::model {

// One phrase per subject. The defaults describe a Llama without biases.
struct FamilyFeatures {
  std::string norms = "RMSNorm";
  std::string positions = "RoPE";
  std::string windows = "no windows";
  std::string mlp = "gated SiLU";
  std::string biases = "no biases";
  std::string weights = "no fused weights";
  std::string factors = "no factors";
};

// Describes a family that this version trains. If config.json can change a feature, describes the default.
FamilyFeatures FeaturesOf(const Family& family);

// Returns the features that differ from those of a Llama, separated by semicolons. Empty if there are none.
std::string Differences(const FamilyFeatures& features);

}  // namespace trainctl::model
