#include "planner/settings.h"

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace trainctl::planner {
namespace {

class Writer {
 public:
  explicit Writer(const layout::Request& asked) { rewritten_.request = asked; }

  // A stated value that is another one now.
  template <typename Value>
  void Change(const char* name, std::optional<Value> layout::Request::*field, const Value& value) {
    std::optional<Value>& stated = rewritten_.request.*field;
    if (!stated.has_value() || *stated == value) return;
    stated = value;
    settings_.push_back(absl::StrCat(name, " = ", Text(value)));
  }
  // A stated value that is left to the planner now.
  template <typename Value>
  void Free(const char* name, std::optional<Value> layout::Request::*field) {
    std::optional<Value>& stated = rewritten_.request.*field;
    if (!stated.has_value()) return;
    stated.reset();
    settings_.push_back(absl::StrCat(name, " = \"auto\""));
  }

  Rewritten Take() {
    rewritten_.settings = absl::StrJoin(settings_, ", ");
    return std::move(rewritten_);
  }

 private:
  static std::string Text(int64_t value) { return absl::StrCat(value); }
  static std::string Text(bool value) { return value ? "true" : "false"; }
  static std::string Text(const std::string& value) { return absl::StrCat("\"", value, "\""); }
  static std::string Text(layout::Recompute value) {
    return absl::StrCat("\"", layout::RecomputeName(value), "\"");
  }

  Rewritten rewritten_;
  std::vector<std::string> settings_;
};

}  // namespace

Rewritten Rewrite(const layout::Request& asked, const layout::Request& relaxed,
                  const layout::Layout& layout) {
  using layout::Request;
  const layout::Mesh& mesh = layout.mesh;
  Writer writer(asked);
  writer.Change("parallel.pp", &Request::pp, mesh.pp);
  if (mesh.pp == 1) {
    writer.Free("parallel.schedule", &Request::pipeline_order);
    writer.Free("parallel.virtual_stages", &Request::virtual_stages);
  } else {
    writer.Change("parallel.schedule", &Request::pipeline_order, layout.pipeline.order);
    writer.Change("parallel.virtual_stages", &Request::virtual_stages, layout.pipeline.virtual_stages);
  }
  if (!relaxed.stage_layers.has_value()) writer.Free("parallel.stage_layers", &Request::stage_layers);
  writer.Change("parallel.tp", &Request::tp, mesh.tp);
  if (mesh.tp == 1) {
    writer.Free("parallel.sequence_parallel", &Request::sequence_parallel);
  } else {
    writer.Change("parallel.sequence_parallel", &Request::sequence_parallel, layout.sequence_parallel);
  }
  writer.Change("parallel.zero_stage", &Request::zero_stage, int64_t{layout.zero_stage});
  writer.Change("parallel.dp_shard", &Request::dp_shard, mesh.dp_shard);
  writer.Change("parallel.dp_replicate", &Request::dp_replicate, mesh.dp_replicate);
  writer.Change("train.micro_batch", &Request::micro_batch, layout.micro_batch);
  if (!relaxed.recompute.has_value()) {
    // "full" stated without a number recomputes all layers.
    if (layout.recomputed_layers.empty()) {
      writer.Change("parallel.recompute", &Request::recompute, layout.recompute);
    } else {
      writer.Free("parallel.recompute", &Request::recompute);
    }
  }
  if (!relaxed.recomputed_layers.has_value())
    writer.Free("parallel.recomputed_layers", &Request::recomputed_layers);
  return writer.Take();
}

}  // namespace trainctl::planner
