// A real server on loopback, and clients that behave and that do not.
#include "monitor/metrics_server.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace trainctl::monitor {
namespace {

using testing::AllOf;
using testing::EndsWith;
using testing::HasSubstr;
using testing::StartsWith;

constexpr char kGet[] = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";

class Client {
 public:
  explicit Client(const std::string& url) {
    int port = 0;
    const size_t colon = url.rfind(':');
    EXPECT_TRUE(absl::SimpleAtoi(url.substr(colon + 1, url.rfind('/') - colon - 1), &port)) << url;
    fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(static_cast<uint16_t>(port))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  ~Client() { ::close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // False if the server has closed the connection.
  bool Send(const std::string& text) const {
    return ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(text.size());
  }
  // All until the server closes.
  std::string Receive() const {
    std::string text;
    char buffer[4096];
    for (ssize_t count; (count = ::recv(fd_, buffer, sizeof(buffer), 0)) > 0;)
      text.append(buffer, static_cast<size_t>(count));
    return text;
  }

 private:
  int fd_ = -1;
};

std::unique_ptr<MetricsServer> Start(const MetricsServer::Limits& limits = {}, size_t num_samples = 1) {
  auto server = MetricsServer::Listen("127.0.0.1:0", limits);
  EXPECT_TRUE(server.ok()) << server.status();
  (*server)->Serve([num_samples] {
    MetricFamily family = {.name = "x_loss", .help = "Loss."};
    for (size_t i = 0; i < num_samples; ++i) family.samples.push_back({{{"rank", absl::StrCat(i)}}, 2.5});
    return std::vector<MetricFamily>{family};
  });
  return *std::move(server);
}

std::string Ask(const MetricsServer& server, const std::string& request) {
  const Client client(server.url());
  client.Send(request);
  return client.Receive();
}

TEST(MetricsServer, AnswersInTheFormatThatIsAskedFor) {
  const auto server = Start();
  EXPECT_THAT(server->url(), AllOf(StartsWith("http://127.0.0.1:"), EndsWith("/metrics")));
  EXPECT_THAT(Ask(*server, kGet),
              AllOf(StartsWith("HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4"),
                    EndsWith("x_loss{rank=\"0\"} 2.5\n")));
  const std::string answer = Ask(
      *server, "GET /metrics?x=1 HTTP/1.0\r\naccept:  application/openmetrics-text ; version=1.0.0\r\n\r\n");
  EXPECT_THAT(answer,
              AllOf(HasSubstr("Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8\r\n"),
                    EndsWith("x_loss{rank=\"0\"} 2.5\n# EOF\n")));
  const std::string body = answer.substr(answer.find("\r\n\r\n") + 4);
  EXPECT_THAT(answer, HasSubstr(absl::StrCat("Content-Length: ", body.size(), "\r\n")));
  EXPECT_THAT(Ask(*server, "HEAD /metrics HTTP/1.1\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 200 OK"), EndsWith("\r\n\r\n")));
}

TEST(MetricsServer, ARequestMayComeInPieces) {
  const auto server = Start();
  const Client client(server->url());
  for (const char c : std::string(kGet)) EXPECT_TRUE(client.Send(std::string(1, c)));
  EXPECT_THAT(client.Receive(), StartsWith("HTTP/1.1 200 OK"));
}

TEST(MetricsServer, OtherRequestsAreRefused) {
  const auto server = Start();
  EXPECT_THAT(Ask(*server, "GET / HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Ask(*server, "GET /metrics/../secret HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Ask(*server, "POST /metrics HTTP/1.1\r\n\r\n"),
              AllOf(StartsWith("HTTP/1.1 405"), HasSubstr("Allow: GET, HEAD")));
  for (const char* bad :
       {"\r\n\r\n", "GET /metrics\r\n\r\n", "GET /metrics SSH-2.0\r\n\r\n", "\x16\x03\x01\r\n\r\n"}) {
    EXPECT_THAT(Ask(*server, bad), StartsWith("HTTP/1.1 400")) << bad;
  }
}

TEST(MetricsServer, ARequestWithoutEndIsCutOff) {
  const auto server = Start({.max_request_bytes = 1000});
  EXPECT_THAT(Ask(*server, std::string(1001, 'x')), StartsWith("HTTP/1.1 431"));
  EXPECT_THAT(Ask(*server, kGet), StartsWith("HTTP/1.1 200"));
}

TEST(MetricsServer, IdleConnectionsKeepNobodyOut) {
  const auto server = Start({.max_connections = 3, .patience = absl::InfiniteDuration()});
  std::vector<std::unique_ptr<Client>> idle;
  for (int i = 0; i < 20; ++i) idle.push_back(std::make_unique<Client>(server->url()));
  EXPECT_THAT(Ask(*server, kGet), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(idle.front()->Receive(), "") << "the oldest is closed";
}

TEST(MetricsServer, AConnectionHasLimitedTime) {
  const auto server = Start({.patience = absl::Milliseconds(50)});
  const Client silent(server->url());
  EXPECT_EQ(silent.Receive(), "");
}

// Its answer is larger than the buffers of its socket, and it reads nothing.
TEST(MetricsServer, AClientThatDoesNotReadHoldsNothing) {
  const auto server = Start({.patience = absl::InfiniteDuration()}, 1'000'000);
  const Client slow(server->url());
  EXPECT_TRUE(slow.Send(kGet));
  EXPECT_THAT(Ask(*server, "HEAD /metrics HTTP/1.1\r\n\r\n"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(slow.Receive(), EndsWith("x_loss{rank=\"999999\"} 2.5\n"));
}

TEST(MetricsServer, APortInUseIsAnErrorThatSaysWhatToDo) {
  const auto server = Start();
  const std::string taken = server->url().substr(7, server->url().rfind('/') - 7);
  const absl::Status status = MetricsServer::Listen(taken).status();
  EXPECT_EQ(ExitCodeFor(status), ExitCode::kEnvironment);
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(absl::StrCat("cannot listen on ", taken)),
                                                   HasSubstr("in use"), HasSubstr("port 0")));
  // 192.0.2.0/24 is for documentation: no machine has it.
  EXPECT_THAT(std::string(MetricsServer::Listen("192.0.2.1:0").status().message()),
              HasSubstr("not an address of this machine"));
  EXPECT_EQ(ExitCodeFor(MetricsServer::Listen("9400").status()), ExitCode::kUsage);
}

}  // namespace
}  // namespace trainctl::monitor
