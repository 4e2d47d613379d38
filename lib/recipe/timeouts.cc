#include "recipe/timeouts.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "cluster/kubernetes_job.h"
#include "recipe/values.h"

namespace trainctl::recipe {
namespace {

constexpr absl::Duration kNodeTimeout = absl::Minutes(2);
constexpr char kDetect[] = "launch.detect_timeout";

// Who waits longer must be the one who knows less: else a machine that the launcher has not given up ends its
// workers, or a worker that waits for a lost one is taken for the culprit.
struct Order {
  const char* longer;
  absl::Duration long_time;
  const char* shorter;
  absl::Duration short_time;
  int factor;  // at least so many times; 0: longer
  const char* why;
};

std::vector<Order> OrdersOf(const LaunchConfig& launch) {
  std::vector<Order> orders = {
      {"launch.coordinator_timeout", launch.coordinator_timeout, kDetect, launch.detect_timeout, 2,
       "or a machine would stop workers that the launcher still considers running"},
      {"launch.collective_timeout", launch.collective_timeout, kDetect, launch.detect_timeout, 0,
       "or workers that wait for a lost worker would fail before the loss is detected"},
      {"launch.hang_timeout", launch.hang_timeout, kDetect, launch.detect_timeout, 1,
       "or workers on a machine that goes silent for a moment would be considered hung"}};
  if (launch.backend == "slurm") {
    orders.push_back({"launch.slurm.save_before", launch.slurm.save_before, "launch.stop_timeout",
                      launch.stop_timeout, 1, "or Slurm might kill the job before a save finishes"});
  }
  return orders;
}

bool Holds(const Order& order) {
  if (order.factor == 0) return order.long_time > order.short_time;
  return order.long_time >= order.factor * order.short_time;
}

absl::string_view TextOf(int factor) {
  if (factor == 0) return "longer than ";
  return factor == 1 ? "at least " : "at least twice ";
}

std::string Setting(const char* path, absl::Duration time) {
  return absl::StrCat(path, " = \"", DurationText(time), "\"");
}

WrongOrder WrongOf(const Order& order) {
  const absl::Duration more =
      order.factor == 0 ? order.short_time + absl::Seconds(1) : order.factor * order.short_time;
  absl::Duration less = order.long_time / 2;
  if (order.factor == 1) less = order.long_time;
  if (order.factor == 0 && order.long_time >= absl::Seconds(2)) less = order.long_time - absl::Seconds(1);
  return {{order.longer, order.shorter},
          absl::StrCat(order.longer, " (", DurationText(order.long_time), ") must be ", TextOf(order.factor),
                       order.shorter, " (", DurationText(order.short_time), "), ", order.why, "; set ",
                       Setting(order.longer, more), ", or ", Setting(order.shorter, less))};
}

}  // namespace

absl::Duration NodeTimeout(const LaunchConfig& launch) {
  return launch.backend == "kubernetes" ? cluster::kPodTimeout : kNodeTimeout;
}

std::vector<WrongOrder> FindWrongOrders(const LaunchConfig& launch) {
  std::vector<WrongOrder> wrong;
  if (launch.backend == "local") return wrong;
  for (const Order& order : OrdersOf(launch)) {
    if (!Holds(order)) wrong.push_back(WrongOf(order));
  }
  const absl::Duration most = NodeTimeout(launch);
  if (launch.detect_timeout > most) {
    wrong.push_back({{"launch.detect_timeout"},
                     absl::StrCat("launch.detect_timeout (", DurationText(launch.detect_timeout),
                                  ") must be at most ", DurationText(most),
                                  ", after which a launch gives up on an unreachable machine; otherwise the "
                                  "launch ends before it can name that machine; set ",
                                  Setting("launch.detect_timeout", most))});
  }
  return wrong;
}

}  // namespace trainctl::recipe
