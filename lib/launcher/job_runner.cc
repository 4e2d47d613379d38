#include "launcher/job_runner.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/secret_file.h"
#include "base/status.h"
#include "base/subprocess.h"
#include "launcher/worker_contract.h"

namespace trainctl::launcher {
namespace {

constexpr absl::Duration kCheckpointLookInterval = absl::Seconds(1);
constexpr int kFarewellLookMs = 100;
constexpr absl::Duration kFarewellPatience = absl::Seconds(10);  // their logs may still be written

rendezvous::SupervisorOptions OptionsOf(const JobOptions& job) {
  rendezvous::SupervisorOptions options;
  if (job.remote) {
    for (const RemoteNodes::Node& node : job.remote->nodes) options.nodes.push_back(node.name);
    options.node_timeout = job.remote->node_timeout;
  } else {
    options.nodes = {kLocalNode};
  }
  options.max_restarts = job.max_restarts;
  options.stop_timeout = job.stop_timeout;
  const auto timeouts = rendezvous::Timeouts::FromDetect(job.detect_timeout);
  options.stacks_timeout = timeouts.stacks + timeouts.detect;
  options.watchdog.most = job.hang_timeout;
  options.watchdog.collective = job.collective_timeout;
  // launch.stop_timeout may be 0; to end takes a moment all the same.
  options.watchdog.stop = std::max(job.stop_timeout, absl::Seconds(1));
  options.checkpoint_step = job.run->NewestCheckpointStep();
  options.needs = job.node_needs;
  return options;
}

}  // namespace

JobRunner::JobRunner(Deps deps, std::optional<LocalNode> local)
    : deps_(std::move(deps)),
      tick_(rendezvous::Timeouts::FromDetect(deps_.options.detect_timeout).tick),
      supervisor_(OptionsOf(deps_.options)) {
  if (!local) return;
  local_slots_ = std::move(local->slots);
  local_.emplace(
      std::move(local->start),
      rendezvous::AgentOptions{
          .stop_timeout = deps_.options.stop_timeout,
          .stacks_timeout = rendezvous::Timeouts::FromDetect(deps_.options.detect_timeout).stacks},
      NodeHost::Deps{.clock = deps_.clock,
                     .disk = deps_.disk,
                     .orphans = orphans_,
                     .tell = [this](rendezvous::NodeEvent event) { Handle(kLocalNode, std::move(event)); },
                     .show_line =
                         [this](int rank, absl::string_view line) {
                           deps_.console.Show({"", rank, std::string(line)});
                         }});
}

run::JournalEvent JobRunner::Tell(run::JournalEvent event) {
  event.time = deps_.clock.Now();
  for (JobWatcher* watcher : deps_.options.watchers) watcher->OnEvent(event);
  return event;
}

void JobRunner::Record(run::JournalEvent event) {
  deps_.disk.Post([run = deps_.options.run, journal = deps_.journal, event = Tell(std::move(event))] {
    TRAINCTL_RETURN_IF_ERROR(run->CheckGranted());
    return journal->Append(event);
  });
}

void JobRunner::ShowDiskErrors() {
  for (const absl::Status& error : deps_.disk.TakeErrors()) deps_.console.Message(error.message());
}

absl::StatusOr<JobOutcome> JobRunner::Run() {
  HandleSignals();
  HandleNotices();
  Decide(rendezvous::Begin{});
  while (!outcome_) PollOnce();
  DismissNodes();
  return *std::move(outcome_);
}

// Waits until their agents have ended: they have nothing left to do.
void JobRunner::DismissNodes() {
  if (!deps_.options.remote) return;
  deps_.service.DismissNodes(outcome_->ok() && (*outcome_)->kind == JobOutcome::Kind::kFinished);
  const absl::Duration deadline = Now() + kFarewellPatience;
  while (!(agents_.AllEnded() && deps_.service.AllNodesLeft()) && Now() < deadline) {
    std::vector<pollfd> fds;
    agents_.AddPollFds(fds);
    ::poll(fds.data(), fds.size(), kFarewellLookMs);
    for (const AgentStarter::News& news : agents_.TakeNews()) {
      if (!news.has_ended) Show(news);
    }
  }
  for (const std::string& path : invitation_files_) ::unlink(path.c_str());
}

void JobRunner::Show(const AgentStarter::News& news) {
  const std::string who =
      news.nodes.size() == 1 ? news.nodes.front() : absl::StrCat(news.nodes.size(), " nodes");
  deps_.console.Message(absl::StrCat(who, ": ", news.text));
}

// What agents' commands print can wait for a tick: with thousands of nodes, to look at all of them takes
// longer than most of what wakes this up.
void JobRunner::PollOnce() {
  std::vector<pollfd> fds = {
      {deps_.signals.fd(), POLLIN, 0}, {deps_.service.notice_fd(), POLLIN, 0}, {deps_.disk.fd(), POLLIN, 0}};
  if (local_) local_->AddPollFds(fds);
  const absl::Duration until_tick = std::max(next_tick_ - Now(), absl::ZeroDuration());
  const int until_tick_ms =
      static_cast<int>(absl::ToInt64Milliseconds(absl::Ceil(until_tick, absl::Milliseconds(1))));
  ::poll(fds.data(), fds.size(), local_ ? local_->PollMs(until_tick) : until_tick_ms);
  HandleSignals();
  HandleNotices();  // whoever has announced its end has done so before it ends
  HandleNodes();
  if (local_) local_->Advance();
  if (Now() >= next_tick_) {
    HandleAgentCommands();
    Decide(rendezvous::SupervisorTick{});
    for (JobWatcher* watcher : deps_.options.watchers) {
      for (const std::string& message : watcher->TakeMessages()) deps_.console.Message(message);
    }
    next_tick_ = Now() + tick_;
  }
  if (Now() >= next_checkpoint_look_) {
    LookForCheckpoint();
    next_checkpoint_look_ = Now() + kCheckpointLookInterval;
  }
  HandleDisk();
}

void JobRunner::HandleSignals() {
  for (const int signal_number : deps_.signals.Take()) {
    Decide(rendezvous::Interrupted{SignalName(signal_number), signal_number == SIGINT});
  }
}

void JobRunner::HandleNotices() {
  for (const rendezvous::Notice& notice : deps_.service.TakeNotices()) Decide(notice);
}

void JobRunner::HandleNodes() {
  for (rendezvous::NodeNews& news : deps_.service.TakeNodeNews()) {
    std::visit([&](auto& what) { Handle(news.node, std::move(what)); }, news.what);
  }
}

void JobRunner::HandleAgentCommands() {
  const std::vector<AgentStarter::News> all = agents_.TakeNews();
  for (size_t i = 0; i < all.size(); ++i) {
    const AgentStarter::News& news = all[i];
    // The reason why a node is lost includes the last line of its command.
    const bool is_reason = i + 1 < all.size() && all[i + 1].has_ended && all[i + 1].nodes == news.nodes &&
                           absl::EndsWith(all[i + 1].text, absl::StrCat(": ", news.text));
    if (!news.has_ended && !is_reason) Show(news);
    for (const std::string& node : news.nodes) {
      if (news.has_ended) deps_.service.NoteAgentCommandEnded(node, news.text);
    }
  }
}

void JobRunner::Handle(const std::string& node, rendezvous::NodeOffer offer) {
  Decide(rendezvous::NodeReady{node, std::move(offer.slots), std::move(offer.facts)});
}

void JobRunner::Handle(const std::string& node, rendezvous::NodeEvent event) {
  Decide(rendezvous::NodeReport{node, std::move(event)});
}

void JobRunner::Handle(const std::string& node, const rendezvous::NodeNews::Line& line) {
  deps_.console.Show({node, line.rank, line.text});
}

void JobRunner::Handle(const std::string& node, const rendezvous::NodeNews::Dropped& dropped) {
  deps_.console.Message(
      absl::StrCat(node, ": ", dropped.num_lines,
                   " lines were not shown because the connection was too slow; the logs have them"));
}

void JobRunner::Handle(const std::string& node, const rendezvous::NodeNews::Gone& gone) {
  Decide(rendezvous::NodeLost{node, gone.why});
}

void JobRunner::LookForCheckpoint() {
  if (news_->is_looking.exchange(true)) return;
  deps_.disk.Post([run = deps_.options.run, news = news_, above = supervisor_.checkpoint_step()] {
    const absl::Status in_place = run->CheckInPlace();
    if (in_place.ok()) {
      const int64_t step = run->NewestCheckpointStep(above);
      if (step > above) news->checkpoint_step = step;
    } else {
      std::lock_guard lock(news->mutex);
      news->lost_folder = in_place;
    }
    news->is_looking = false;
    return absl::OkStatus();
  });
}

void JobRunner::HandleDisk() {
  ShowDiskErrors();
  if (const int64_t recorded = news_->recorded_generation; recorded > told_generation_) {
    told_generation_ = recorded;
    Decide(rendezvous::GenerationRecorded{recorded});
  }
  absl::Status lost;
  {
    std::lock_guard lock(news_->mutex);
    lost = news_->lost_folder;
  }
  if (!lost.ok()) Decide(rendezvous::FolderLost{lost});
  if (const int64_t step = news_->checkpoint_step; step > supervisor_.checkpoint_step()) {
    Decide(rendezvous::CheckpointSeen{step});
  }
}

// ---- what the supervisor decides ----------------------------------------------------------------

// What an action leads to waits until all actions of its event are carried out.
void JobRunner::Decide(rendezvous::SupervisorEvent event) {
  events_.push_back(std::move(event));
  if (std::exchange(is_deciding_, true)) return;
  while (!events_.empty()) {
    const rendezvous::SupervisorEvent next = std::move(events_.front());
    events_.pop_front();
    for (const rendezvous::SupervisorAction& action : supervisor_.Decide(Now(), next)) {
      std::visit([&](const auto& what) { Do(what); }, action);
    }
  }
  is_deciding_ = false;
  StartAgents();
}

void JobRunner::Do(const rendezvous::ToNode& action) {
  if (local_) {
    local_->Handle(action.command);
  } else {
    deps_.service.SendToNode(action.node, action.command);
  }
}

void JobRunner::Do(const rendezvous::StartAgent& action) {
  if (local_) return Decide(rendezvous::NodeReady{action.node, local_slots_});
  to_start_.push_back(action.node);
}

// All that were asked for at once: a step of Slurm holds many.
void JobRunner::StartAgents() {
  const std::vector<std::string> nodes = std::exchange(to_start_, {});
  if (nodes.empty()) return;
  const auto lose = [&](const std::string& node, const absl::Status& status) {
    if (!status.ok()) Decide(rendezvous::NodeLost{node, std::string(status.message())});
  };
  if (deps_.options.remote->starter == RemoteNodes::Starter::kSlurm) {
    const absl::Status status = StartStep(nodes);
    for (const std::string& node : nodes) lose(node, status);
    return;
  }
  for (const std::string& node : nodes) lose(node, StartWithInput(node));
}

absl::Status JobRunner::StartWithInput(const std::string& name) {
  const RemoteNodes& remote = *deps_.options.remote;
  const auto node =
      absl::c_find_if(remote.nodes, [&](const RemoteNodes::Node& each) { return each.name == name; });
  const bool is_of_pods = remote.starter == RemoteNodes::Starter::kPods;
  if (is_of_pods && node != remote.nodes.begin()) return absl::OkStatus();  // its pod comes by itself
  TRAINCTL_ASSIGN_OR_RETURN(const std::string invitation, deps_.service.Invite(name));
  return agents_.Start({name},
                       is_of_pods ? std::vector<std::string>{remote.program, "agent"}
                                  : SshCommand(remote.starter_options, node->host, remote.program),
                       absl::StrCat(invitation, "\n"));
}

absl::Status JobRunner::StartStep(const std::vector<std::string>& nodes) {
  const RemoteNodes& remote = *deps_.options.remote;
  std::string lines;
  for (const std::string& node : nodes) {
    TRAINCTL_ASSIGN_OR_RETURN(const std::string invitation, deps_.service.Invite(node));
    absl::StrAppend(&lines, invitation, "\n");
  }
  // One file for each step: the one before may not have been read yet.
  const std::string path = absl::StrCat(deps_.options.run->path(), "/invitations-", ++num_steps_);
  invitation_files_.push_back(path);
  TRAINCTL_RETURN_IF_ERROR(WriteSecretFile(path, lines));
  return agents_.Start(nodes, SrunCommand(remote.starter_options, nodes, remote.program, path), "");
}

void JobRunner::Do(const rendezvous::ToCoordinator& action) { deps_.service.Submit(action.event); }

void JobRunner::Do(const rendezvous::RecordGeneration& action) {
  run::JournalEvent event{run::EventKind::kGeneration};
  event.generation = action.generation;
  event.world_size = action.world_size;
  deps_.disk.Post(
      [run = deps_.options.run, journal = deps_.journal, news = news_, event = Tell(std::move(event))] {
        TRAINCTL_RETURN_IF_ERROR(run->CheckGranted());
        absl::Status status = run->RecordGeneration(event.generation);
        status.Update(journal->Append(event));
        news->recorded_generation = event.generation;
        return status;
      });
}

void JobRunner::Do(const rendezvous::RecordStop& action) {
  run::JournalEvent event{run::EventKind::kStop};
  event.message = action.message;
  Record(std::move(event));
}

void JobRunner::Do(const rendezvous::RecordCheckpoint& action) {
  run::JournalEvent event{run::EventKind::kCheckpoint};
  event.step = action.step;
  event.generation = action.generation;
  Record(std::move(event));
}

void JobRunner::Do(const rendezvous::RecordFailure& action) {
  run::JournalEvent event{run::EventKind::kWorkerExit};
  event.generation = action.generation;
  event.rank = action.facts.rank;
  event.step = action.facts.step;
  event.exit_code = action.facts.exit_code;
  event.message = action.facts.message;
  event.host = action.facts.node;
  Record(std::move(event));
}

void JobRunner::Do(const rendezvous::RecordRestart& action) {
  run::JournalEvent event{run::EventKind::kRestart};
  event.message = action.reason;
  Record(std::move(event));
}

void JobRunner::Do(const rendezvous::Say& action) { deps_.console.Message(action.text); }

void JobRunner::Do(const rendezvous::ShowProgress& action) {
  const JobProgress progress = {action.generation, action.rank, static_cast<int>(action.num_restarts),
                                action.progress};
  deps_.console.Report(progress);
  for (JobWatcher* watcher : deps_.options.watchers) watcher->OnProgress(progress);
}

void JobRunner::Do(const rendezvous::Settle& action) {
  LookForCheckpoint();
  deps_.disk.Wait(deps_.options.disk_patience);
  HandleDisk();
  Decide(rendezvous::Settled{});
}

void JobRunner::Do(const rendezvous::CheckRestart& action) {
  const auto& check = deps_.options.check_restart;
  Decide(rendezvous::RestartChecked{check ? check() : absl::OkStatus()});
}

void JobRunner::Do(const rendezvous::Conclude& action) { outcome_ = action.outcome; }

}  // namespace trainctl::launcher
