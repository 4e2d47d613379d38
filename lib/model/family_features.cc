#include "model/family_features.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace trainctl::model {
namespace {

using kernels::Activation;
using kernels::Gain;
using kernels::RopePairs;

// Joins the phrases that are not empty.
std::string Joined(std::vector<std::string> phrases, const char* separator) {
  std::erase(phrases, "");
  return absl::StrJoin(phrases, separator);
}

std::string PlacesOf(NormPlaces places) {
  switch (places) {
    case NormPlaces::kBefore:
      return "";
    case NormPlaces::kShared:
      return "attention and MLP in parallel after one norm";
    case NormPlaces::kBeforeAndAfter:
      return "norms before and after attention and MLP";
    case NormPlaces::kAfter:
      return "norms only after attention and MLP";
    case NormPlaces::kParallel:
      return "attention and MLP in parallel";
  }
  return "";
}

const char* QkNormOf(QkNorm norm) {
  switch (norm) {
    case QkNorm::kNone:
      return "";
    case QkNorm::kHead:
      return "norms of queries and keys";
    case QkNorm::kHeadAfterRope:
      return "norms of queries and keys after RoPE";
    case QkNorm::kWhole:
      return "norms of queries and keys over all heads";
  }
  return "";
}

std::string NormsOf(const Family& family) {
  std::string kind = "RMSNorm";
  if (family.norm == NormKind::kLayer) kind = family.norm_bias ? "LayerNorm" : "LayerNorm without bias";
  if (family.gain == Gain::kOnePlusWeight) absl::StrAppend(&kind, " with a gain of 1 + weight");
  return Joined({kind, PlacesOf(family.norms), QkNormOf(family.qk_norm),
                 family.embedding_norm ? "a norm of the embedding" : ""},
                ", ");
}

// What is different about RoPE in layers with a window.
const char* OfWindows(const Family& family) {
  if (family.window_rope_theta == 0) return "";
  return family.window_rope_theta_key == nullptr ? "no scaling in layers with a window"
                                                 : "another base in layers with a window";
}

std::string PositionsOf(const Family& family) {
  if (family.learned_positions) return "learned positions";
  std::string rope = "RoPE";
  if (family.rope_pairs == RopePairs::kNeighbors) absl::StrAppend(&rope, " of adjacent pairs");
  if (family.rope_share != 1) absl::StrAppend(&rope, " on ", family.rope_share * 100, " % of each head");
  std::string without;
  if (family.no_positions == NoPositions::kListed) {
    without = absl::StrCat("no positions in every ", kNoRopeLayerInterval, "th layer");
  } else if (family.no_positions != NoPositions::kNone) {
    without = "no positions in layers without a window";
  }
  return Joined({rope, OfWindows(family), without}, ", ");
}

std::string WindowsOf(const Family& family) {
  switch (family.windows) {
    case Windows::kNone:
      return "no windows";
    case Windows::kAll:
      return "windows in all layers";
    case Windows::kListed:
      return "windows in the layers that config.json lists";
    case Windows::kPattern:
      return absl::StrCat("windows in all but every ", family.window_period, "th layer");
    case Windows::kEverySecond:
      return "windows in every second layer";
    case Windows::kUpper:
      return "optional windows in the upper layers";
  }
  return "";
}

std::string MlpOf(const Family& family) {
  std::string name;
  switch (family.activation) {
    case Activation::kSiLU:
      name = "SiLU";
      break;
    case Activation::kGelu:
      name = "GELU";
      break;
    case Activation::kGeluTanh:
      name = "tanh GELU";
      break;
    case Activation::kRelu:
      name = "ReLU";
      break;
    case Activation::kReluSquared:
      name = "squared ReLU";
      break;
  }
  return family.gated ? absl::StrCat("gated ", name) : absl::StrCat(name, " without a gate");
}

std::string BiasesOf(const Family& family) {
  const char* const head = family.head_bias ? " and of the head" : "";
  switch (family.bias) {
    case Bias::kNone:
      break;
    case Bias::kQkv: {
      const bool is_optional = family.qkv_bias_key != nullptr && !family.bias_default;
      return absl::StrCat(is_optional ? "optional " : "", "biases of queries, keys and values");
    }
    case Bias::kAll:
      return absl::StrCat("biases of all projections", head);
    case Bias::kByFile:
      return "optional biases";
    case Bias::kAttentionByFile:
      return "optional biases of attention";
    case Bias::kMlp:
      return absl::StrCat("biases of the MLP", head);
    case Bias::kUseBias:
      return absl::StrCat(family.bias_default ? "" : "optional ", "biases of all projections");
  }
  return "no biases";
}

std::string WeightsOf(const Family& family) {
  const FolderForm& form = family.folder_form;
  const bool fuses_qkv = form.qkv != nullptr, fuses_gate = form.gate_up != nullptr;
  return Joined({fuses_qkv && fuses_gate ? "fused queries, keys and values, fused gate and up"
                 : fuses_qkv             ? "fused queries, keys and values"
                 : fuses_gate            ? "fused gate and up"
                                         : "no fused weights",
                 form.transposed ? "transposed weights" : ""},
                ", ");
}

std::string FactorsOf(const Family& family) {
  const std::string factors =
      Joined({family.scales_embedding ? "scaled embedding" : "",
              family.states_multipliers ? "factors of embedding, scores, residuals and logits" : "",
              family.logit_multiplier_key != nullptr ? "a factor of the logits" : "",
              family.attention_softcap != 0 ? "soft caps of scores and logits" : ""},
             ", ");
  return factors.empty() ? "no factors" : factors;
}

}  // namespace

FamilyFeatures FeaturesOf(const Family& family) {
  return {.norms = NormsOf(family),
          .positions = PositionsOf(family),
          .windows = WindowsOf(family),
          .mlp = MlpOf(family),
          .biases = BiasesOf(family),
          .weights = WeightsOf(family),
          .factors = FactorsOf(family)};
}

std::string Differences(const FamilyFeatures& features) {
  const FamilyFeatures llama;
  std::vector<std::string> differences;
  const auto add = [&](const std::string FamilyFeatures::*subject) {
    if (features.*subject == llama.*subject) return;
    // "RMSNorm, norms of queries and keys" differs in the second part only.
    differences.emplace_back(absl::StripPrefix(features.*subject, absl::StrCat(llama.*subject, ", ")));
  };
  add(&FamilyFeatures::norms);
  add(&FamilyFeatures::positions);
  add(&FamilyFeatures::windows);
  add(&FamilyFeatures::mlp);
  add(&FamilyFeatures::biases);
  add(&FamilyFeatures::weights);
  add(&FamilyFeatures::factors);
  return absl::StrJoin(differences, "; ");
}

}  // namespace trainctl::model
