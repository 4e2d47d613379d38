#include "apps/trainctl/plan_explain.h"

#include <cstdio>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "apps/trainctl/text_table.h"
#include "base/json.h"

namespace trainctl::cli {
namespace {

std::string WholeBytes(double bytes) { return absl::StrFormat("%.0f", bytes); }

void PrintMemory(const frameworks::ClusterPlan& plan, bool color) {
  const frameworks::MemoryPrice& memory = plan.chosen.memory;
  PrintTitle("Memory of the fullest device", color);
  TextTable table({"term", "bytes", "GiB"}, {0});
  const auto add = [&](const std::string& name, double bytes) {
    table.Add({name, WholeBytes(bytes), absl::StrFormat("%.2f", bytes / (1 << 30))});
  };
  for (int i = 0; i < frameworks::kNumMemoryParts; ++i) {
    const auto part = static_cast<frameworks::MemoryPart>(i);
    add(std::string(frameworks::MemoryPartName(part)), memory.parts[static_cast<size_t>(i)]);
  }
  add("allocated (all except outside)", memory.allocated_bytes);
  add("reserved by the allocator", memory.reserved_bytes);
  add("device (reserved and outside)", memory.device_bytes);
  add("upper bound for planning", memory.upper_bytes);
  add("limit", plan.memory_limit_bytes);
  if (memory.host_bytes > 0) add("host memory per rank", memory.host_bytes);
  add("checkpoint, per rank", memory.checkpoint_bytes);
  add("while loading a checkpoint", memory.load_bytes);
  table.Print(color);
  std::printf("(pipeline rank %d)\n", memory.stage);
}

void PrintTime(const frameworks::ClusterPlan& plan, bool color) {
  const frameworks::TimePrice& time = plan.chosen.time;
  PrintTitle("Time of a step", color);
  TextTable table({"term", "ms", "share"}, {0});
  const auto add = [&](const char* name, double seconds) {
    table.Add({name, absl::StrFormat("%.3f", seconds * 1e3),
               absl::StrFormat("%.1f %%", seconds / time.step_seconds * 100)});
  };
  for (const auto& [name, member] : frameworks::TimeTerms()) add(name, time.*member);
  add("step", time.step_seconds);
  table.Print(color);
}

}  // namespace

void PrintTitle(const char* text, bool color) {
  std::printf("\n%s%s%s\n\n", color ? "\x1b[1m" : "", text, color ? "\x1b[0m" : "");
}

void PrintExplanation(const frameworks::ClusterPlan& plan, const frameworks::Explanation& explanation,
                      bool color) {
  PrintMemory(plan, color);
  PrintTime(plan, color);
  PrintTitle("What binds", color);
  for (const std::string& text : explanation.bindings) std::printf("  %s\n", text.c_str());
  PrintTitle("Why not", color);
  TextTable neighbours({"change", "GiB", "step", "because"}, {0, 3});
  for (const report::Alternative& n : explanation.neighbours) {
    neighbours.Add({n.name, n.device_bytes > 0 ? absl::StrFormat("%.1f", n.device_bytes / (1 << 30)) : "-",
                    n.step_seconds > 0 ? absl::StrFormat("%.4g s", n.step_seconds) : "-",
                    absl::StrCat(n.fits ? "" : "does not fit: ", n.reason)});
  }
  neighbours.Print(color);
  PrintTitle("How reliable it is", color);
  for (const std::string& text : explanation.trust) std::printf("  %s\n", text.c_str());
  PrintTitle("Constants", color);
  TextTable constants({"constant", "value", "kind", "source"}, {0, 1, 2, 3});
  for (const report::PageConstant& c : explanation.constants) {
    constants.Add({c.name, c.value, c.origin, c.source});
  }
  constants.Print(color);
}

Json ExplanationToJson(const frameworks::Explanation& explanation) {
  Json json = {{"bindings", explanation.bindings},
               {"neighbours", Json::array()},
               {"trust", explanation.trust},
               {"constants", Json::array()}};
  for (const report::Alternative& n : explanation.neighbours) {
    json["neighbours"].push_back({{"change", n.name},
                                  {"fits", n.fits},
                                  {"device_bytes", static_cast<int64_t>(n.device_bytes)},
                                  {"step_seconds", n.step_seconds},
                                  {"reason", n.reason}});
  }
  for (const report::PageConstant& c : explanation.constants) {
    json["constants"].push_back(
        {{"name", c.name}, {"value", c.value}, {"origin", c.origin}, {"source", c.source}});
  }
  return json;
}

}  // namespace trainctl::cli
