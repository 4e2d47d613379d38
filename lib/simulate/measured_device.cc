#include "simulate/measured_device.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/dtype.h"
#include "base/json.h"
#include "base/status.h"

namespace trainctl::simulate {
namespace {

// What a time, a size and a rate may be, so that whatever follows from them is a number.
struct Range {
  double least = 0, most = 0;
};
constexpr Range kSeconds = {1e-9, 1e4}, kSizes = {1, 1e9}, kRates = {1e6, 1e15};

absl::StatusOr<double> ReadWithin(const Json& json, absl::string_view key, const Range& range,
                                  const std::string& what) {
  TRAINCTL_ASSIGN_OR_RETURN(const double value, JsonDouble(json, key, what));
  if (!(value >= range.least && value <= range.most)) {
    return BadDataError(
        absl::StrCat(what, ": field '", key, "' must be from ", range.least, " to ", range.most));
  }
  return value;
}

constexpr std::pair<const char*, double model::Product::*> kProductSizes[] = {
    {"rows", &model::Product::rows},
    {"inner", &model::Product::inner},
    {"columns", &model::Product::columns},
    {"result_bytes", &model::Product::result_bytes}};
constexpr std::pair<const char*, double model::AttentionKernel::*> kAttentionSizes[] = {
    {"tokens", &model::AttentionKernel::tokens},
    {"seq_len", &model::AttentionKernel::seq_len},
    {"heads", &model::AttentionKernel::heads},
    {"head_dim", &model::AttentionKernel::head_dim}};

Json ToJson(const TimedProduct& timed) {
  Json json = {{"dtype", std::string(DTypeName(timed.product.dtype))}};
  for (const auto& [key, size] : kProductSizes) json[key] = timed.product.*size;
  json["seconds"] = timed.seconds;
  return json;
}

absl::StatusOr<TimedProduct> ReadProduct(const Json& json, const std::string& what) {
  TimedProduct timed;
  TRAINCTL_ASSIGN_OR_RETURN(const std::string dtype, JsonString(json, "dtype", what));
  TRAINCTL_ASSIGN_OR_RETURN(timed.product.dtype, ParseDType(dtype));
  for (const auto& [key, size] : kProductSizes) {
    TRAINCTL_ASSIGN_OR_RETURN(timed.product.*size, ReadWithin(json, key, kSizes, what));
  }
  TRAINCTL_ASSIGN_OR_RETURN(timed.seconds, ReadWithin(json, "seconds", kSeconds, what));
  return timed;
}

Json ToJson(const TimedAttention& timed) {
  Json json = {{"kernel", timed.fused == FusedAttention::kVendor ? "vendor" : "flash"}};
  for (const auto& [key, size] : kAttentionSizes) json[key] = timed.kernel.*size;
  json["backward"] = timed.kernel.backward;
  json["seconds"] = timed.seconds;
  return json;
}

absl::StatusOr<TimedAttention> ReadAttention(const Json& json, const std::string& what) {
  TimedAttention timed;
  TRAINCTL_ASSIGN_OR_RETURN(const std::string kernel, JsonString(json, "kernel", what));
  if (kernel != "vendor" && kernel != "flash")
    return BadDataError(absl::StrCat(what, ": field 'kernel' must be \"flash\" or \"vendor\""));
  timed.fused = kernel == "vendor" ? FusedAttention::kVendor : FusedAttention::kFlash2;
  TRAINCTL_ASSIGN_OR_RETURN(timed.kernel.backward, JsonBool(json, "backward", what));
  for (const auto& [key, size] : kAttentionSizes) {
    TRAINCTL_ASSIGN_OR_RETURN(timed.kernel.*size, ReadWithin(json, key, kSizes, what));
  }
  TRAINCTL_ASSIGN_OR_RETURN(timed.seconds, ReadWithin(json, "seconds", kSeconds, what));
  return timed;
}

template <typename Timed>
absl::Status ReadList(const Json& json, const char* key, const std::string& what,
                      absl::StatusOr<Timed> (*read)(const Json&, const std::string&),
                      std::vector<Timed>& list) {
  const auto found = json.find(key);
  if (found == json.end() || !found->is_array())
    return BadDataError(absl::StrCat(what, ": field '", key, "' must be a list"));
  for (size_t i = 0; i < found->size(); ++i) {
    const std::string where = absl::StrCat(what, ": ", key, "[", i, "]");
    if (!(*found)[i].is_object()) return BadDataError(absl::StrCat(where, ": must be an object"));
    TRAINCTL_ASSIGN_OR_RETURN(list.emplace_back(), read((*found)[i], where));
  }
  return absl::OkStatus();
}

}  // namespace

Json ToJson(const MeasuredDevice& device) {
  Json products = Json::array(), attention = Json::array();
  for (const TimedProduct& timed : device.products) products.push_back(ToJson(timed));
  for (const TimedAttention& timed : device.attention) attention.push_back(ToJson(timed));
  return {{"name", device.name},
          {"bytes_per_second", device.bytes_per_second},
          {"launch_seconds", device.launch_seconds},
          {"products", products},
          {"attention", attention}};
}

absl::StatusOr<MeasuredDevice> MeasuredDeviceFromJson(const Json& json, absl::string_view what) {
  const std::string where(what);
  if (!json.is_object()) return BadDataError(absl::StrCat(where, ": must be an object"));
  MeasuredDevice device;
  TRAINCTL_ASSIGN_OR_RETURN(device.name, JsonString(json, "name", where));
  TRAINCTL_ASSIGN_OR_RETURN(device.bytes_per_second, ReadWithin(json, "bytes_per_second", kRates, where));
  TRAINCTL_ASSIGN_OR_RETURN(device.launch_seconds, ReadWithin(json, "launch_seconds", kSeconds, where));
  TRAINCTL_RETURN_IF_ERROR(ReadList(json, "products", where, ReadProduct, device.products));
  TRAINCTL_RETURN_IF_ERROR(ReadList(json, "attention", where, ReadAttention, device.attention));
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    const auto is_of = [&](const TimedProduct& timed) { return timed.product.dtype == dtype; };
    if (std::none_of(device.products.begin(), device.products.end(), is_of))
      return BadDataError(absl::StrCat(where, ": products: none is of ", DTypeName(dtype)));
  }
  return device;
}

}  // namespace trainctl::simulate
