// A preparation that is killed, stopped or cut off goes on, and ends with the bytes of an undisturbed one.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <map>
#include <random>
#include <sstream>

#include "base/status.h"
#include "data/prepare.h"
#include "data/prepare_state.h"
#include "tests/unit/data/data_test_util.h"

namespace trainctl::data {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
namespace fs = std::filesystem;

std::string Contents(const std::string& path) {
  std::ostringstream out;
  out << std::ifstream(path, std::ios::binary).rdbuf();
  return out.str();
}

class PrepareKillTest : public DataTest {
 protected:
  void SetUp() override {
    DataTest::SetUp();
    SetUpInputs();
  }

  void SetUpInputs() {
    inputs_ = {Write("a.txt", "ab a b"), Write("b.jsonl", Lines(120)), Write("empty.txt", ""),
               Write("c.jsonl", Lines(150)), Write("d.txt", std::string(500, 'b'))};
    WriteTokenizer("tokenizer.json");
  }

  static std::string Lines(int count) {
    std::string lines = "{\"text\":\"\"}\n";
    for (int i = 0; i < count; ++i) lines += "{\"text\":\"" + std::string(i % 37, 'a') + "b a\"}\n";
    return lines;
  }

  PrepareOptions Options(bool with_tokenizer, int threads = 2) {
    PrepareOptions options;
    options.inputs = inputs_;
    options.prefix = Path("out/corpus");
    options.tokenizer = with_tokenizer ? Path("tokenizer.json") : "byte";
    options.end_of_document = true;
    options.num_threads = threads;
    options.commit_every = absl::InfiniteDuration();
    options.commit_tokens = 400;
    options.program = "1";
    options.note = [this](absl::string_view line) { notes_.emplace_back(line); };
    return options;
  }

  // Every file that is there now, by name.
  std::map<std::string, std::string> Files() {
    std::map<std::string, std::string> files;
    if (!fs::exists(Path("out"))) return files;
    for (const auto& entry : fs::directory_iterator(Path("out"))) {
      files[entry.path().filename().string()] = Contents(entry.path().string());
    }
    return files;
  }

  // The files of an undisturbed preparation, which are removed again.
  std::map<std::string, std::string> Undisturbed(PrepareOptions options) {
    options.commit_tokens = int64_t{1} << 60;
    const auto dataset = Prepare(options);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    const auto files = Files();
    EXPECT_EQ(files.size(), 3u);
    fs::remove_all(Path("out"));
    return files;
  }

  // A process of its own that kills itself when it reaches `moment` for the n-th time. False: it came to the
  // end before that.
  static bool KillAt(PrepareOptions options, const std::string& moment, int n) {
    const pid_t child = ::fork();
    if (child == 0) {
      options.note = {};
      options.reached = [&moment, &n](const char* reached) {
        if (moment == reached && --n == 0) ::kill(::getpid(), SIGKILL);
      };
      ::_exit(Prepare(options).ok() ? 0 : 1);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) return true;
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << moment << " " << status;
    return false;
  }

  // What a power cut may do to bytes that were never promised: they are gone, or they are something else.
  void LoseUnpromisedBytes(std::mt19937& random) {
    const auto state = LoadState(Path("out/corpus"));
    ASSERT_TRUE(state.ok()) << state.status();
    if (!state->has_value() || (*state)->is_sealed) return;
    const int64_t token_bytes = 2;  // uint16 in both
    const std::pair<std::string, int64_t> promised[] = {
        {Path("out/corpus.bin.part"), (*state)->tokens() * token_bytes},
        {Path("out/corpus.documents.part"), (*state)->documents() * 8}};
    for (const auto& [path, num_bytes] : promised) {
      ASSERT_GE(static_cast<int64_t>(fs::file_size(path)), num_bytes) << path;
      const auto choice = random() % 3;
      if (choice == 0) fs::resize_file(path, num_bytes);
      if (choice == 1) {
        fs::resize_file(path, num_bytes);
        fs::resize_file(path, num_bytes + random() % 999);  // zeros
      }
      if (choice == 2) std::ofstream(path, std::ios::binary | std::ios::app) << "rubbish";
    }
  }

  std::vector<std::string> inputs_;
  std::vector<std::string> notes_;
};

TEST_F(PrepareKillTest, AKillAtAnyMomentCostsNoByte) {
  std::mt19937 random(20261122);
  for (const bool with_tokenizer : {false, true}) {
    const auto expected = Undisturbed(Options(with_tokenizer));
    int num_kills = 0, num_continued = 0;
    for (const char* moment :
         {"taken", "taken", "taken", "taken", "data_synced", "data_synced", "committed", "committed",
          "sealed", "renamed_data", "renamed_index", "described", "cleaned"}) {
      // Killed again and again, each time a while later, with another number of threads.
      const int most = std::strcmp(moment, "taken") == 0 ? 250 : 4;
      for (int i = 0; i < 3; ++i) {
        PrepareOptions options = Options(with_tokenizer, 1 + i);
        options.commit_tokens = 700;
        const int n = static_cast<int>(random() % most) + 1;
        if (!KillAt(options, moment, i == 0 ? n : std::max(1, n / 4))) break;
        ++num_kills;
        const auto files = Files();
        if (files.count("corpus.idx") > 0) {
          EXPECT_EQ(files.at("corpus.idx"), expected.at("corpus.idx")) << moment;
          EXPECT_EQ(files.at("corpus.bin"), expected.at("corpus.bin")) << moment;
        }
        LoseUnpromisedBytes(random);
      }
      notes_.clear();
      const bool has_state = fs::exists(Path("out/corpus.prepare.part"));
      PrepareOptions options = Options(with_tokenizer, 3);
      options.commit_tokens = 700;
      // After the last of its moments nothing is left to go on from but what is complete.
      options.overwrite = !has_state;
      const auto dataset = Prepare(options);
      ASSERT_TRUE(dataset.ok()) << moment << ": " << dataset.status();
      EXPECT_TRUE(Files() == expected) << moment;
      if (has_state) {
        ++num_continued;
        ASSERT_EQ(notes_.size(), 1u) << moment;
        EXPECT_THAT(notes_[0], testing::AnyOf(HasSubstr("resuming after"),
                                              HasSubstr("only renaming the files remained")))
            << moment;
      }
      fs::remove_all(Path("out"));
    }
    EXPECT_GE(num_kills, 20);
    EXPECT_GE(num_continued, 6);
  }
}

TEST_F(PrepareKillTest, WhatWasDoneIsNotDoneAgain) {
  ASSERT_TRUE(KillAt(Options(true), "committed", 3));
  const auto state = LoadState(Path("out/corpus"));
  ASSERT_TRUE(state.ok() && state->has_value());
  const int64_t before = (*state)->documents();
  ASSERT_GT(before, 20);
  int64_t taken = 0;
  PrepareOptions options = Options(true);
  options.reached = [&taken](const char* moment) { taken += std::strcmp(moment, "taken") == 0 ? 1 : 0; };
  const auto dataset = Prepare(options);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(dataset->documents, 272);
  EXPECT_EQ(taken, 272 - before);
}

TEST_F(PrepareKillTest, AStopMakesSafeWhatIsDone) {
  const auto expected = Undisturbed(Options(true));
  std::atomic<bool> stop{false};
  PrepareOptions options = Options(true);
  options.commit_tokens = int64_t{1} << 60;  // nothing is safe yet when the stop comes
  options.stop = &stop;
  int countdown = 100;
  options.reached = [&](const char*) { stop = --countdown <= 0; };
  const absl::Status stopped = Prepare(options).status();
  EXPECT_TRUE(absl::IsCancelled(stopped)) << stopped;
  EXPECT_THAT(stopped.message(), HasSubstr("run the same command to continue"));
  const auto state = LoadState(Path("out/corpus"));
  ASSERT_TRUE(state.ok() && state->has_value());
  EXPECT_EQ((*state)->documents(), 100);
  const auto dataset = Prepare(Options(true));
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_TRUE(Files() == expected);

  // Stopped before anything was done: nothing is there to go on from, and nothing is left.
  fs::remove_all(Path("out"));
  stop = true;
  options.reached = {};
  const absl::Status early = Prepare(options).status();
  EXPECT_TRUE(absl::IsCancelled(early));
  EXPECT_THAT(early.message(), testing::Not(HasSubstr("continues")));
  EXPECT_THAT(Files(), IsEmpty());
}

TEST_F(PrepareKillTest, AStopWhileOldTextsArePassedOverKeepsThem) {
  ASSERT_TRUE(KillAt(Options(false), "committed", 6));
  const auto before = LoadState(Path("out/corpus"));
  ASSERT_TRUE(before.ok() && before->has_value());
  ASSERT_GE((*before)->sources.size(), 2u) << "in a later source";
  std::atomic<bool> stop{true};
  PrepareOptions options = Options(false);
  options.stop = &stop;
  EXPECT_TRUE(absl::IsCancelled(Prepare(options).status()));
  const auto after = LoadState(Path("out/corpus"));
  ASSERT_TRUE(after.ok() && after->has_value());
  EXPECT_EQ((*after)->documents(), (*before)->documents());
}

TEST_F(PrepareKillTest, AChangedInputAndAllBehindItAreMadeAnew) {
  const auto fill = [this] { ASSERT_TRUE(KillAt(Options(true), "committed", 8)); };  // within c.jsonl
  struct Case {
    const char* words;
    std::function<void()> change;
  };
  for (const Case& c : std::vector<Case>{
           {"b.jsonl has changed", [this] { Write("b.jsonl", Lines(119) + "{\"text\":\"b\"}\n"); }},
           {"input 2 was", [this] { inputs_.erase(inputs_.begin() + 1); }},
           {"empty.txt is no longer an input", [this] { inputs_.resize(2); }}}) {
    SetUpInputs();
    fill();
    c.change();
    notes_.clear();
    const auto dataset = Prepare(Options(true));
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    ASSERT_EQ(notes_.size(), 1u);
    EXPECT_THAT(notes_[0], HasSubstr("resuming after"));
    EXPECT_THAT(notes_[0], HasSubstr(c.words));
    const auto files = Files();
    fs::remove_all(Path("out"));
    EXPECT_TRUE(files == Undisturbed(Options(true))) << c.words;
  }
  // More inputs at the end change nothing of what is done.
  SetUpInputs();
  fill();
  inputs_.push_back(Write("e.txt", "a b"));
  notes_.clear();
  ASSERT_TRUE(Prepare(Options(true)).ok());
  EXPECT_THAT(notes_[0], testing::Not(HasSubstr("repeated")));
  const auto files = Files();
  fs::remove_all(Path("out"));
  EXPECT_TRUE(files == Undisturbed(Options(true)));
}

TEST_F(PrepareKillTest, OtherOptionsBeginAnewAndSayWhy) {
  struct Case {
    const char* words;
    std::function<void(PrepareOptions&)> change;
  };
  for (const Case& c : std::vector<Case>{
           {"the tokenizer was",
            [this](PrepareOptions&) { std::ofstream(Path("tokenizer.json"), std::ios::app) << "\n"; }},
           {"the tokenizer was", [](PrepareOptions& options) { options.tokenizer = "byte"; }},
           {"--end-of-document was </s> and is now off",
            [](PrepareOptions& options) { options.end_of_document = false; }},
           {"the version of trainctl", [](PrepareOptions& options) { options.program = "2"; }},
           {"--restart", [](PrepareOptions& options) { options.restart = true; }},
           {"a.txt has changed", [this](PrepareOptions&) { Write("a.txt", "b"); }},
           {"a.txt was read as text",
            [this](PrepareOptions& options) {
              Write("a.txt", "ab a b");
              options.inputs.resize(1);
              Write("a.txt", "{\"text\":\"a\"}");
              options.kind = "jsonl";
            }},
           {"has 100 bytes, too few",
            [this](PrepareOptions&) { fs::resize_file(Path("out/corpus.bin.part"), 100); }},
           {"too few for",
            [this](PrepareOptions&) { fs::resize_file(Path("out/corpus.documents.part"), 9); }},
           {"cannot have",
            [this](PrepareOptions&) {
              std::fstream file(Path("out/corpus.documents.part"), std::ios::in | std::ios::out);
              file.seekp(7);
              file.put('\x7f');
            }},
           {"corpus.prepare.part",
            [this](PrepareOptions&) { Write("out/corpus.prepare.part", "{\"sch"); }}}) {
    fs::remove_all(Path("out"));
    SetUpInputs();
    ASSERT_TRUE(KillAt(Options(true), "committed", 2));
    PrepareOptions options = Options(true);
    c.change(options);
    notes_.clear();
    const auto dataset = Prepare(options);
    ASSERT_TRUE(dataset.ok()) << c.words << dataset.status();
    ASSERT_FALSE(notes_.empty()) << c.words;
    EXPECT_THAT(notes_.back(), HasSubstr("starting over")) << c.words;
    EXPECT_THAT(notes_.back(), HasSubstr(c.words));
    const auto files = Files();
    fs::remove_all(Path("out"));
    EXPECT_TRUE(files == Undisturbed(options)) << c.words;
  }
}

TEST_F(PrepareKillTest, BadInputBehindACommitCostsOnlyItsFile) {
  const std::string good = Lines(150);
  Write("c.jsonl", good + "rubbish\n");
  const absl::Status status = Prepare(Options(false)).status();
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kBadData);
  EXPECT_THAT(status.message(), HasSubstr("c.jsonl:152"));
  EXPECT_THAT(status.message(), HasSubstr("run the same command to continue"));
  EXPECT_EQ(Files().count("corpus.idx"), 0u);
  Write("c.jsonl", good);
  const auto dataset = Prepare(Options(false));
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  ASSERT_EQ(notes_.size(), 1u);
  EXPECT_THAT(notes_[0], HasSubstr("resuming after 121 documents"));
  EXPECT_THAT(notes_[0], HasSubstr("c.jsonl has changed"));
  const auto files = Files();
  fs::remove_all(Path("out"));
  EXPECT_TRUE(files == Undisturbed(Options(false)));
}

TEST_F(PrepareKillTest, ABadLineBehindACommitCanBeSkippedWithoutDoingTheRestAgain) {
  Write("c.jsonl", Lines(150) + "rubbish\n" + Lines(9));
  const absl::Status status = Prepare(Options(false)).status();
  EXPECT_THAT(status.message(),
              HasSubstr("c.jsonl:152:1: not valid JSON; to skip such lines, use --on-bad-line skip"));
  PrepareOptions skips = Options(false);
  skips.on_bad_line = "skip";
  notes_.clear();
  const auto dataset = Prepare(skips);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT(notes_, testing::ElementsAre(testing::StartsWith("resuming after")));
  EXPECT_EQ(dataset->left_out.count, 1);
  const auto files = Files();
  fs::remove_all(Path("out"));
  EXPECT_TRUE(files == Undisturbed(skips));

  // The reverse does not continue: the line that was left out would have stopped the preparation.
  ASSERT_TRUE(KillAt(skips, "sealed", 1));
  notes_.clear();
  EXPECT_THAT(Prepare(Options(false)).status().message(), HasSubstr("c.jsonl:152:1"));
  EXPECT_THAT(notes_, testing::ElementsAre("starting over: --on-bad-line was skip and is now stop"));
}

// This process's standard input, from a file, until destruction.
class StandardInputFrom {
 public:
  explicit StandardInputFrom(const std::string& path) : before_(::dup(STDIN_FILENO)) {
    const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    EXPECT_GE(file, 0);
    EXPECT_EQ(::dup2(file, STDIN_FILENO), STDIN_FILENO);
    ::close(file);
  }
  ~StandardInputFrom() {
    ::dup2(before_, STDIN_FILENO);
    ::close(before_);
  }

 private:
  int before_;
};

TEST_F(PrepareKillTest, StandardInputIsNeverContinued) {
  PrepareOptions from_file = Options(false);
  from_file.inputs = {Path("b.jsonl")};
  const auto expected = Undisturbed(from_file);
  PrepareOptions options = from_file;
  options.inputs = {kStandardInput};
  options.kind = "jsonl";
  const StandardInputFrom input(Path("b.jsonl"));
  EXPECT_FALSE(KillAt(options, "committed", 1)) << "there is no commit";
  fs::remove_all(Path("out"));
  // Files that another preparation left are not used, nor are files that lack only their final names.
  ASSERT_EQ(::lseek(STDIN_FILENO, 0, SEEK_SET), 0);
  ASSERT_TRUE(KillAt(options, "sealed", 1));
  notes_.clear();
  ASSERT_EQ(::lseek(STDIN_FILENO, 0, SEEK_SET), 0);
  const auto dataset = Prepare(options);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT(notes_,
              testing::ElementsAre(HasSubstr("starting over: an interrupted preparation of standard input")));
  auto files = Files();
  EXPECT_EQ(files["corpus.bin"], expected.at("corpus.bin"));
  EXPECT_EQ(files["corpus.idx"], expected.at("corpus.idx"));
  EXPECT_THAT(files["corpus.json"], HasSubstr("\"path\": \"-\""));
  EXPECT_EQ(files.size(), 3u);

  std::atomic<bool> stop = true;
  options.stop = &stop;
  options.overwrite = true;
  const absl::Status stopped = Prepare(options).status();
  EXPECT_TRUE(absl::IsCancelled(stopped));
  EXPECT_THAT(stopped.message(), HasSubstr("no standard input is kept"));
  EXPECT_FALSE(CanGoOn(options.prefix));
}

TEST_F(PrepareKillTest, LinesLeftOutBeforeAKillAreStillCounted) {
  Write("b.jsonl", "rubbish\n" + Lines(60) + "[]\n" + Lines(60));
  Write("c.jsonl", Lines(150) + "7\n");
  PrepareOptions options = Options(true);
  options.on_bad_line = "skip";
  const auto undisturbed = Undisturbed(options);
  for (int n = 1; n <= 6; ++n) {
    ASSERT_TRUE(KillAt(options, n < 6 ? "committed" : "sealed", n < 6 ? n : 1)) << n;
    const auto dataset = Prepare(options);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ(dataset->left_out.count, 3) << n;
    EXPECT_THAT(dataset->left_out.first,
                testing::ElementsAre(Path("b.jsonl") + ":1:1: not valid JSON",
                                     Path("b.jsonl") + ":63: each line must be a JSON object",
                                     Path("c.jsonl") + ":152: each line must be a JSON object"));
    EXPECT_TRUE(Files() == undisturbed) << n;
    fs::remove_all(Path("out"));
  }
}

TEST_F(PrepareKillTest, TwoPreparationsOfOneOutputDoNotMeet) {
  PrepareOptions options = Options(false);
  absl::Status second;
  options.reached = [&](const char* moment) {
    if (std::strcmp(moment, "committed") == 0 && second.ok()) second = Prepare(Options(false)).status();
  };
  const auto dataset = Prepare(options);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(ExitCodeFor(second), ExitCode::kEnvironment) << second;
  EXPECT_THAT(second.message(), HasSubstr("is being written by another process"));
  const auto files = Files();
  fs::remove_all(Path("out"));
  EXPECT_TRUE(files == Undisturbed(Options(false)));
}

TEST_F(PrepareKillTest, AStateFromElsewhereIsReadWithCare) {
  ASSERT_TRUE(KillAt(Options(true), "committed", 2));
  const auto state = LoadState(Path("out/corpus"));
  ASSERT_TRUE(state.ok() && state->has_value());
  const std::string text = StateJson(**state);
  const auto parsed = ParseState(text, "s");
  ASSERT_TRUE(parsed.ok()) << parsed.status();
  EXPECT_EQ(StateJson(*parsed), text);
  // Cut anywhere, and with any digit turned into rubbish: an error or a state, never worse.
  for (size_t i = 0; i < text.size(); ++i) {
    EXPECT_FALSE(ParseState(text.substr(0, i), "s").ok());
    std::string bent = text;
    bent[i] = bent[i] == '-' ? '9' : '-';
    (void)ParseState(bent, "s");
  }
  std::string older = text;
  older.replace(older.find("prepare.v1"), 10, "prepare.v9");
  EXPECT_THAT(ParseState(older, "s").status().message(), HasSubstr("prepare.v9"));
}

}  // namespace
}  // namespace trainctl::data
