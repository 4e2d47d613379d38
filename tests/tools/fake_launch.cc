// Runs a job as `trainctl launch` does, for tests that need a launcher process of its own to signal
// or to kill: fake_launch RUN_DIR WORKERS WORKER_PROGRAM [worker arguments]. Exits as the launch
// would.

#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/numbers.h"
#include "launcher/job.h"
#include "rpc/server.h"

int main(int argc, char** argv) {
  using namespace trainctl;
  launcher::JobOptions options;
  if (argc < 4 || !absl::SimpleAtoi(argv[2], &options.num_workers)) return 2;
  absl::StatusOr<run::RunFolder> run = run::RunFolder::CreateAt(argv[1]);
  if (!run.ok()) return static_cast<int>(ExitCodeFor(run.status()));
  options.run = &*run;
  options.rendezvous = &rpc::StartServer;
  options.worker_program = argv[3];
  options.worker_args.assign(argv + 4, argv + argc);
  options.stop_timeout = absl::Seconds(10);
  options.observer = std::make_shared<launcher::FdObserver>(2);
  const absl::StatusOr<launcher::JobOutcome> outcome = launcher::RunJob(options);
  if (!outcome.ok()) {
    std::fprintf(stderr, "trainctl: %s\n", std::string(outcome.status().message()).c_str());
    return static_cast<int>(ExitCodeFor(outcome.status()));
  }
  std::printf("%s\n", outcome->message.c_str());
  return static_cast<int>(outcome->exit_code());
}
