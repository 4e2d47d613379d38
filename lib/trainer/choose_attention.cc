#include "trainer/choose_attention.h"

#include <cmath>
#include <exception>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/files.h"
#include "base/json.h"
#include "base/status.h"
#include "device/error_text.h"
#include "nn/time_attention.h"

namespace trainctl::trainer {
namespace {

constexpr char kSchema[] = "trainctl.attention.v1";

Json DescribeShape(const device::Device& device, const nn::AttentionShape& shape) {
  return {{"schema", kSchema},         {"device", device.description()}, {"batch", shape.batch},
          {"seq_len", shape.seq_len},  {"heads", shape.heads},           {"kv_heads", shape.kv_heads},
          {"head_dim", shape.head_dim}};
}

// What the file says, if it is of this shape and device. A damaged one is as none: it is measured again.
std::optional<bool> ReadChoice(const std::string& path, const Json& shape) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return std::nullopt;
  const absl::StatusOr<Json> json = ParseJson(*text, path);
  if (!json.ok() || !json->is_object()) return std::nullopt;
  for (const auto& [name, value] : shape.items()) {
    if (!json->contains(name) || (*json)[name] != value) return std::nullopt;
  }
  const absl::StatusOr<std::string> kernel = JsonString(*json, "kernel", path);
  if (!kernel.ok() || (*kernel != "cudnn" && *kernel != "flash")) return std::nullopt;
  return *kernel == "cudnn";
}

absl::StatusOr<bool> MeasureChoice(const device::Device& device, const nn::AttentionShape& shape,
                                   const std::string& path,
                                   const std::function<void(const std::string&)>& say) {
  Json json = DescribeShape(device, shape);
  if (const std::optional<bool> known = ReadChoice(path, json); known.has_value()) return *known;
  std::optional<nn::AttentionSeconds> seconds;
  try {
    seconds = nn::TimeAttention(device, shape);
  } catch (const std::exception& error) {
    return WorkerError(absl::StrCat("attention could not be timed: ", device::ErrorText(error)));
  }
  if (!seconds.has_value()) return true;  // what serves is used: there is nothing to choose
  const bool is_cudnn = seconds->cudnn <= seconds->flash;
  json["cudnn_seconds"] = std::isfinite(seconds->cudnn) ? Json(seconds->cudnn) : Json();
  json["flash_seconds"] = seconds->flash;
  json["kernel"] = is_cudnn ? "cudnn" : "flash";
  TRAINCTL_RETURN_IF_ERROR(WriteFileAtomic(path, json.dump(2) + "\n"));
  const std::string cudnn = std::isfinite(seconds->cudnn) ? absl::StrFormat("%.3g ms", 1e3 * seconds->cudnn)
                                                          : "none for this shape";
  say(absl::StrCat("attention of a layer and micro-batch: cuDNN ", cudnn, ", flash ",
                   absl::StrFormat("%.3g ms", 1e3 * seconds->flash), "; ", is_cudnn ? "cuDNN" : "flash",
                   " is used"));
  return is_cudnn;
}

}  // namespace

absl::Status ChooseAttention(const recipe::Recipe& recipe, const device::Device& device,
                             const nn::AttentionShape& shape, const std::string& path, comm::Group& world,
                             const std::function<void(const std::string&)>& say) {
  if (device.is_cpu()) return absl::OkStatus();
  bool use_cudnn = recipe.run.attention != "flash";
  if (recipe.run.attention == "auto" && !recipe.run.deterministic && recipe.data.packing == "continuous") {
    absl::StatusOr<bool> chosen = true;
    if (world.index() == 0) chosen = MeasureChoice(device, shape, path, say);
    double votes[2] = {world.index() == 0 && chosen.ok() && *chosen ? 1.0 : 0.0, chosen.ok() ? 0.0 : 1.0};
    const absl::Status shared = world.AllReduceScalars("attention", votes);
    TRAINCTL_RETURN_IF_ERROR(chosen.status());
    TRAINCTL_RETURN_IF_ERROR(shared);
    if (votes[1] > 0) return WorkerError("rank 0 could not time attention");
    use_cudnn = votes[0] > 0;
  }
  nn::UseCudnnAttention(use_cudnn);
  return absl::OkStatus();
}

}  // namespace trainctl::trainer
