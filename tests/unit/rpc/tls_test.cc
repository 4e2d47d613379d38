// Who gets through, over real sockets: a small server of the job's own service, and certificates that a job's
// authority would never make.
#include "rpc/tls.h"

#include <gmock/gmock.h>
#include <grpcpp/client_context.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/server.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <stdlib.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/files.h"
#include "base/status.h"
#include "proto/trainctl.grpc.pb.h"
#include "rpc/wire.h"

namespace trainctl::rpc {
namespace {

using testing::HasSubstr;

constexpr char kJob[] = "job-1";

// Can be put back, to make what has expired.
class SettableClock : public Clock {
 public:
  absl::Time Now() const override { return absl::Now() + offset; }
  absl::Duration Monotonic() const override { return absl::ZeroDuration(); }
  absl::Duration offset = absl::ZeroDuration();
};

template <auto kFree>
struct Freer {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using Certificate = std::unique_ptr<X509, Freer<X509_free>>;
using Bio = std::unique_ptr<BIO, Freer<BIO_free_all>>;

std::string Text(BIO* bio) {
  char* data = nullptr;
  const long num_bytes = BIO_get_mem_data(bio, &data);
  return std::string(data, num_bytes);
}

// An authority of an attacker, or of tests: it signs any names for any use. Itself is signed by itself.
class AnyAuthority {
 public:
  AnyAuthority() : key_(EVP_EC_gen("P-256")), own_(Make(key_.get(), {{NID_basic_constraints, "CA:TRUE"}})) {}

  std::string ca_pem() const { return Pem(own_.get()); }
  Credential Issue(const std::string& names, const std::string& use) const {
    const Key key(EVP_EC_gen("P-256"));
    return {Pem(key.get()),
            Pem(Make(key.get(), {{NID_subject_alt_name, names}, {NID_ext_key_usage, use}}).get()), ca_pem()};
  }
  // The authority's own certificate, as if it were a peer's.
  Credential Itself() const { return {Pem(key_.get()), ca_pem(), ca_pem()}; }

 private:
  static std::string Pem(X509* certificate) {
    const Bio bio(BIO_new(BIO_s_mem()));
    PEM_write_bio_X509(bio.get(), certificate);
    return Text(bio.get());
  }
  static std::string Pem(EVP_PKEY* key) {
    const Bio bio(BIO_new(BIO_s_mem()));
    PEM_write_bio_PKCS8PrivateKey(bio.get(), key, nullptr, nullptr, 0, nullptr, nullptr);
    return Text(bio.get());
  }
  Certificate Make(EVP_PKEY* key, const std::vector<std::pair<int, std::string>>& extensions) const {
    Certificate certificate(X509_new());
    X509* const c = certificate.get();
    X509_set_version(c, X509_VERSION_3);
    ASN1_INTEGER_set(X509_get_serialNumber(c), 1 + static_cast<long>(reinterpret_cast<uintptr_t>(c) >> 8));
    X509_gmtime_adj(X509_getm_notBefore(c), -3600);
    X509_gmtime_adj(X509_getm_notAfter(c), 3600);
    const bool itself = key == key_.get();
    const auto* name = reinterpret_cast<const unsigned char*>(itself ? "any authority" : "any peer");
    X509_NAME_add_entry_by_txt(X509_get_subject_name(c), "CN", MBSTRING_ASC, name, -1, -1, 0);
    X509_set_issuer_name(c, X509_get_subject_name(itself ? c : own_.get()));
    X509_set_pubkey(c, key);
    for (const auto& [nid, value] : extensions) {
      X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, nullptr, nid, value.c_str());
      EXPECT_NE(extension, nullptr);
      X509_add_ext(c, extension, -1);
      X509_EXTENSION_free(extension);
    }
    EXPECT_GT(X509_sign(c, key_.get(), EVP_sha256()), 0);
    return certificate;
  }

  const Key key_;
  const Certificate own_;
};

// Answers with who calls, or what a caller said.
class WhoCalls : public v1::Trainctl::Service {
 public:
  grpc::Status Status(grpc::ServerContext* context, const v1::StatusRequest*,
                      v1::StatusReply* reply) override {
    const std::optional<Identity> identity = PeerIdentity(*context, kJob);
    reply->set_phase(
        absl::StrCat(IsTls(*context) ? "tls" : "plain", " ",
                     identity ? absl::StrCat(RoleName(identity->role), " ", identity->name) : "nobody"));
    reply->mutable_stop()->assign(num_reply_bytes, 'x');
    return grpc::Status::OK;
  }
  grpc::Status Stop(grpc::ServerContext*, const v1::StopRequest*, v1::StopReply*) override {
    return grpc::Status::OK;
  }
  std::atomic<size_t> num_reply_bytes{0};
};

class TlsTest : public testing::Test {
 protected:
  TlsTest() : authority_(*JobAuthority::Create(kJob, clock_)) {}

  void Serve(const Credential& credential, const std::string& address = "127.0.0.1") {
    const auto credentials = MakeServerCredentials(credential);
    ASSERT_TRUE(credentials.ok()) << credentials.status();
    Serve(*credentials, address);
  }
  void Serve(const std::shared_ptr<grpc::ServerCredentials>& credentials, const std::string& address) {
    int port = 0;
    grpc::ServerBuilder builder;
    SetServerLimits(builder, kMaxMessageBytes);
    builder.AddListeningPort(absl::StrCat(address, ":0"), credentials, &port);
    builder.RegisterService(&service_);
    server_ = builder.BuildAndStart();
    ASSERT_TRUE(server_ != nullptr && port != 0);
    endpoint_ = absl::StrCat(address, ":", port);
  }
  void Serve() { Serve(*authority_->Issue({Role::kCoordinator, "head"})); }

  // What the server sees of who calls so: the first word of the answer is the transport.
  absl::StatusOr<std::string> Call(const std::shared_ptr<grpc::Channel>& channel) {
    const auto stub = v1::Trainctl::NewStub(channel);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(2));
    v1::StatusReply reply;
    const grpc::Status status = stub->Status(&context, {}, &reply);
    if (!status.ok())
      return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
    return reply.phase();
  }
  absl::StatusOr<std::string> Call(const Credential& credential) {
    const auto credentials = MakeClientCredentials(credential);
    EXPECT_TRUE(credentials.ok()) << credentials.status();
    return Call(*MakeTlsChannel(endpoint_, *credentials));
  }
  // As somebody does who does not use our checks.
  absl::StatusOr<std::string> CallUnchecked(const Credential& credential) {
    return Call(*MakeTlsChannel(
        endpoint_, grpc::SslCredentials({credential.ca_pem, credential.key_pem, credential.cert_pem})));
  }
  Credential Newcomer() const { return *authority_->Issue({Role::kBootstrap, "agent"}); }

  static void ExpectRefused(const absl::StatusOr<std::string>& answer) {
    EXPECT_EQ(answer.status().code(), absl::StatusCode::kUnavailable)
        << (answer.ok() ? *answer : answer.status().ToString());
  }

  SettableClock clock_;
  std::unique_ptr<JobAuthority> authority_;
  WhoCalls service_;
  std::string endpoint_;
  std::unique_ptr<grpc::Server> server_;
};

TEST_F(TlsTest, WithoutACertificateThereIsNoConnection) {
  Serve();
  ExpectRefused(CallUnchecked({.ca_pem = authority_->ca_pem()}));
}

TEST_F(TlsTest, TheBootstrapCertificateIsKnown) {
  Serve();
  EXPECT_EQ(*Call(Newcomer()), "tls bootstrap agent");
}

TEST_F(TlsTest, AnAgentIsKnownByTheCertificateThatItEnrolledFor) {
  Serve();
  const KeyAndRequest mine = *MakeKeyAndRequest();
  const auto pem = authority_->Enroll("node-3.rack", *authority_->MakeToken("node-3.rack"), mine.csr_pem);
  ASSERT_TRUE(pem.ok()) << pem.status();
  const auto answer = Call({mine.key_pem, *pem, authority_->ca_pem()});
  ASSERT_TRUE(answer.ok()) << answer.status();
  EXPECT_EQ(*answer, "tls agent node-3.rack");
}

TEST_F(TlsTest, AdminsAndReadersAreKnown) {
  Serve();
  EXPECT_EQ(*Call(*authority_->Issue({Role::kAdmin, "me"})), "tls admin me");
  EXPECT_EQ(*Call(*authority_->Issue({Role::kReader, "me"})), "tls reader me");
}

TEST_F(TlsTest, AServerOnIpv6IsReached) {
  const auto credentials = MakeServerCredentials(*authority_->Issue({Role::kCoordinator, "head"}));
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("[::1]:0", *credentials, &port);
  builder.RegisterService(&service_);
  server_ = builder.BuildAndStart();
  if (server_ == nullptr || port == 0) GTEST_SKIP() << "no IPv6 here";
  endpoint_ = absl::StrCat("[::1]:", port);
  EXPECT_EQ(*Call(*authority_->Issue({Role::kAgent, "n"})), "tls agent n");
}

TEST_F(TlsTest, CertificatesOfOthersAreRefused) {
  Serve();
  const auto foreign = *JobAuthority::Create(kJob, clock_);  // even of one that calls itself the same
  Credential stranger = *foreign->Issue({Role::kAgent, "n"});
  stranger.ca_pem = authority_->ca_pem();
  EXPECT_FALSE(MakeClientCredentials(stranger).ok());
  ExpectRefused(CallUnchecked(stranger));

  const AnyAuthority any;
  Credential forged = any.Issue("URI:trainctl://job-1/admin/me", "clientAuth");
  forged.ca_pem = authority_->ca_pem();
  ExpectRefused(CallUnchecked(forged));
  Credential self_signed = any.Itself();
  self_signed.ca_pem = authority_->ca_pem();
  ExpectRefused(CallUnchecked(self_signed));
  // And an honest one still gets through.
  EXPECT_TRUE(Call(*authority_->Issue({Role::kAgent, "n"})).ok());
}

TEST_F(TlsTest, ACertificateOutsideItsDatesIsRefused) {
  Serve();
  clock_.offset = -(kCertificateLifetime + absl::Hours(1));
  const Credential expired = *authority_->Issue({Role::kAgent, "n"});
  clock_.offset = kCertificateBackdate + absl::Hours(1);
  const Credential early = *authority_->Issue({Role::kAgent, "n"});
  ExpectRefused(CallUnchecked(expired));
  ExpectRefused(CallUnchecked(early));
  clock_.offset = kCertificateBackdate - absl::Hours(1);  // a clock that is fast, within what is allowed for
  EXPECT_TRUE(Call(*authority_->Issue({Role::kAgent, "n"})).ok());
}

TEST_F(TlsTest, TheCoordinatorsCertificateIsNoClients) {
  Serve();
  ExpectRefused(Call(*authority_->Issue({Role::kCoordinator, "head"})));
}

TEST_F(TlsTest, ACertificateThatNamesNobodyOfTheJobIsNobodys) {
  // Signed by whom the server trusts all the same.
  const AnyAuthority any;
  Serve(any.Issue("DNS:trainctl-coordinator", "serverAuth"));
  EXPECT_EQ(*Call(any.Issue("URI:trainctl://job-1/agent/n", "clientAuth")), "tls agent n");
  for (const std::string names :
       {"URI:trainctl://job-2/agent/n", "URI:trainctl://job-1/worker/n", "DNS:job-1", "URI:https://x/y",
        "URI:trainctl://job-1/agent/n,URI:trainctl://job-1/admin/n", "email:trainctl://job-1/agent/n"}) {
    const auto answer = Call(any.Issue(names, "clientAuth"));
    ASSERT_TRUE(answer.ok()) << answer.status();
    EXPECT_EQ(*answer, "tls nobody") << names;
  }
}

TEST_F(TlsTest, AServerOfAnotherAuthorityIsRefused) {
  const auto foreign = *JobAuthority::Create(kJob, clock_);
  Serve(*foreign->Issue({Role::kCoordinator, "head"}, {"127.0.0.1"}));
  const auto answer = Call(Newcomer());
  ExpectRefused(answer);
  EXPECT_THAT(std::string(answer.status().message()), HasSubstr("certificate verify failed"));
}

TEST_F(TlsTest, AnAgentCannotServeAsTheCoordinator) {
  Serve(*authority_->Issue({Role::kAgent, kCoordinatorName}));
  ExpectRefused(Call(Newcomer()));
}

TEST_F(TlsTest, AServerNeedsTheCoordinatorsName) {
  const AnyAuthority any;
  Serve(any.Issue("DNS:localhost,IP:127.0.0.1,URI:trainctl://job-1/coordinator/head", "serverAuth"));
  const Credential client = any.Issue("URI:trainctl://job-1/agent/n", "clientAuth");
  ExpectRefused(Call(client));
  Serve(any.Issue("DNS:trainctl-coordinator", "serverAuth"));
  EXPECT_TRUE(Call(client).ok());
}

TEST_F(TlsTest, NothingIsSaidInTheClear) {
  Serve();
  ExpectRefused(Call(grpc::CreateChannel(endpoint_, grpc::InsecureChannelCredentials())));
  Serve(grpc::InsecureServerCredentials(), "127.0.0.1");
  ExpectRefused(Call(Newcomer()));
}

TEST_F(TlsTest, ACallOverAUnixSocketIsToldApart) {
  std::string folder = "/tmp/trainctl-tls-test-XXXXXX";
  ASSERT_NE(::mkdtemp(folder.data()), nullptr);
  const std::string address = absl::StrCat("unix:", folder, "/s");
  grpc::ServerBuilder builder;
  builder.AddListeningPort(address, grpc::InsecureServerCredentials());
  builder.RegisterService(&service_);
  server_ = builder.BuildAndStart();
  ASSERT_NE(server_, nullptr);
  EXPECT_EQ(*Call(grpc::CreateChannel(address, grpc::InsecureChannelCredentials())), "plain nobody");
  server_.reset();
  (void)RemoveAll(folder);
}

TEST_F(TlsTest, MessagesOfTheSizesOfAJobPassAndLargerOnesDoNot) {
  Serve();
  const auto channel = *MakeTlsChannel(endpoint_, *MakeClientCredentials(Newcomer()));
  const auto stub = v1::Trainctl::NewStub(channel);
  for (const auto& [megabytes, expected] : std::vector<std::pair<int, grpc::StatusCode>>{
           {15, grpc::StatusCode::OK}, {17, grpc::StatusCode::RESOURCE_EXHAUSTED}}) {
    v1::StopRequest request;
    request.set_reason(std::string(static_cast<size_t>(megabytes) << 20, 'x'));
    grpc::ClientContext up, down;
    v1::StopReply stopped;
    EXPECT_EQ(stub->Stop(&up, request, &stopped).error_code(), expected);
    service_.num_reply_bytes = request.reason().size();
    v1::StatusReply reply;
    EXPECT_EQ(stub->Status(&down, {}, &reply).error_code(), expected);
  }
}

TEST_F(TlsTest, AddressesAreReadStrictly) {
  const auto credentials = *MakeClientCredentials(Newcomer());
  for (const std::string good : {"127.0.0.1:1", "[::1]:65535", "node-1.rack_2:7000", "unix:7000"}) {
    EXPECT_TRUE(MakeTlsChannel(good, credentials).ok()) << good;
  }
  for (const std::string& bad :
       {std::string(), std::string("host"), std::string("host:"), std::string("host:0"),
        std::string("host:65536"), std::string("host:-1"), std::string(":1"), std::string("::1:7"),
        std::string("[::1]"), std::string("[]:1"), std::string("[host]:1"), std::string("unix:/tmp/s:1"),
        std::string("dns:///h:1"), std::string("a,b:1"), std::string("a b:1"), std::string("a\0:1", 4),
        std::string(254, 'a') + ":1"}) {
    EXPECT_EQ(MakeTlsChannel(bad, credentials).status().code(), absl::StatusCode::kInvalidArgument) << bad;
  }
}

TEST_F(TlsTest, CredentialsThatCannotWorkAreRefusedBeforeTheyAreUsed) {
  Credential mixed = *authority_->Issue({Role::kAgent, "n"});
  mixed.key_pem = authority_->Issue({Role::kAgent, "n"})->key_pem;
  EXPECT_FALSE(MakeClientCredentials(mixed).ok());
  EXPECT_FALSE(MakeServerCredentials(mixed).ok());
  EXPECT_FALSE(MakeServerCredentials({.ca_pem = authority_->ca_pem()}).ok());
  EXPECT_FALSE(MakeClientCredentials({.ca_pem = authority_->ca_pem()}).ok());
  EXPECT_FALSE(MakeClientCredentials({}).ok());
}

// A node's clock that is two days behind the launcher's.
TEST_F(TlsTest, AClockThatIsFarOffIsTheReasonThatIsGiven) {
  const auto refusal_at = [&](absl::Duration offset) {
    clock_.offset = offset;
    const absl::Status refused =
        MakeClientCredentials(*(*JobAuthority::Create(kJob, clock_))->Issue({Role::kBootstrap, "agent"}))
            .status();
    EXPECT_EQ(ExitCodeFor(refused), ExitCode::kUsage);
    return std::string(refused.message());
  };
  EXPECT_THAT(refusal_at(absl::Hours(48)),
              testing::AllOf(HasSubstr("but this machine's clock shows "),
                             HasSubstr("set the clocks; those of a job's machines may differ by 24h")));
  EXPECT_THAT(refusal_at(-kCertificateLifetime - absl::Hours(1)), HasSubstr("the certificate has expired"));
}

}  // namespace
}  // namespace trainctl::rpc
