// `trainctl new`: writes a commented recipe to begin with.

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "apps/trainctl/command.h"
#include "apps/trainctl/text_table.h"
#include "base/files.h"
#include "base/json.h"
#include "recipe/starter.h"

namespace trainctl::cli {
namespace {

struct NewOptions {
  std::string preset;
  std::string out = "recipe.toml";
  bool list = false;
};

absl::StatusOr<ExitCode> List(const Output& output) {
  if (output.json) {
    Json json = {{"schema", "trainctl.new.v1"}, {"presets", Json::array()}};
    for (const recipe::Starter& starter : recipe::Starters()) {
      json["presets"].push_back({{"name", starter.name}, {"summary", starter.summary}});
    }
    std::puts(json.dump(2).c_str());
    return ExitCode::kOk;
  }
  TextTable table({"preset", "a recipe for"}, {0, 1});
  for (const recipe::Starter& starter : recipe::Starters()) table.Add({starter.name, starter.summary});
  table.Print(output.stdout_color);
  return ExitCode::kOk;
}

// Never replaces a file, whoever made it and when; what could not be written in full does not stay.
absl::Status WriteNew(const std::string& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd < 0 && errno == EEXIST) {
    return UsageError(absl::StrCat(path, " exists and is left as it is; give another name with --out"));
  }
  if (fd < 0) return ErrnoError("create", path, errno);
  size_t done = 0;
  int error_number = 0;
  while (done < text.size() && error_number == 0) {
    const ssize_t count = ::write(fd, text.data() + done, text.size() - done);
    if (count > 0) done += static_cast<size_t>(count);
    if (count < 0 && errno != EINTR) error_number = errno;
  }
  if (::close(fd) != 0 && error_number == 0) error_number = errno;
  if (error_number == 0) return absl::OkStatus();
  ::unlink(path.c_str());
  return ErrnoError("write", path, error_number);
}

absl::StatusOr<ExitCode> Run(const NewOptions& options, const Output& output) {
  if (options.list) return List(output);
  const recipe::Starter* starter = &recipe::Starters()[0];
  if (!options.preset.empty()) {
    TRAINCTL_ASSIGN_OR_RETURN(starter, recipe::FindStarter(options.preset));
  }
  if (options.out == "-") {
    std::fputs(recipe::StarterText(*starter, "recipe.toml").c_str(), stdout);
    return ExitCode::kOk;
  }
  const std::string name = std::filesystem::path(options.out).filename().string();
  TRAINCTL_RETURN_IF_ERROR(WriteNew(options.out, recipe::StarterText(*starter, name)));
  if (output.json) {
    const Json json = {{"schema", "trainctl.new.v1"}, {"preset", starter->name}, {"path", options.out}};
    std::puts(json.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
  } else {
    std::printf("%s: %s\n%s\n", options.out.c_str(), starter->summary,
                recipe::StarterBefore(*starter, options.out).c_str());
  }
  return ExitCode::kOk;
}

}  // namespace

void AddNew(CLI::App& app, Action& action) {
  CLI::App* verb = app.add_subcommand("new", "Write a commented recipe to begin with");
  auto options = std::make_shared<NewOptions>();
  verb->add_option("PRESET", options->preset, "What kind of recipe; --list names them (default: text)")
      ->type_name("PRESET");
  verb->add_option("--out", options->out, "The file to write, which must not exist yet; - is stdout")
      ->type_name("FILE")
      ->capture_default_str();
  verb->add_flag("--list", options->list, "List the presets");
  AddJsonFlag(*verb);
  SetExample(*verb, "trainctl new text --out mine.toml");
  verb->callback(
      [&action, options] { action = [options](const Output& output) { return Run(*options, output); }; });
}

}  // namespace trainctl::cli
