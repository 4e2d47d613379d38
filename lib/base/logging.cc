#include "base/logging.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <memory>

namespace trainctl {
namespace {

spdlog::logger& Logger() {
  // Never destroyed: threads may log until the process ends.
  static spdlog::logger* const logger = [] {
    auto* made = new spdlog::logger("trainctl", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l: %v");
    made->flush_on(spdlog::level::info);
    return made;
  }();
  return *logger;
}

void Log(spdlog::level::level_enum level, absl::string_view message) {
  Logger().log(level, spdlog::string_view_t(message.data(), message.size()));
}

}  // namespace

void SetLogLevel(LogLevel level) {
  switch (level) {
    case LogLevel::kInfo:
      return Logger().set_level(spdlog::level::info);
    case LogLevel::kWarning:
      return Logger().set_level(spdlog::level::warn);
    case LogLevel::kError:
      return Logger().set_level(spdlog::level::err);
    case LogLevel::kOff:
      return Logger().set_level(spdlog::level::off);
  }
}

void LogInfo(absl::string_view message) { Log(spdlog::level::info, message); }
void LogWarning(absl::string_view message) { Log(spdlog::level::warn, message); }
void LogError(absl::string_view message) { Log(spdlog::level::err, message); }

}  // namespace trainctl
